import type { ComparedFile } from 'atoll-sdk'
import { ChevronRight } from 'lucide-react'
import type { KeyboardEvent, ReactNode } from 'react'
import { Badge, type Tone } from '../ui/badge.tsx'
import { cx } from '../ui/cx.ts'
import { DiffStat } from './diff-stat.tsx'
import type { Entry } from './rows.ts'
import { visible } from '../lib/visible.ts'

const words: Record<ComparedFile['change'], readonly [word: string, tone: Tone]> = {
  added: ['Added', 'good'],
  modified: ['Changed', 'accent'],
  deleted: ['Deleted', 'bad'],
  renamed: ['Renamed', 'warn'],
}

interface FileHeadProps {
  entry: Entry
  /** Its number in the list. */
  index: number
  isOpen: boolean
  /** Absent: there are no lines to show. */
  onToggle?: (() => void) | undefined
  onKeyDown: (event: KeyboardEvent) => void
}

/** The line of one file: what happened to it, its name and how many lines. Opens and closes its changes. */
export function FileHead({ entry, index, isOpen, onToggle, onKeyDown }: FileHeadProps): ReactNode {
  const look = 'flex h-10 w-full min-w-0 items-center gap-2 border-b bg-raised px-3 text-left'
  const content = <FileFacts entry={entry} />
  if (onToggle === undefined) return <div className={look}>{content}</div>
  return (
    <button
      type="button"
      data-file={index}
      aria-expanded={isOpen}
      onClick={onToggle}
      onKeyDown={onKeyDown}
      className={cx(look, '-outline-offset-2 hover:bg-panel')}
    >
      <ChevronRight aria-hidden="true" className={cx('size-4 shrink-0 text-soft', isOpen && 'rotate-90')} />
      {content}
    </button>
  )
}

function FileFacts({ entry: { file, patch } }: { entry: Entry }): ReactNode {
  const { change, isBinary, addedLines, removedLines } = file
  const [word, tone] = words[change]
  const mode =
    patch?.newMode !== undefined && patch.oldMode !== undefined && patch.newMode !== patch.oldMode
      ? `${patch.oldMode} → ${patch.newMode}`
      : undefined
  return (
    <>
      <Badge tone={tone}>
        <span className="max-sm:sr-only">{word}</span>
        <span aria-hidden="true" className="font-mono sm:hidden">
          {word.slice(0, 1)}
        </span>
      </Badge>
      <FileName path={file.path} oldPath={file.oldPath} />
      <span className="ml-auto flex shrink-0 items-center gap-2">
        {mode !== undefined && <Badge title="The mode of the file has changed">mode {mode}</Badge>}
        {isBinary ? <Badge>binary</Badge> : <DiffStat added={addedLines} deleted={removedLines} />}
      </span>
    </>
  )
}

/** The folder gives way before the name does. */
function FileName({ path, oldPath }: { path: string; oldPath: string | undefined }): ReactNode {
  const shown = visible(path)
  const at = shown.lastIndexOf('/') + 1
  return (
    <bdi
      dir="ltr"
      className="flex min-w-0 font-mono text-[13px] whitespace-pre"
      title={oldPath === undefined ? shown : `${visible(oldPath)} → ${shown}`}
    >
      {oldPath !== undefined && <span className="min-w-0 truncate text-soft">{`${visible(oldPath)} → `}</span>}
      <span className="min-w-0 truncate text-soft">{shown.slice(0, at)}</span>
      <span className="max-w-full min-w-12 shrink-[0.1] truncate">{shown.slice(at)}</span>
    </bdi>
  )
}
