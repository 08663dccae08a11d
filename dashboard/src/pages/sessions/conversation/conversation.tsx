import { useVirtualizer } from '@tanstack/react-virtual'
import type { SessionInfo, TurnInfo } from 'atoll-sdk'
import { ArrowDown } from 'lucide-react'
import { useCallback, useEffect, useMemo, useRef, useState, type ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { leftRangesOf, rangeAt, rangeOf, withGroups } from '../stream/left-ranges.ts'
import type { LogView, SessionLog } from '../stream/session-log.ts'
import { ConversationContext } from './conversation-context.ts'
import { DraftText } from './draft-text.tsx'
import { EarlierEvents } from './earlier-events.tsx'
import { LeftBranch } from './left-branch.tsx'
import { LogNotice } from './log-notice.tsx'
import { RowView } from './row-view.tsx'
import { useFollowing } from './use-following.ts'
import { useTarget } from './use-target.ts'
import { MessageItem } from './user-message.tsx'
import { adoptedOf, currentOf, draftOf, inheritedOf, pendingOf, turnMessageOf, type ViewItem } from './view-items.ts'

const heights: Partial<Record<ViewItem['kind'], number>> = { user: 70, message: 70, text: 60, error: 70 }
const lineHeight = 34

interface ConversationProps {
  session: SessionInfo
  turns: readonly TurnInfo[]
  log: SessionLog
  view: LogView
  /** The event that a link leads to. */
  event: number | undefined
}

/** The conversation as it is written: rows of any number, of which those in view are in the page. It follows the newest until the reader scrolls up. */
export function Conversation({ session, turns, log, view, event }: ConversationProps): ReactNode {
  const { transcript } = log
  const { revision, state } = view
  const scroll = useRef<HTMLDivElement>(null)
  const [openKeys, setOpenKeys] = useState<ReadonlySet<string>>(new Set())
  const toggle = useCallback((key: string) => setOpenKeys((keys) => toggled(keys, key)), [])
  const toggleLeft = useCallback((by: number) => toggle(`left${by}`), [toggle])
  const { items, ranges } = useMemo(() => {
    const left = leftRangesOf(transcript.rewinds)
    const rows = withGroups(transcript.rows, left, (by) => openKeys.has(`left${by}`))
    const all: readonly ViewItem[] = [
      ...inheritedOf(session, transcript, turns),
      ...rows,
      ...pendingOf(session, transcript, state),
      ...draftOf(view),
    ]
    return { items: all, ranges: left }
    // Rows are changed in place; the revision stands for them.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [revision, transcript, session, turns, state, view.draft, openKeys])
  const getItemKey = useCallback((index: number) => items[index]?.key ?? index, [items])
  const { target, isSeeking } = useTarget(event, log)
  const virtualizer = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroll.current,
    estimateSize: (index) => heights[items[index]?.kind ?? 'note'] ?? lineHeight,
    getItemKey,
    overscan: 6,
    gap: 10,
    paddingStart: 8,
    paddingEnd: 12,
    anchorTo: 'end',
    // `useFollowing` decides whether it stays at its end.
    scrollEndThreshold: -1,
  })
  const { isFollowing, gestures, follow, leave } = useFollowing({
    scroll,
    items,
    isWanted: event === undefined,
    onUp: () => {
      if (scroll.current?.scrollTop === 0) void log.readEarlier()
    },
    scrollToEnd: virtualizer.scrollToEnd,
  })
  const seen = virtualizer.getVirtualItems()
  const firstIndex = seen[0]?.index ?? 0
  const targetIndex = target === undefined ? -1 : indexOfEvent(items, target)
  const targetRange = target === undefined ? undefined : rangeAt(ranges, target)
  useEffect(() => {
    if (targetRange !== undefined) setOpenKeys((keys) => new Set([...keys, `left${targetRange.by}`]))
  }, [targetRange])
  useEffect(() => {
    if (target === undefined || isSeeking) return
    // The session has no such event.
    if (targetIndex === -1) return follow()
    leave()
    virtualizer.scrollToIndex(targetIndex, { align: 'center' })
    // Once for a link: later rows must not move the reader back.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [target, isSeeking, targetRange !== undefined])
  useEffect(() => {
    log.isReaderBack = !isFollowing && firstIndex < items.length / 2
    if (state === 'held' && firstIndex > items.length / 2) log.resume()
  }, [log, isFollowing, firstIndex, items.length, state])
  const isNearBegin = firstIndex < 3 && !isFollowing && !isSeeking && items.length > 0
  const answered = useRef(0)
  useEffect(() => {
    // Once for a gesture: a list that cannot be kept in its place, since the browser still moves it, would read on and on.
    if (!isNearBegin || view.earlierError !== undefined || answered.current === gestures.current) return
    answered.current = gestures.current
    void log.readEarlier()
  }, [log, isNearBegin, view.earlierError, gestures])
  const facts = useMemo(() => {
    const messages = new Map(session.messages.map((message) => [message.id, message]))
    const known = { messages, current: currentOf(session, transcript), turns }
    return {
      ...{ sessionId: session.id, userId: session.userName ?? session.userId, turns },
      messageOf: (row: Parameters<typeof turnMessageOf>[0]) => turnMessageOf(row, known),
      adoptedBy: (row: Parameters<typeof adoptedOf>[0]) => adoptedOf(row, session, turns),
    }
  }, [session, transcript, turns])
  return (
    <ConversationContext value={facts}>
      <div className="relative flex min-h-0 flex-1 flex-col">
        <LogNotice view={view} isEmpty={items.length === 0} onRetry={() => log.restart(event)} />
        <EarlierEvents
          isShown={firstIndex < 8}
          before={transcript.before}
          view={view}
          onRead={() => void log.readEarlier()}
        />
        <div
          ref={scroll}
          role="region"
          aria-label="Conversation"
          tabIndex={0}
          className="min-h-0 flex-1 overflow-y-auto [overflow-anchor:none]"
        >
          <div className="relative" style={{ height: virtualizer.getTotalSize() }}>
            {seen.map(({ index, key, start }) => {
              const item = items[index]
              return (
                item !== undefined && (
                  <div
                    key={key}
                    ref={virtualizer.measureElement}
                    data-index={index}
                    data-event={item.event}
                    className="absolute inset-x-0 px-1.5"
                    style={{ transform: `translateY(${start}px)` }}
                  >
                    <Item
                      item={item}
                      isOpen={openKeys.has(item.key)}
                      isLeft={item.kind !== 'message' && item.kind !== 'draft' && rangeOf(ranges, item) !== undefined}
                      isMarked={index === targetIndex}
                      onToggle={toggle}
                      onToggleLeft={toggleLeft}
                    />
                  </div>
                )
              )
            })}
          </div>
        </div>
        {(!isFollowing || state === 'held') && items.length > 0 && (
          <Button
            size="small"
            look="primary"
            className="absolute right-1/2 bottom-2 z-10 translate-x-1/2 shadow-lg"
            onClick={() => {
              if (state === 'held') log.restart()
              follow()
            }}
          >
            <ArrowDown aria-hidden="true" className="size-4" /> To the newest
          </Button>
        )}
      </div>
    </ConversationContext>
  )
}

interface ItemProps {
  item: ViewItem
  isOpen: boolean
  isLeft: boolean
  isMarked: boolean
  onToggle: (key: string) => void
  onToggleLeft: (by: number) => void
}

function Item({ item, isOpen, isLeft, isMarked, onToggle, onToggleLeft }: ItemProps): ReactNode {
  if (item.kind === 'left') return <LeftBranch group={item} onToggle={onToggleLeft} />
  if (item.kind === 'message') return <MessageItem message={item.message} note={item.note} />
  if (item.kind === 'draft') return <DraftText text={item.text} />
  return (
    <RowView
      row={item}
      revision={item.revision}
      isOpen={isOpen}
      isLeft={isLeft}
      isMarked={isMarked}
      onToggle={onToggle}
    />
  )
}

/** The first row of the event, or of the next one that has a row. */
function indexOfEvent(items: readonly ViewItem[], event: number): number {
  const exact = items.findIndex((item) => item.kind !== 'left' && item.event === event)
  return exact === -1 ? items.findIndex((item) => item.kind !== 'left' && item.event >= event) : exact
}

function toggled(keys: ReadonlySet<string>, key: string): ReadonlySet<string> {
  const next = new Set(keys)
  if (!next.delete(key)) next.add(key)
  return next
}
