import type { SandboxTreeNode } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatBytes } from '../../../lib/format.ts'
import { Badge, StateBadge } from '../../../ui/badge.tsx'
import { cx } from '../../../ui/cx.ts'
import { TimeAgo } from '../../../ui/time.tsx'
import { kindWords } from '../words.ts'
import { labelOf, type TreeRow } from './layout.ts'
import { Rail, rowHeightPx } from './rail.tsx'

interface TreeRowProps {
  row: TreeRow
  laneMax: number
  top: number
  isAsked: boolean
  isSelected: boolean
  onClick: () => void
  onDoubleClick: () => void
}

/** Columns of the facts, which the legend names. */
export const bytesLook = 'w-20 shrink-0 text-right max-md:hidden'
export const ageLook = 'w-30 shrink-0 text-right max-md:hidden'

export function rowElementId(nodeId: string): string {
  return `node-${nodeId}`
}

/** On narrow windows the facts stand below the name. */
export function TreeRowView(props: TreeRowProps): ReactNode {
  const { row, laneMax, top, isAsked, isSelected, onClick, onDoubleClick } = props
  const { node, level, position, siblings } = row
  const label = labelOf(node)
  return (
    <div
      role="treeitem"
      id={rowElementId(node.id)}
      aria-level={level}
      aria-posinset={position}
      aria-setsize={siblings}
      aria-selected={isSelected}
      aria-expanded={row.firstChild === undefined ? undefined : true}
      className={cx(
        'absolute inset-x-0 flex cursor-pointer items-center gap-2 pr-3 pl-2 select-none',
        isSelected
          ? 'bg-accent-faint group-focus-visible/tree:outline-2 group-focus-visible/tree:-outline-offset-2 group-focus-visible/tree:outline-accent'
          : 'hover:bg-panel',
      )}
      style={{ height: rowHeightPx, transform: `translateY(${top}px)` }}
      onClick={onClick}
      onDoubleClick={onDoubleClick}
    >
      <Rail row={row} laneMax={laneMax} />
      <div className="flex min-w-0 flex-1 flex-col">
        <span className="flex min-w-0 items-center gap-2">
          <bdi className={cx('truncate', isAsked && 'font-semibold')} title={`${label} (${node.id})`}>
            <span className="sr-only">{node.type === 'sandbox' ? 'sandbox ' : 'checkpoint '}</span>
            {label}
          </bdi>
          {isAsked && <span className="text-xs text-soft max-md:hidden">this one</span>}
        </span>
        <span className="flex items-center gap-1.5 truncate text-xs text-soft md:hidden">
          {stateText(node)}
          <span aria-hidden="true">·</span>
          <TimeAgo time={node.createdAt} />
          {node.uniqueBytes !== undefined && ` · ${formatBytes(node.uniqueBytes)}`}
        </span>
      </div>
      <span className="flex items-center gap-1 max-md:hidden">
        {node.type === 'checkpoint' && node.origin !== undefined && node.origin !== 'client' && (
          <Badge>{node.origin}</Badge>
        )}
        {node.kind !== undefined && node.status === 'ready' ? (
          <Badge tone={node.kind === 'full' ? 'accent' : 'plain'}>{kindWords[node.kind]}</Badge>
        ) : (
          <StateBadge state={node.status} {...(node.reason === undefined ? {} : { title: node.reason })} />
        )}
      </span>
      <span className={cx(bytesLook, 'text-[13px] tabular-nums')} title="Bytes of its own">
        {node.uniqueBytes === undefined ? '' : formatBytes(node.uniqueBytes)}
      </span>
      <span className={cx(ageLook, 'text-[13px] text-soft')}>
        <TimeAgo time={node.createdAt} />
      </span>
    </div>
  )
}

function stateText({ kind, status }: SandboxTreeNode): string {
  return kind !== undefined && status === 'ready' ? kindWords[kind] : status
}
