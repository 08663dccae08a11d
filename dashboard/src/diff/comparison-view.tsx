import { defaultRangeExtractor, useVirtualizer, type Range } from '@tanstack/react-virtual'
import type { ComparedFile } from 'atoll-sdk'
import { Suspense, useEffect, useId, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from 'react'
import { lazyPart } from '../lib/part.ts'
import { cx } from '../ui/cx.ts'
import { EmptyState, ErrorNote } from '../ui/states.tsx'
import { ComparisonTools, type Layout } from './comparison-tools.tsx'
import { FileHead } from './file-head.tsx'
import { entriesOf, rowsOf, type Row } from './rows.ts'
import { useFilePatches, usePatch, type LoadPatch } from './use-patch.ts'
import { useWidth } from './use-width.ts'

const ChangedLines = lazyPart(async () => (await import('./changed-lines.tsx')).ChangedLines)

const headHeightPx = 40
const lineHeightPx = 19
/** Two columns of code need as much. */
const splitWidthPx = 720
/** Opened by one click. */
const openedMax = 100

interface ComparisonViewProps {
  files: readonly ComparedFile[]
  /** There are more files than are listed. They are read with the patch. */
  isPartial?: boolean
  /** The patch of git with the lines of all files, up to 64 MiB, read when the first file is opened. Absent: files cannot be opened. */
  loadPatch?: LoadPatch | undefined
  /** What is compared, for screen readers. */
  label?: string
  /** Bounds its height, which is otherwise four fifths of the window at most. */
  className?: string
}

/**
 * How files differ: a list of any length, each file with its lines when it is opened. Only what is seen is in the page. For another comparison give it
 * another `key`.
 */
export function ComparisonView(props: ComparisonViewProps): ReactNode {
  return props.files.length === 0 ? <EmptyState title="No file differs" /> : <Comparison {...props} />
}

function Comparison(props: ComparisonViewProps): ReactNode {
  const { files, isPartial = false, loadPatch, label = 'Changed files', className } = props
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set())
  const [layout, setLayout] = useState<Layout>('unified')
  const [frame, widthPx] = useWidth()
  const canSplit = widthPx >= splitWidthPx
  const id = useId()
  const patch = usePatch(id, loadPatch, open.size > 0)
  const entries = useMemo(() => entriesOf(files, patch.data, isPartial), [files, patch.data, isPartial])
  const openFiles = useMemo(() => [...open].flatMap((index) => entries[index]?.patch ?? []), [open, entries])
  const changes = useFilePatches(id, patch, openFiles)
  const rows = rowsOf(entries, { open, patch, changes })
  const toggle = (index: number) => {
    const next = new Set(open)
    if (!next.delete(index)) next.add(index)
    setOpen(next)
  }
  return (
    <div
      ref={frame}
      className={cx('flex min-h-0 flex-col overflow-hidden rounded-lg border bg-raised', className ?? 'max-h-[80dvh]')}
    >
      <ComparisonTools
        files={entries.map(({ file }) => file)}
        isPartial={isPartial && patch.data === undefined}
        isCut={patch.data?.isCut === true}
        layout={layout}
        onLayout={canSplit ? setLayout : undefined}
        isOpen={open.size > 0}
        onOpenAll={loadPatch === undefined ? undefined : () => setOpen(new Set(entries.slice(0, openedMax).keys()))}
        onCloseAll={() => setOpen(new Set())}
        openedMax={openedMax}
      />
      <RowList
        label={label}
        rows={rows}
        filesCount={entries.length}
        open={open}
        isSplit={canSplit && layout === 'split'}
        onToggle={loadPatch === undefined ? undefined : toggle}
      />
    </div>
  )
}

interface RowListProps {
  label: string
  rows: readonly Row[]
  filesCount: number
  open: ReadonlySet<number>
  isSplit: boolean
  onToggle: ((index: number) => void) | undefined
}

function RowList({ label, rows, filesCount, open, isSplit, onToggle }: RowListProps): ReactNode {
  const scroll = useRef<HTMLDivElement>(null)
  const focusNext = useRef<number>(undefined)
  // The head of the file that is read stays in view.
  const headOf = useRef(0)
  const rangeExtractor = (range: Range) => {
    headOf.current = rows[range.startIndex]?.head ?? 0
    return [...new Set([headOf.current, ...defaultRangeExtractor(range)])].toSorted((one, other) => one - other)
  }
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: (index) => heightOf(rows[index]),
    rangeExtractor,
    overscan: 4,
  })
  useEffect(() => {
    if (focusNext.current === undefined) return
    const button = scroll.current?.querySelector<HTMLElement>(`[data-file="${focusNext.current}"]`)
    if (!button) return
    focusNext.current = undefined
    button.focus({ preventScroll: true })
  })
  const onKeyDown = (event: KeyboardEvent, index: number) => {
    const to = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: filesCount - 1 }[event.key]
    if (to === undefined) return
    event.preventDefault()
    const target = Math.min(filesCount - 1, Math.max(0, to))
    focusNext.current = target
    virtualizer.scrollToIndex(rows.findIndex(({ type, file }) => type === 'file' && file === target))
    scroll.current?.querySelector<HTMLElement>(`[data-file="${target}"]`)?.focus({ preventScroll: true })
  }
  return (
    <div
      ref={scroll}
      role="group"
      aria-label={label}
      tabIndex={0}
      className="min-h-10 flex-auto overflow-auto -outline-offset-2"
    >
      <div className="relative" style={{ height: virtualizer.getTotalSize() }}>
        {virtualizer.getVirtualItems().map((item) => {
          const row = rows[item.index]
          if (row === undefined) return null
          const isStuck = item.index === headOf.current && open.has(row.file)
          return (
            <div
              key={item.key}
              ref={virtualizer.measureElement}
              data-index={item.index}
              className={cx('inset-x-0', isStuck ? 'sticky top-0 z-10' : 'absolute top-0')}
              style={isStuck ? undefined : { transform: `translateY(${item.start}px)` }}
            >
              {row.type === 'file' ? (
                <FileHead
                  entry={row.entry}
                  index={row.file}
                  isOpen={open.has(row.file)}
                  onToggle={onToggle && (() => onToggle(row.file))}
                  onKeyDown={(event) => onKeyDown(event, row.file)}
                />
              ) : (
                <Content row={row} isSplit={isSplit} />
              )}
            </div>
          )
        })}
      </div>
    </div>
  )
}

function heightOf(row: Row | undefined): number {
  return row?.type === 'part' ? row.part.changes.length * lineHeightPx : headHeightPx
}

function Content({ row, isSplit }: { row: Exclude<Row, { type: 'file' }>; isSplit: boolean }): ReactNode {
  if (row.type === 'part') {
    return (
      <Suspense fallback={<div style={{ height: heightOf(row) }} />}>
        <ChangedLines part={row.part} change={row.entry.file.change} isSplit={isSplit} />
      </Suspense>
    )
  }
  if (row.type === 'note') return <p className="border-b px-3 py-2 text-[13px] text-soft">{row.text}</p>
  if (row.type === 'error')
    return (
      <div className="border-b p-2">
        <ErrorNote error={row.error} onRetry={row.retry} />
      </div>
    )
  return (
    <p role="status" className="border-b px-3 py-2 text-[13px] text-soft">
      Reading the changes
    </p>
  )
}
