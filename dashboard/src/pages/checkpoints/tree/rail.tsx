import type { SandboxTreeNode } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { cx } from '../../../ui/cx.ts'
import type { TreeRow } from './layout.ts'

export const rowHeightPx = 44
const symbolPx = 16
const pitchPx = 18
/** So many lanes have their whole room. */
const wideLanes = 6
/** All others together get no more than this: a deep branch pushes no names out of view. */
const narrowPx = 72

/** Pixels from the left edge to a lane of a tree whose last lane is `laneMax`. */
function leftOf(lane: number, laneMax: number): number {
  const narrowPitch = Math.min(pitchPx, narrowPx / Math.max(1, laneMax - wideLanes))
  return Math.min(lane, wideLanes) * pitchPx + Math.max(0, lane - wideLanes) * narrowPitch
}

/** The lines of a row, and the symbol of its node. */
export function Rail({ row, laneMax }: { row: TreeRow; laneMax: number }): ReactNode {
  const { node, lane, passing, hasAbove, hasBelow } = row
  const x = (of: number) => leftOf(of, laneMax) + symbolPx / 2 + 1
  const middle = rowHeightPx / 2
  const isFork = node.type === 'sandbox' && hasAbove
  return (
    <svg
      aria-hidden="true"
      width={leftOf(lane, laneMax) + symbolPx + 4}
      height={rowHeightPx}
      className="shrink-0 text-soft"
    >
      <g fill="none" stroke="currentColor" strokeWidth="1.5" strokeOpacity="0.55">
        {passing.map((at) => (
          <path key={at} d={`M${x(at)} 0V${rowHeightPx}`} />
        ))}
        {isFork && (
          <path d={`M${x(lane - 1)} 0C${x(lane - 1)} ${middle} ${x(lane - 1)} ${middle} ${x(lane)} ${middle}`} />
        )}
        {hasAbove && !isFork && <path d={`M${x(lane)} 0V${middle}`} />}
        {hasBelow && <path d={`M${x(lane)} ${middle}V${rowHeightPx}`} />}
      </g>
      <Shape node={node} x={x(lane)} y={middle} />
    </svg>
  )
}

/** The symbol alone, in the size of a line of text. */
export function NodeSymbol({ node }: { node: Pick<SandboxTreeNode, 'type' | 'status' | 'kind'> }): ReactNode {
  return (
    <svg aria-hidden="true" width={symbolPx} height={symbolPx} className="shrink-0">
      <Shape node={node} x={symbolPx / 2} y={symbolPx / 2} />
    </svg>
  )
}

const tones: Record<string, string> = {
  running: 'text-good',
  creating: 'text-warn',
  processing: 'text-warn',
  ready: 'text-accent',
  error: 'text-bad',
  failed: 'text-bad',
}

/** A circle for a sandbox, hollow once it is stopped; a diamond for a checkpoint, hollow without memory. */
function Shape({
  node: { type, status, kind },
  x,
  y,
}: {
  node: Pick<SandboxTreeNode, 'type' | 'status' | 'kind'>
  x: number
  y: number
}): ReactNode {
  const isFilled = type === 'sandbox' ? status !== 'stopped' && status !== 'error' : kind === 'full'
  const look = cx('stroke-current', tones[status] ?? 'text-soft', isFilled ? 'fill-current' : 'fill-raised')
  if (type === 'sandbox') return <circle cx={x} cy={y} r="5.5" strokeWidth="1.5" className={look} />
  return <path d={`M${x} ${y - 6.5}l6.5 6.5l-6.5 6.5l-6.5 -6.5Z`} strokeWidth="1.5" className={look} />
}
