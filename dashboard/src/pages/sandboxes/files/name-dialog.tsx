import { useState, type ReactNode } from 'react'
import { TextField } from '../../../ui/field.tsx'
import { FormDialog } from '../../../ui/form-dialog.tsx'
import { nameFault } from './place.ts'

interface NameDialogProps {
  title: string
  action: string
  /** The name that is there to begin with. */
  name: string
  onCancel: () => void
  /** The dialog stays open with the reason when this fails. */
  onSubmit: (name: string) => Promise<void>
}

/** Asks for the name of something in a folder. */
export function NameDialog({ title, action, name, onCancel, onSubmit }: NameDialogProps): ReactNode {
  const [text, setText] = useState(name)
  const fault = nameFault(text)
  return (
    <FormDialog
      title={title}
      isOpen
      onOpenChange={(isOpen) => !isOpen && onCancel()}
      action={action}
      isReady={text !== '' && text !== name && fault === undefined}
      onSubmit={() => onSubmit(text)}
    >
      <TextField
        label="Name"
        autoFocus
        autoCapitalize="off"
        value={text}
        error={fault}
        onChange={({ target }) => setText(target.value)}
        onFocus={({ target }) =>
          target.setSelectionRange(0, Math.max(0, target.value.lastIndexOf('.')) || target.value.length)
        }
      />
    </FormDialog>
  )
}
