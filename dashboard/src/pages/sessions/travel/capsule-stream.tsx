import { useInfiniteQuery } from '@tanstack/react-query'
import type { AgentEvent, CapsuleView, Message } from 'atoll-sdk'
import { useMemo, useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { ConversationContext } from '../conversation/conversation-context.ts'
import { RowView } from '../conversation/row-view.tsx'
import { leftRangesOf, rangeAt } from '../stream/left-ranges.ts'
import type { Row } from '../stream/rows.ts'
import { Transcript } from '../stream/transcript.ts'
import { PagesEnd } from './pages-end.tsx'
import { VirtualList } from './virtual-list.tsx'

const eventsOfPage = 200
const rowHeightPx = 44

interface EventsPage {
  events: { id: number; data: AgentEvent }[]
  nextAfter: number | null
}

interface CapsuleStreamProps {
  /** Of the capsule, in the API. */
  path: string
  token: string
  /** Those that are read. */
  messages: CapsuleView['messages']
}

/** What the agent has done by the moment, call by call, with the turns that the session had left by then. */
export function CapsuleStream({ path, token, messages }: CapsuleStreamProps): ReactNode {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set())
  const query = useInfiniteQuery({
    queryKey: ['capsule', token, 'events'],
    initialPageParam: 0,
    queryFn: ({ pageParam: after, signal }) =>
      client.json<EventsPage>('GET', `${path}/events`, { query: { after, limit: eventsOfPage }, signal }),
    getNextPageParam: ({ nextAfter }) => nextAfter ?? undefined,
  })
  const { data, hasNextPage, isFetching, fetchNextPage } = query
  const byId = useMemo(() => new Map(messages.map((message) => [message.id, message])), [messages])
  const rows = useMemo(() => rowsOf(data?.pages ?? [], byId), [data, byId])
  const context = useMemo(
    () => ({
      sessionId: '',
      userId: 'User',
      messageOf: ({ turn }: { turn: { messageId?: string } }): Message | undefined => byId.get(turn.messageId ?? ''),
      adoptedBy: () => [],
      turns: [],
    }),
    [byId],
  )
  if (data === undefined)
    return query.isError ? (
      <ErrorNote error={query.error} onRetry={() => void query.refetch()} />
    ) : (
      <Loading label="Reading what was done" rows={6} />
    )
  const readNext = () => {
    if (hasNextPage && !isFetching) void fetchNextPage()
  }
  const toggle = (key: string) => {
    const next = new Set(open)
    if (!next.delete(key)) next.add(key)
    setOpen(next)
  }
  return (
    <ConversationContext value={context}>
      <div className="flex min-h-0 flex-col overflow-hidden rounded-lg border bg-raised">
        <VirtualList
          label="What was done"
          items={rows}
          keyOf={({ row }) => row.key}
          estimatePx={rowHeightPx}
          onNearEnd={readNext}
          footer={<PagesEnd hasMore={hasNextPage} error={query.error} onRetry={readNext} />}
          render={({ row, isLeft }) => (
            // A row leaves room for the number of its event, which is not shown here.
            <div className="overflow-hidden">
              <div className="-mr-12 px-4 py-1.5">
                <RowView
                  row={row}
                  revision={row.revision}
                  isOpen={open.has(row.key)}
                  isLeft={isLeft}
                  isMarked={false}
                  onToggle={toggle}
                />
              </div>
            </div>
          )}
        />
      </div>
    </ConversationContext>
  )
}

interface ShownRow {
  row: Row
  /** A rewind has left it, as far as the stream is read. */
  isLeft: boolean
}

/** Without what says nothing to a reader, and without numbers of events: they lead into the session, which the reader may not open. */
function rowsOf(pages: readonly EventsPage[], messages: ReadonlyMap<string, unknown>): ShownRow[] {
  const transcript = new Transcript(0)
  for (const { events } of pages) for (const { id, data } of events) transcript.add({ sequence: id, data })
  const ranges = leftRangesOf(transcript.rewinds)
  return transcript.rows
    .filter((row) => row.kind !== 'checkpoint' && row.kind !== 'capsule')
    .filter((row) => row.kind !== 'user' || messages.has(row.turn.messageId ?? ''))
    .map((row) => ({ row: { ...row, event: 0 }, isLeft: rangeAt(ranges, row.event) !== undefined }))
}
