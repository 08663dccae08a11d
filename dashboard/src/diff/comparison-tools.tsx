import type { ComparedFile } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatCount } from '../lib/format.ts'
import { Button } from '../ui/button.tsx'
import { DiffStat } from './diff-stat.tsx'

export type Layout = 'unified' | 'split'

interface ComparisonToolsProps {
  files: readonly ComparedFile[]
  /** There are more than these. */
  isPartial: boolean
  /** The patch does not have the last ones. */
  isCut: boolean
  layout: Layout
  /** Absent: there is no room for two columns. */
  onLayout: ((layout: Layout) => void) | undefined
  isOpen: boolean
  /** Absent: files cannot be opened. */
  onOpenAll: (() => void) | undefined
  onCloseAll: () => void
  openedMax: number
}

/** What stands above a comparison: how much differs, and how it is drawn. */
export function ComparisonTools(props: ComparisonToolsProps): ReactNode {
  const { files, isPartial, isCut, layout, onLayout, isOpen, onOpenAll, onCloseAll, openedMax } = props
  const added = files.reduce((sum, { addedLines }) => sum + addedLines, 0)
  const deleted = files.reduce((sum, { removedLines }) => sum + removedLines, 0)
  return (
    <div className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b bg-panel px-3 py-1.5">
      <span>
        {isPartial ? 'More than ' : ''}
        {formatCount(files.length)} {files.length === 1 ? 'file' : 'files'}
      </span>
      <DiffStat added={added} deleted={deleted} />
      {onOpenAll !== undefined && (
        <span className="ml-auto flex gap-2">
          {isOpen ? (
            <Button size="small" look="quiet" onClick={onCloseAll}>
              Close all
            </Button>
          ) : (
            <Button size="small" look="quiet" onClick={onOpenAll}>
              {files.length > openedMax ? `Open the first ${openedMax}` : 'Open all'}
            </Button>
          )}
          {onLayout !== undefined && (
            <Button size="small" look="quiet" onClick={() => onLayout(layout === 'split' ? 'unified' : 'split')}>
              {layout === 'split' ? 'In one column' : 'Side by side'}
            </Button>
          )}
        </span>
      )}
      {isPartial && (
        <p className="w-full text-[13px] text-soft">
          {onOpenAll === undefined ? 'Only the first are listed.' : 'Open a file to have the others listed too.'}
        </p>
      )}
      {isCut && (
        <p className="w-full text-[13px] text-warn">
          The patch is longer than 64 MiB and ends there: files behind have no lines here.
        </p>
      )}
    </div>
  )
}
