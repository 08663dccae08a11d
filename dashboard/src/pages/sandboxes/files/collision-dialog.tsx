import type { ReactNode } from 'react'
import { formatCount } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { FileName } from './file-name.tsx'
import type { TargetedFile } from './collisions.ts'

interface CollisionDialogProps {
  taken: readonly TargetedFile[]
  /** How many files are not taken. */
  others: number
  onReplace: () => void
  onSkip: () => void
  onCancel: () => void
}

const shownMax = 5

/** Asks what becomes of uploads where there is something with their name. */
export function CollisionDialog({ taken, others, onReplace, onSkip, onCancel }: CollisionDialogProps): ReactNode {
  const count = taken.length
  return (
    <Dialog
      title={count === 1 ? 'A file with this name is there' : `${formatCount(count)} files with these names are there`}
      isOpen
      onOpenChange={(isOpen) => !isOpen && onCancel()}
    >
      <div className="flex flex-col gap-4">
        <ul className="flex flex-col gap-1 font-mono text-[13px]">
          {taken.slice(0, shownMax).map((file) => (
            <li key={file.place.path} className="truncate rounded bg-panel px-2 py-1">
              <FileName name={file.place.path} />
            </li>
          ))}
          {count > shownMax && <li className="px-2 text-soft">and {formatCount(count - shownMax)} more</li>}
        </ul>
        <div className="flex flex-wrap justify-end gap-2">
          <Button onClick={onCancel}>Cancel all</Button>
          {others > 0 && <Button onClick={onSkip}>Upload the other {formatCount(others)}</Button>}
          <Button look="danger" onClick={onReplace}>
            {count === 1 ? 'Replace it' : 'Replace them'}
          </Button>
        </div>
      </div>
    </Dialog>
  )
}
