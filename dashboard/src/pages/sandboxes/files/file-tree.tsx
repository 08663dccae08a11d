import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useId, useRef, type DragEvent, type KeyboardEvent, type ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { cx } from '../../../ui/cx.ts'
import { fileReason } from './file-reason.ts'
import type { Place } from './place.ts'
import type { Row } from './rows.ts'
import { TreeRow } from './tree-row.tsx'
import { useTreeKeys } from './use-tree-keys.ts'

export type EntryRow = Extract<Row, { type: 'entry' }>

interface FileTreeProps {
  label: string
  rows: readonly Row[]
  /** Of the row that the keys act on. */
  activeKey: string | undefined
  /** Of the file that is open. */
  openKey: string | undefined
  onActive: (row: EntryRow) => void
  /** Enter or a click: opens a file, opens or closes a folder. */
  onOpen: (row: EntryRow) => void
  onFold: (row: EntryRow, isOpen: boolean) => void
  onRename: ((row: EntryRow) => void) | undefined
  onDelete: ((row: EntryRow) => void) | undefined
  onRetry: (folder: Place) => void
  menu: (row: EntryRow) => ReactNode
  /** Files were dropped on a row, or beside all. */
  onDrop: ((row: EntryRow | undefined, transfer: DataTransfer) => void) | undefined
}

const rowHeightPx = 28

/** Files as a tree of any length: only the rows in view are in the page. It fills the height of its parent. */
export function FileTree(props: FileTreeProps): ReactNode {
  const { label, rows, activeKey, openKey, onActive, onOpen, onRetry, menu, onDrop } = props
  const id = useId()
  const scroll = useRef<HTMLDivElement>(null)
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => rowHeightPx,
    overscan: 12,
  })
  const activeIndex =
    activeKey === undefined ? -1 : rows.findIndex((row) => row.type === 'entry' && row.key === activeKey)
  const onKeyDown = useTreeKeys(props, {
    activeIndex,
    pageRows: () => Math.max(1, Math.floor((scroll.current?.clientHeight ?? 0) / rowHeightPx) - 1),
    reveal: (index) => virtualizer.scrollToIndex(index, { align: 'auto' }),
  })
  useEffect(() => {
    // What is opened by an address is seen.
    if (activeIndex !== -1) virtualizer.scrollToIndex(activeIndex, { align: 'auto' })
    // Only when another becomes active, not when rows come or go.
  }, [activeKey])
  const items = virtualizer.getVirtualItems()
  const rowOf = (event: DragEvent): EntryRow | undefined => {
    const element = event.target instanceof Element ? event.target.closest<HTMLElement>('[data-index]') : null
    const row = rows[Number(element?.dataset['index'] ?? -1)]
    return row?.type === 'entry' ? row : undefined
  }
  const drop =
    onDrop === undefined
      ? {}
      : {
          onDragOver: (event: DragEvent) => event.dataTransfer.types.includes('Files') && event.preventDefault(),
          onDrop: (event: DragEvent) => {
            event.preventDefault()
            onDrop(rowOf(event), event.dataTransfer)
          },
        }
  return (
    <div
      ref={scroll}
      // A tree without an item is none.
      role={rows.some(({ type }) => type === 'entry') ? 'tree' : 'region'}
      aria-label={label}
      aria-activedescendant={items.some(({ index }) => index === activeIndex) ? `${id}-${activeIndex}` : undefined}
      tabIndex={0}
      className={cx('group/tree min-h-0 flex-1 overflow-auto -outline-offset-2', activeIndex !== -1 && 'outline-none')}
      onKeyDown={(event: KeyboardEvent) => event.target === event.currentTarget && onKeyDown(event)}
      {...drop}
    >
      <div role="presentation" className="relative" style={{ height: virtualizer.getTotalSize() }}>
        {items.map(({ index, start }) => {
          const row = rows[index]
          if (row === undefined) return null
          const place = { height: rowHeightPx, transform: `translateY(${start}px)`, paddingLeft: indentOf(row.depth) }
          if (row.type !== 'entry') {
            return (
              <div
                key={row.key}
                role="presentation"
                className="absolute inset-x-0 flex items-center gap-2 pr-2 pl-6 text-[13px] text-soft"
                style={place}
              >
                {row.type === 'error' ? (
                  <>
                    <span className="min-w-0 truncate text-bad" title={fileReason(row.error)}>
                      {fileReason(row.error)}
                    </span>
                    <Button size="small" look="quiet" className="ml-auto h-6!" onClick={() => onRetry(row.folder)}>
                      Try again
                    </Button>
                  </>
                ) : (
                  <span className="pl-6">{noteOf(row)}</span>
                )}
              </div>
            )
          }
          return (
            <TreeRow
              key={row.key}
              id={`${id}-${index}`}
              index={index}
              row={row}
              isActive={index === activeIndex}
              isOpenFile={row.key === openKey}
              style={place}
              menu={index === activeIndex ? menu(row) : undefined}
              onClick={() => {
                scroll.current?.focus({ preventScroll: true })
                onActive(row)
                onOpen(row)
              }}
            />
          )
        })}
      </div>
    </div>
  )
}

const indentPx = 16
/** Deeper ones stand below each other. */
const indentsMax = 20

function indentOf(depth: number): number {
  return 6 + indentPx * Math.min(depth, indentsMax)
}

function noteOf({ note, count }: Extract<Row, { type: 'note' }>): string {
  if (note === 'loading') return 'Reading…'
  return note === 'empty' ? 'Empty' : `${count} hidden`
}
