import { defaultRangeExtractor, useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useEffectEvent, useRef, type KeyboardEvent, type ReactNode } from 'react'
import type { TreeLayout } from './layout.ts'
import { rowHeightPx } from './rail.tsx'
import { rowElementId, TreeRowView } from './tree-row.tsx'

interface TreeViewProps {
  layout: TreeLayout
  /** Index of the row of the sandbox that was asked for. */
  asked: number
  selected: number
  onSelect: (index: number) => void
  /** Enter, or a double click. */
  onOpen: () => void
}

/** Rows that Page Up and Page Down leave in view. */
const pageOverlap = 2

/**
 * The tree as a list of rows with lanes, of which only those in view are in the page. Up and down go from row to row, left to the parent and right to
 * the first child.
 */
export function TreeView({ layout, asked, selected, onSelect, onOpen }: TreeViewProps): ReactNode {
  const { rows, laneMax } = layout
  const scroll = useRef<HTMLDivElement>(null)
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => rowHeightPx,
    getItemKey: (index) => rows[index]?.node.id ?? index,
    overscan: 10,
    // The selected one is what the focus is on, wherever the list is scrolled to.
    rangeExtractor: (range) => [...new Set([...defaultRangeExtractor(range), selected])].toSorted((a, b) => a - b),
  })
  const selectedId = rows[selected]?.node.id
  const show = useEffectEvent(() => virtualizer.scrollToIndex(selected))
  useEffect(() => show(), [selectedId])
  const onKeyDown = (event: KeyboardEvent) => {
    const next = nextOf(event.key, { layout, selected, page: pageOf(scroll.current) })
    if (event.key === 'Enter' || event.key === ' ') onOpen()
    else if (next === undefined) return
    else onSelect(Math.min(Math.max(next, 0), rows.length - 1))
    event.preventDefault()
  }
  return (
    <div
      ref={scroll}
      role="tree"
      aria-label="Sandboxes and checkpoints"
      aria-activedescendant={selectedId === undefined ? undefined : rowElementId(selectedId)}
      tabIndex={0}
      className="group/tree min-h-40 flex-1 overflow-x-hidden overflow-y-auto rounded-lg border bg-raised"
      onKeyDown={onKeyDown}
    >
      <div role="presentation" className="relative" style={{ height: virtualizer.getTotalSize() }}>
        {virtualizer.getVirtualItems().map(({ index, start }) => {
          const row = rows[index]
          if (row === undefined) return null
          return (
            <TreeRowView
              key={row.node.id}
              row={row}
              laneMax={laneMax}
              top={start}
              isAsked={index === asked}
              isSelected={index === selected}
              onClick={() => onSelect(index)}
              onDoubleClick={onOpen}
            />
          )
        })}
      </div>
    </div>
  )
}

function pageOf(element: HTMLElement | null): number {
  return Math.max(1, Math.floor((element?.clientHeight ?? 0) / rowHeightPx) - pageOverlap)
}

/** The row that a key leads to, which may lie outside; undefined for other keys, and along an edge that is not there. */
function nextOf(
  key: string,
  { layout: { rows }, selected, page }: { layout: TreeLayout; selected: number; page: number },
): number | undefined {
  const row = rows[selected]
  switch (key) {
    case 'ArrowDown':
      return selected + 1
    case 'ArrowUp':
      return selected - 1
    case 'ArrowLeft':
      return row?.parent
    case 'ArrowRight':
      return row?.firstChild
    case 'Home':
      return 0
    case 'End':
      return rows.length - 1
    case 'PageDown':
      return selected + page
    case 'PageUp':
      return selected - page
    default:
      return undefined
  }
}
