import type { ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import type { FileConflict } from './save-text.ts'

interface ConflictDialogProps {
  conflict: FileConflict
  onCancel: () => void
  onReadAgain: () => void
  onOverwrite: () => void
}

/** Asks what becomes of a text whose file was changed by somebody else. */
export function ConflictDialog({ conflict, onCancel, onReadAgain, onOverwrite }: ConflictDialogProps): ReactNode {
  const isRemoved = conflict === 'removed'
  return (
    <Dialog
      title={isRemoved ? 'The file was removed' : 'The file has changed on the disk'}
      isOpen
      onOpenChange={(isOpen) => !isOpen && onCancel()}
    >
      <div className="flex flex-col gap-4">
        <p>
          {isRemoved
            ? 'It was removed or renamed since you read it. Saving makes it anew.'
            : 'Somebody has written it since you read it. Saving replaces what they wrote by your text; reading it again replaces your text by theirs.'}
        </p>
        <div className="flex flex-wrap justify-end gap-2">
          <Button onClick={onCancel}>Cancel</Button>
          {!isRemoved && <Button onClick={onReadAgain}>Read it again</Button>}
          <Button look="danger" onClick={onOverwrite}>
            {isRemoved ? 'Save it anew' : 'Replace theirs'}
          </Button>
        </div>
      </div>
    </Dialog>
  )
}
