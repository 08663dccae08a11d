import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import type { OrganisationInfo } from 'atoll-sdk'
import { Pause, Pencil, Play, RotateCw, Trash2 } from 'lucide-react'
import { type ReactNode, useState } from 'react'
import { client } from '../../../account/client.ts'
import { formatCount } from '../../../lib/format.ts'
import { Button, IconButton } from '../../../ui/button.tsx'
import { CommandHint, quoted } from '../../../ui/commands.tsx'
import { TextField } from '../../../ui/field.tsx'
import { FormDialog } from '../../../ui/form-dialog.tsx'
import { ErrorNote } from '../../../ui/states.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { OrganisationDialog } from './organisation-dialog.tsx'

const nouns = [
  ...[['sandboxes', 'sandbox'] as const, ['sessions', 'session'] as const, ['checkpoints', 'checkpoint'] as const],
  ...[['volumes', 'volume'] as const, ['images', 'image'] as const, ['keys', 'key'] as const],
]

/** What the operator can do with an organisation. */
export function OrganisationActions({ organisation }: { organisation: OrganisationInfo }): ReactNode {
  const { id, status, isDefault } = organisation
  const queries = useQueryClient()
  const [open, setOpen] = useState<'change' | 'suspend' | 'delete'>()
  const close = () => setOpen(undefined)
  const reload = () => queries.invalidateQueries({ queryKey: ['organisations'] })
  const resume = useMutation({ mutationFn: () => client.organisations.resume(id), onSuccess: reload })
  return (
    <>
      <IconButton
        label="Read it again"
        icon={<RotateCw className="size-4" />}
        onClick={() => void queries.invalidateQueries({ queryKey: ['organisations', id] })}
      />
      <CommandHint
        commands={{
          cli: `atoll org get ${id}`,
          curl: { path: `/api/orgs/${id}` },
          sdk: `await client.organisations.get('${id}')`,
        }}
      />
      {status !== 'deleting' && (
        <Button onClick={() => setOpen('change')}>
          <Pencil aria-hidden="true" className="size-4" /> Change
        </Button>
      )}
      {status === 'active' && (
        <Button onClick={() => setOpen('suspend')}>
          <Pause aria-hidden="true" className="size-4" /> Suspend
        </Button>
      )}
      {status === 'suspended' && (
        <>
          <Button onClick={() => setOpen('suspend')}>Another reason</Button>
          <Button look="primary" isBusy={resume.isPending} onClick={() => resume.mutate()}>
            <Play aria-hidden="true" className="size-4" /> Resume
          </Button>
        </>
      )}
      {!isDefault && status !== 'deleting' && (
        <Button look="danger" onClick={() => setOpen('delete')}>
          <Trash2 aria-hidden="true" className="size-4" /> Delete
        </Button>
      )}
      {resume.isError && (
        <div className="w-full">
          <ErrorNote error={resume.error} />
        </div>
      )}
      {open === 'change' && <OrganisationDialog organisation={organisation} onClose={close} />}
      {open === 'suspend' && <SuspendDialog organisation={organisation} onClose={close} onDone={reload} />}
      {open === 'delete' && <DeleteDialog organisation={organisation} onClose={close} />}
    </>
  )
}

function SuspendDialog({
  organisation: { id, name, suspendedReason = '' },
  onClose,
  onDone,
}: {
  organisation: OrganisationInfo
  onClose: () => void
  onDone: () => Promise<void>
}): ReactNode {
  const [reason, setReason] = useState(suspendedReason)
  const given = reason.trim() === '' ? {} : { reason: reason.trim() }
  return (
    <FormDialog
      title={`Suspend ${name}`}
      description="Its calls, previews and signed URLs are refused, its streams end, its builds are cancelled, and what runs hibernates with its memory. Nothing is lost."
      isOpen
      onOpenChange={onClose}
      action="Suspend the organisation"
      onSubmit={async () => {
        await client.organisations.suspend(id, given)
        await onDone()
        onClose()
      }}
      commands={{
        cli: `atoll org suspend ${id}${given.reason === undefined ? '' : ` --reason ${quoted(given.reason)}`}`,
        curl: { method: 'POST', path: `/api/orgs/${id}/suspend`, json: given },
        sdk: `await client.organisations.suspend('${id}', ${JSON.stringify(given)})`,
      }}
    >
      <TextField
        label="Reason"
        autoFocus
        maxLength={1000}
        value={reason}
        onChange={({ target }) => setReason(target.value)}
        placeholder="the invoice is open"
        hint="Told to those whose calls are refused."
      />
    </FormDialog>
  )
}

function DeleteDialog({
  organisation: { id, name, usage },
  onClose,
}: {
  organisation: OrganisationInfo
  onClose: () => void
}): ReactNode {
  const queries = useQueryClient()
  const navigate = useNavigate()
  const toast = useToast()
  const [typed, setTyped] = useState('')
  const has = usage === undefined ? [] : nouns.filter(([noun]) => usage[noun] > 0)
  return (
    <FormDialog
      title={`Delete ${name} with all that it has`}
      description="There is no way back but a backup. Its audit alone stays."
      isOpen
      onOpenChange={onClose}
      action="Delete the organisation"
      isReady={typed === name}
      onSubmit={async () => {
        await client.organisations.delete(id)
        toast({ text: `${name} is being deleted. It goes in the background.` })
        await navigate({ to: '/organisations' })
        await queries.invalidateQueries({ queryKey: ['organisations'] })
      }}
      commands={{
        cli: `atoll org rm ${id} --yes`,
        curl: { method: 'DELETE', path: `/api/orgs/${id}` },
        sdk: `await client.organisations.delete('${id}')`,
      }}
    >
      <p>
        {usage !== undefined && has.length > 0
          ? `Its ${has.map(([noun, one]) => `${formatCount(usage[noun])} ${usage[noun] === 1 ? one : noun}`).join(', ')} go for good, with its previews, webhooks, secrets and events.`
          : 'It has nothing but its events and its audit.'}
      </p>
      <TextField
        label="Type its name"
        autoFocus
        value={typed}
        onChange={({ target }) => setTyped(target.value)}
        hint={name}
      />
    </FormDialog>
  )
}
