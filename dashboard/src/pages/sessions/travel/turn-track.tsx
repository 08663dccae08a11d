import type { TurnInfo } from 'atoll-sdk'
import { Undo2 } from 'lucide-react'
import { Slider } from 'radix-ui'
import { memo, useMemo, useState, type ReactNode } from 'react'
import { visible } from '../../../lib/visible.ts'
import { shorten } from '../../../lib/format.ts'
import { cx } from '../../../ui/cx.ts'
import { isPeek } from './peek.ts'

const messageCharactersMax = 120

interface TurnTrackProps {
  /** Oldest first. */
  turns: readonly TurnInfo[]
  /** Their numbers. */
  places: ReadonlyMap<string, number>
  /** The turn that is looked at; undefined: the present, behind the last one. */
  messageId: string | undefined
  /** The newest rewind can be undone. */
  canUndo: boolean
  onChoose: (messageId: string | undefined) => void
}

/** A slider over the ends of turns, with the present at its right end. Turns that a rewind has left lie on a lower lane. */
export function TurnTrack({ turns, places, messageId, canUndo, onChoose }: TurnTrackProps): ReactNode {
  const [pointed, setPointed] = useState<number>()
  const last = turns.length
  const found = messageId === undefined ? last : turns.findIndex((turn) => turn.messageId === messageId)
  const value = found === -1 ? last : found
  const names = useMemo(() => turns.map((turn) => nameOf(turn, places.get(turn.messageId) ?? 0)), [turns, places])
  const nameAt = (index: number) => names[index] ?? 'The present'
  const shown = pointed ?? value
  return (
    <div className="min-w-0 flex-1">
      <Slider.Root
        min={0}
        max={last}
        step={1}
        value={[value]}
        onValueChange={([index = last]) => onChoose(turns[index]?.messageId)}
        onPointerMove={({ currentTarget, clientX }) => {
          const { left, width } = currentTarget.getBoundingClientRect()
          const part = (clientX - left - thumbPx / 2) / Math.max(1, width - thumbPx)
          setPointed(Math.min(last, Math.max(0, Math.round(part * last))))
        }}
        onPointerLeave={() => setPointed(undefined)}
        className="relative flex h-10 w-full touch-none items-center select-none"
      >
        <Slider.Track className="relative h-full grow cursor-pointer">
          <Marks turns={turns} undoIndex={canUndo ? undoIndexOf(turns) : undefined} />
        </Slider.Track>
        <Slider.Thumb
          aria-label="Turn"
          aria-valuetext={nameAt(value)}
          className={cx(
            'block size-5 rounded-full border-2 border-accent bg-accent/25 shadow-sm',
            turns[value]?.left === true ? 'translate-y-2.5' : '-translate-y-1.5',
          )}
        />
      </Slider.Root>
      <p className="truncate text-[13px] text-soft" aria-hidden="true">
        {nameAt(shown)}
      </p>
    </div>
  )
}

/** As wide as the thumb, whose middle lies within the track. */
const thumbPx = 20

function nameOf(turn: TurnInfo, place: number): string {
  const forks = turn.forks.filter(({ name }) => !isPeek(name)).length
  const about = [
    turn.endedAt === null ? 'runs' : turn.result === 'success' ? undefined : (turn.result ?? undefined),
    turn.left ? 'left by a rewind' : undefined,
    turn.endedAt !== null && turn.checkpoint === null ? 'no checkpoint' : undefined,
    forks > 0 ? `${forks}${turn.forksCut ? ' or more' : ''} ${forks === 1 ? 'fork' : 'forks'}` : undefined,
  ].filter((word) => word !== undefined)
  const message = visible(shorten(turn.message, messageCharactersMax))
  return `Turn ${place}${about.length === 0 ? '' : ` (${about.join(', ')})`}: ${message}`
}

/** Where the session stood before the newest rewind: the last of the turns that it has left. */
function undoIndexOf(turns: readonly TurnInfo[]): number | undefined {
  const newest = Math.max(...turns.map(({ leftEvent = 0 }) => leftEvent))
  return newest === 0 ? undefined : turns.findLastIndex(({ leftEvent }) => leftEvent === newest)
}

const Marks = memo(function Marks({
  turns,
  undoIndex,
}: {
  turns: readonly TurnInfo[]
  undoIndex: number | undefined
}): ReactNode {
  const last = turns.length
  const at = (index: number) => ({ left: `${last === 0 ? 100 : (index / last) * 100}%` })
  return (
    <span aria-hidden="true" className="pointer-events-none absolute inset-x-2.5 inset-y-0 block">
      <span className="absolute inset-x-0 top-3.5 h-0.5 -translate-y-1/2 bg-line" />
      {leftRuns(turns).map(([from, to]) => (
        <span
          key={`${from} ${to}`}
          className="absolute top-3.5 h-4 rounded-bl border-b border-l border-dashed border-soft"
          style={{ left: at(from).left, width: `${((to - from) / last) * 100}%` }}
        />
      ))}
      {turns.map((turn, index) => (
        <Mark key={turn.messageId} turn={turn} style={at(index)} />
      ))}
      {undoIndex !== undefined && (
        <span className="absolute top-6 pl-2 text-warn" style={at(undoIndex)}>
          <Undo2 className="size-3" />
        </span>
      )}
      <span className="absolute top-3.5 size-1.5 -translate-x-1/2 -translate-y-1/2 rotate-45 bg-ink" style={at(last)} />
    </span>
  )
})

function Mark({ turn, style }: { turn: TurnInfo; style: { left: string } }): ReactNode {
  const { left, forks } = turn
  return (
    <span
      className={cx(
        'absolute flex size-2 -translate-x-1/2 -translate-y-1/2 items-center justify-center',
        left ? 'top-[1.875rem] opacity-60' : 'top-3.5',
      )}
      style={style}
    >
      <span className={dotOf(turn)} />
      {forks.some(({ name }) => !isPeek(name)) && (
        <span className="absolute bottom-full flex flex-col items-center">
          <span className="size-1 rounded-full bg-warn" />
          <span className="h-1.5 w-px bg-warn" />
        </span>
      )}
    </span>
  )
}

/** Full: disk and memory are kept. Square: the disk. Small: nothing. */
function dotOf({ checkpoint, endedAt, result }: TurnInfo): string {
  if (endedAt === null) return 'size-2 animate-pulse rounded-full border-2 border-accent bg-raised'
  const color = result === 'success' ? 'bg-accent' : 'bg-bad'
  if (checkpoint === null) return cx('size-1 rounded-full', result === 'success' ? 'bg-soft' : 'bg-bad')
  return cx('size-2', color, checkpoint.kind === 'full' && 'rounded-full')
}

/** Runs of turns that were left, each from the turn before it (or the begin) to its last one. */
function leftRuns(turns: readonly TurnInfo[]): [from: number, to: number][] {
  const runs: [number, number][] = []
  for (const [index, turn] of turns.entries()) {
    if (!turn.left) continue
    const run = runs.at(-1)
    const from = turns.findIndex(({ messageId }) => messageId === turn.parentMessageId)
    if (run !== undefined && run[1] === index - 1 && from >= run[0]) run[1] = index
    else runs.push([from === -1 ? index : from, index])
  }
  return runs
}
