import { Link } from '@tanstack/react-router'
import { Boxes, Cpu, MessagesSquare } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { Button } from '../../ui/button.tsx'
import { CommandHint } from '../../ui/commands.tsx'
import { Field, inputLook } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { cx } from '../../ui/cx.ts'
import { ErrorNote } from '../../ui/states.tsx'
import { sandboxCommands, sessionCommands, useBeginSandbox, useBeginSession } from './use-begin.ts'

/** The three ways to begin, for an account that has things. */
export function BeginBar(): ReactNode {
  const may = useMay()
  const sandbox = useBeginSandbox()
  const [isSessionOpen, setSessionOpen] = useState(false)
  return (
    <>
      {may('sandbox:write') && (
        <>
          <Button isBusy={sandbox.isPending} onClick={() => sandbox.mutate()}>
            <Boxes aria-hidden="true" className="size-4" /> New sandbox
          </Button>
          <CommandHint label="A new sandbox as a command" commands={sandboxCommands} />
        </>
      )}
      {may('session:write') && (
        <Button onClick={() => setSessionOpen(true)}>
          <MessagesSquare aria-hidden="true" className="size-4" /> New session
        </Button>
      )}
      {may('image') && (
        <Link
          to="/images"
          search={{ new: 'image' }}
          className="inline-flex h-8 items-center gap-1.5 rounded-md border bg-raised px-3 font-medium whitespace-nowrap hover:border-accent"
        >
          <Cpu aria-hidden="true" className="size-4" /> New image
        </Link>
      )}
      {sandbox.error !== null && (
        <div className="basis-full">
          <ErrorNote error={sandbox.error} />
        </div>
      )}
      {isSessionOpen && <SessionDialog onClose={() => setSessionOpen(false)} />}
    </>
  )
}

function SessionDialog({ onClose }: { onClose: () => void }): ReactNode {
  const [prompt, setPrompt] = useState('')
  const { mutateAsync } = useBeginSession()
  const given = prompt.trim()
  return (
    <FormDialog
      title="New session"
      description="An agent works on it in a sandbox of its own."
      isOpen
      onOpenChange={onClose}
      action="Start the session"
      isReady={given !== ''}
      onSubmit={() => mutateAsync(given)}
      commands={sessionCommands(given === '' ? 'A page about coral reefs' : given)}
    >
      <Field label="What shall it make?">
        {(ids) => (
          <textarea
            {...ids}
            rows={4}
            required
            autoFocus
            placeholder="A page about coral reefs"
            className={cx(inputLook, 'h-auto resize-y py-1.5')}
            value={prompt}
            onChange={({ target }) => setPrompt(target.value)}
          />
        )}
      </Field>
    </FormDialog>
  )
}
