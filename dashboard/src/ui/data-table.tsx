import {
  createSortedRowModel,
  rowSelectionFeature,
  rowSortingFeature,
  sortFns,
  tableFeatures,
  useTable,
  type RowSelectionState,
  type SortingState,
} from '@tanstack/react-table'
import { useVirtualizer } from '@tanstack/react-virtual'
import { ArrowDown, ArrowUp } from 'lucide-react'
import { useEffect, useEffectEvent, useRef, type KeyboardEvent, type ReactNode } from 'react'
import { cx } from './cx.ts'

export interface Column<Row> {
  id: string
  header: string
  /** The header is for screen readers alone, as above buttons. */
  isHeaderHidden?: boolean
  cell: (row: Row) => ReactNode
  /** What the column sorts by; absent: it does not sort. */
  sortBy?: (row: Row) => string | number
  /** A track of the grid: `minmax(10rem,2fr)`, `6rem`. */
  width: string
  /** Left out on narrow windows. */
  isWideOnly?: boolean
  isNumeric?: boolean
}

interface DataTableProps<Row> {
  label: string
  rows: readonly Row[]
  columns: readonly Column<Row>[]
  rowId: (row: Row) => string
  /** Enter or a click on a row. */
  onOpen?: (row: Row) => void
  sorting?: SortingState
  onSort?: (sorting: SortingState) => void
  selection?: RowSelectionState
  onSelect?: (selection: RowSelectionState) => void
  /** Told which rows are in view, when others are. */
  onView?: (rows: readonly Row[]) => void
  /** Stands in place of the rows when there are none. */
  empty?: ReactNode
  rowHeightPx?: number
}

const features = tableFeatures({
  rowSortingFeature,
  rowSelectionFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns,
})
const headHeight = 'h-9'
const headHeightPx = 36

/**
 * A table of any length: only the rows in view are in the page. It fills the room that its parent has. In a row the arrows, Home and End go to
 * others, Enter opens it and the space bar selects it.
 */
export function DataTable<Row extends object>(props: DataTableProps<Row>): ReactNode {
  const { label, rows, columns, rowId, onOpen, sorting, onSort, selection, onSelect, onView, empty } = props
  const { rowHeightPx = 44 } = props
  const scroll = useRef<HTMLDivElement>(null)
  const table = useTable({
    features,
    data: rows,
    columns: columns.map(({ id, header, sortBy }) => ({
      id,
      header,
      enableSorting: sortBy !== undefined,
      ...(sortBy === undefined ? {} : { accessorFn: sortBy }),
    })),
    getRowId: rowId,
    state: { sorting: sorting ?? [], rowSelection: selection ?? {} },
    onSortingChange: (update) => onSort?.(typeof update === 'function' ? update(sorting ?? []) : update),
    onRowSelectionChange: (update) => onSelect?.(typeof update === 'function' ? update(selection ?? {}) : update),
  })
  const sorted = table.getRowModel().rows
  const virtualizer = useVirtualizer({
    count: sorted.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => rowHeightPx,
    getItemKey: (index) => sorted[index]?.id ?? index,
    overscan: 8,
    scrollPaddingStart: headHeightPx,
  })
  const { startIndex: first = 0, endIndex: last = -1 } = virtualizer.range ?? {}
  const notifyView = useEffectEvent(() => onView?.(sorted.slice(first, last + 1).map((row) => row.original)))
  useEffect(() => notifyView(), [first, last, sorted])
  const goTo = (index: number) => {
    if (index < 0 || index >= sorted.length) return
    virtualizer.scrollToIndex(index)
    // The row may come into the page only after the scroll.
    requestAnimationFrame(() => {
      scroll.current?.querySelector<HTMLElement>(`[data-index="${index}"]`)?.focus({ preventScroll: true })
    })
  }
  const template = {
    gridTemplateColumns: `${onSelect === undefined ? '' : '2.25rem '}${columns.map(({ width, isWideOnly }) => (isWideOnly === true ? `var(--wide-only, ${width})` : width)).join(' ')}`,
  }
  const cell = (column: Column<Row>) =>
    cx(
      'min-w-0 truncate px-2',
      column.isNumeric === true && 'text-right tabular-nums',
      // It keeps its track of the grid, which has no width.
      column.isWideOnly === true && 'max-md:invisible max-md:px-0',
    )
  return (
    <div
      ref={scroll}
      role="table"
      aria-label={label}
      aria-rowcount={sorted.length + 1}
      className="relative min-h-40 flex-1 overflow-auto rounded-lg border bg-raised max-md:[--wide-only:0px]"
    >
      <div role="rowgroup" className="sticky top-0 z-10 border-b bg-panel">
        <div role="row" aria-rowindex={1} className={cx('grid items-center', headHeight)} style={template}>
          {onSelect !== undefined && (
            <span role="columnheader" className="flex justify-center">
              <input
                type="checkbox"
                aria-label="Select all"
                className="size-4 accent-accent"
                checked={sorted.length > 0 && table.getIsAllRowsSelected()}
                onChange={() => table.toggleAllRowsSelected()}
              />
            </span>
          )}
          {columns.map((column) => {
            const sort = table.getColumn(column.id)?.getIsSorted()
            const order = sort === 'asc' ? 'ascending' : sort === 'desc' ? 'descending' : 'none'
            return (
              <span
                key={column.id}
                role="columnheader"
                aria-sort={column.sortBy === undefined || onSort === undefined ? undefined : order}
                className={cx(cell(column), 'text-[13px] font-medium text-soft')}
              >
                {column.sortBy === undefined || onSort === undefined ? (
                  <span className={cx(column.isHeaderHidden === true && 'sr-only')}>{column.header}</span>
                ) : (
                  <button
                    type="button"
                    className="inline-flex items-center gap-1 hover:text-ink"
                    onClick={() => table.getColumn(column.id)?.toggleSorting()}
                  >
                    {column.header}
                    {sort === 'asc' && <ArrowUp aria-hidden="true" className="size-3" />}
                    {sort === 'desc' && <ArrowDown aria-hidden="true" className="size-3" />}
                  </button>
                )}
              </span>
            )
          })}
        </div>
      </div>
      {sorted.length === 0 && empty !== undefined && (
        <div role="rowgroup">
          <div role="row">
            <div role="cell" className="p-4">
              {empty}
            </div>
          </div>
        </div>
      )}
      <div role="rowgroup" className="relative" style={{ height: virtualizer.getTotalSize() }}>
        {virtualizer.getVirtualItems().map((item) => {
          const row = sorted[item.index]
          if (row === undefined) return null
          return (
            <div
              key={row.id}
              role="row"
              data-index={item.index}
              aria-rowindex={item.index + 2}
              aria-selected={onSelect === undefined ? undefined : row.getIsSelected()}
              tabIndex={onOpen === undefined ? undefined : 0}
              className={cx(
                'absolute inset-x-0 grid items-center border-b focus-visible:-outline-offset-2',
                onOpen !== undefined && 'cursor-pointer hover:bg-panel',
                row.getIsSelected() && 'bg-accent-faint',
              )}
              style={{ ...template, height: rowHeightPx, transform: `translateY(${item.start}px)` }}
              onClick={() => onOpen?.(row.original)}
              onKeyDown={(event) => {
                if (event.target !== event.currentTarget) return
                const to = targetOf(event, item.index, sorted.length)
                if (event.key === 'Enter') onOpen?.(row.original)
                else if (event.key === ' ' && onSelect !== undefined) row.toggleSelected()
                else if (to !== undefined) goTo(to)
                else return
                event.preventDefault()
              }}
            >
              {onSelect !== undefined && (
                <span role="cell" className="flex justify-center" onClick={(event) => event.stopPropagation()}>
                  <input
                    type="checkbox"
                    aria-label={`Select ${row.id}`}
                    className="size-4 accent-accent"
                    checked={row.getIsSelected()}
                    onChange={() => row.toggleSelected()}
                  />
                </span>
              )}
              {columns.map((column) => (
                <span key={column.id} role="cell" className={cell(column)}>
                  {column.cell(row.original)}
                </span>
              ))}
            </div>
          )
        })}
      </div>
    </div>
  )
}

/** The row to which a key leads. */
function targetOf({ key, ctrlKey, metaKey, altKey }: KeyboardEvent, index: number, count: number): number | undefined {
  if (ctrlKey || metaKey || altKey) return undefined
  if (key === 'ArrowDown') return Math.min(index + 1, count - 1)
  if (key === 'ArrowUp') return Math.max(index - 1, 0)
  if (key === 'Home') return 0
  return key === 'End' ? count - 1 : undefined
}
