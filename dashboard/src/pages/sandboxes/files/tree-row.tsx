import { ChevronDown, ChevronRight, File, Folder, FolderOpen } from 'lucide-react'
import type { CSSProperties, ReactNode } from 'react'
import { formatBytes } from '../../../lib/format.ts'
import { cx } from '../../../ui/cx.ts'
import { FileName } from './file-name.tsx'
import type { EntryRow } from './file-tree.tsx'
import { shownName } from './shown-name.ts'

interface TreeRowProps {
  id: string
  index: number
  row: EntryRow
  isActive: boolean
  isOpenFile: boolean
  style: CSSProperties
  menu: ReactNode
  onClick: () => void
}

/** Something in a folder, as a line of the tree. */
export function TreeRow({ id, index, row, isActive, isOpenFile, style, menu, onClick }: TreeRowProps): ReactNode {
  const { entry, isOpen, depth } = row
  const Icon = !entry.isDir ? File : isOpen ? FolderOpen : Folder
  const Chevron = isOpen ? ChevronDown : ChevronRight
  return (
    <div
      id={id}
      role="treeitem"
      data-index={index}
      aria-level={depth + 1}
      aria-posinset={row.position}
      aria-setsize={row.setSize}
      aria-selected={isOpenFile}
      aria-expanded={entry.isDir ? isOpen : undefined}
      className={cx(
        'absolute inset-x-0 flex cursor-pointer items-center gap-1.5 pr-1',
        isOpenFile ? 'bg-accent-faint' : 'hover:bg-panel',
        isActive &&
          'group-focus-visible/tree:outline-2 group-focus-visible/tree:-outline-offset-2 group-focus-visible/tree:outline-accent',
        isActive && !isOpenFile && 'bg-panel',
      )}
      style={style}
      onClick={onClick}
    >
      {entry.isDir ? (
        <Chevron aria-hidden="true" className="size-4 shrink-0 text-soft" />
      ) : (
        <span className="w-4 shrink-0" />
      )}
      <Icon aria-hidden="true" className={cx('size-4 shrink-0', entry.isDir ? 'text-accent' : 'text-soft')} />
      <span className="min-w-0 flex-1 truncate" title={shownName(entry.name)}>
        <FileName name={entry.name} />
      </span>
      {!entry.isDir && (
        <span
          className="shrink-0 pl-2 text-xs text-soft tabular-nums"
          title={entry.size === undefined ? 'Changed since the folder was read' : undefined}
        >
          {entry.size === undefined ? '…' : formatBytes(entry.size)}
        </span>
      )}
      {menu !== undefined && (
        <span className="flex shrink-0" onClick={(event) => event.stopPropagation()}>
          {menu}
        </span>
      )}
    </div>
  )
}
