import {
  ArrowDownUp,
  Eye,
  EyeOff,
  FilePlus,
  FolderPlus,
  FolderUp,
  GitCompare,
  Plus,
  RefreshCw,
  Upload,
} from 'lucide-react'
import { useRef, type ReactNode } from 'react'
import { IconButton } from '../../../ui/button.tsx'
import { CommandHint, type Commands } from '../../../ui/commands.tsx'
import { Menu } from '../../../ui/menu.tsx'
import type { SortBy, TreeOrder } from './rows.ts'

interface FilesBarProps {
  order: TreeOrder
  isReading: boolean
  mayWrite: boolean
  commands: Commands
  onOrder: (order: TreeOrder) => void
  onRefresh: () => void
  onNewFile: () => void
  onNewFolder: () => void
  /** Files of the reader's machine were chosen. */
  onChoose: (files: FileList) => void
  onCompare: () => void
}

const sorts: readonly (readonly [sortBy: SortBy, label: string])[] = [
  ['name', 'name'],
  ['size', 'size'],
  ['time', 'time of change'],
]

/** What can be done with the folder that is shown. */
export function FilesBar(props: FilesBarProps): ReactNode {
  const { order, isReading, mayWrite, commands, onOrder, onRefresh, onNewFile, onNewFolder, onChoose, onCompare } =
    props
  const files = useRef<HTMLInputElement>(null)
  const folders = useRef<HTMLInputElement>(null)
  const icon = 'size-4'
  const chosen = ({ currentTarget }: { currentTarget: HTMLInputElement }) => {
    if (currentTarget.files !== null && currentTarget.files.length > 0) onChoose(currentTarget.files)
    // The same may be chosen again.
    currentTarget.value = ''
  }
  return (
    <div role="toolbar" aria-label="Files" className="flex flex-wrap items-center gap-0.5">
      {mayWrite && (
        <>
          <Menu
            label="New"
            trigger={<IconButton label="New" icon={<Plus className={icon} />} />}
            items={[
              { label: 'New folder', icon: <FolderPlus className={icon} />, onSelect: onNewFolder },
              { label: 'New file', icon: <FilePlus className={icon} />, onSelect: onNewFile },
            ]}
          />
          <Menu
            label="Upload"
            trigger={<IconButton label="Upload" icon={<Upload className={icon} />} />}
            items={[
              { label: 'Upload files', icon: <Upload className={icon} />, onSelect: () => files.current?.click() },
              {
                label: 'Upload a folder',
                icon: <FolderUp className={icon} />,
                onSelect: () => folders.current?.click(),
              },
            ]}
          />
          <input ref={files} type="file" multiple hidden aria-label="Files to upload" onChange={chosen} />
          <input
            ref={folders}
            type="file"
            webkitdirectory=""
            multiple
            hidden
            aria-label="Folder to upload"
            onChange={chosen}
          />
        </>
      )}
      <IconButton label="Changes since a checkpoint" icon={<GitCompare className={icon} />} onClick={onCompare} />
      <span className="ml-auto" />
      <Menu
        label="Order"
        trigger={<IconButton label="Order" icon={<ArrowDownUp className={icon} />} />}
        items={[
          ...sorts.map(([sortBy, label]) => ({
            label: `Sort by ${label}${order.sortBy === sortBy ? ' ✓' : ''}`,
            onSelect: () => onOrder({ ...order, sortBy, isDescending: sortBy !== 'name' }),
          })),
          {
            label: order.isDescending ? 'Smallest first' : 'Largest first',
            onSelect: () => onOrder({ ...order, isDescending: !order.isDescending }),
          },
        ]}
      />
      <IconButton
        label="Hidden files"
        aria-pressed={order.showsHidden}
        icon={order.showsHidden ? <Eye className={icon} /> : <EyeOff className={icon} />}
        onClick={() => onOrder({ ...order, showsHidden: !order.showsHidden })}
      />
      <IconButton label="Read again" icon={<RefreshCw className={icon} />} isBusy={isReading} onClick={onRefresh} />
      <CommandHint commands={commands} />
    </div>
  )
}
