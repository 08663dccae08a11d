import type { ReactNode } from 'react'
import { Button } from './button.tsx'
import { type Commands, CommandHint } from './commands.tsx'
import { Dialog } from './dialog.tsx'
import { ErrorNote } from './states.tsx'
import { useSubmit } from './use-submit.ts'

interface FormDialogProps {
  title: string
  description?: string
  isOpen: boolean
  onOpenChange: (isOpen: boolean) => void
  /** Names the act: `Create the key`. */
  action: string
  /** The dialog stays open with the reason when this fails; on success the caller closes it or shows what came of it. */
  onSubmit: () => Promise<unknown>
  isReady?: boolean
  commands?: Commands
  size?: 'normal' | 'wide'
  children: ReactNode
}

/** A form in a dialog, with its act, the act as a command, and the reason when it is refused. */
export function FormDialog(props: FormDialogProps): ReactNode {
  const { title, description, isOpen, onOpenChange, size } = props
  return (
    <Dialog
      title={title}
      isOpen={isOpen}
      onOpenChange={onOpenChange}
      isKept
      {...(description === undefined ? {} : { description })}
      {...(size === undefined ? {} : { size })}
    >
      <Form {...props} />
    </Dialog>
  )
}

function Form({ action, onSubmit, onOpenChange, isReady = true, commands, children }: FormDialogProps): ReactNode {
  const { submit, isBusy, error } = useSubmit(onSubmit)
  return (
    <form onSubmit={submit} className="flex flex-col gap-4">
      {children}
      {error !== undefined && <ErrorNote error={error} />}
      <div className="flex items-center justify-end gap-2">
        {commands !== undefined && <CommandHint commands={commands} />}
        <Button onClick={() => onOpenChange(false)}>Cancel</Button>
        <Button type="submit" look="primary" isBusy={isBusy} disabled={!isReady}>
          {action}
        </Button>
      </div>
    </form>
  )
}
