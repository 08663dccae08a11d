import { useQueryClient } from '@tanstack/react-query'
import { AtollError, type CheckpointInfo, type CheckpointKind, type SandboxInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { defined } from '../../lib/search.ts'
import { nameOf, sandboxKey } from '../../sandboxes/sandbox.ts'
import { SelectField, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { useToast } from '../../ui/toasts.tsx'
import { checkpointCommands } from './commands.ts'
import { DurationField } from './duration-field.tsx'

/** Keeps this moment of a sandbox. It closes when the server has begun; the list shows when the checkpoint is ready. */
export function CheckpointDialog({ info, onClose }: { info: SandboxInfo; onClose: () => void }): ReactNode {
  const [name, setName] = useState(() => `at ${new Date().toISOString().slice(0, 19).replace('T', ' ')}`)
  const [kind, setKind] = useState<CheckpointKind>('full')
  const [expires, setExpires] = useState('')
  const [refusal, setRefusal] = useState<{ field: unknown; reason: string }>()
  const queries = useQueryClient()
  const toast = useToast()
  const json = {
    name: name.trim(),
    kind,
    ...defined({ expiresInSeconds: expires === '' ? undefined : Number(expires) }),
  }
  const errorOf = (field: string) => (refusal?.field === field ? refusal.reason : undefined)
  const submit = async () => {
    const path = `/api/sandboxes/${info.sandboxID}/checkpoints`
    try {
      await client.json<CheckpointInfo>('POST', path, { json, creates: true })
    } catch (error) {
      const field = error instanceof AtollError ? error.details['field'] : undefined
      if (field !== 'name' && field !== 'expiresInSeconds') throw error
      setRefusal({ field, reason: error instanceof Error ? error.message : '' })
      return
    }
    // The log tells of it once it is ready.
    await queries.invalidateQueries({ queryKey: sandboxKey(info.sandboxID, 'checkpoints') })
    toast({ text: `The checkpoint “${json.name}” is being made.` })
    onClose()
  }
  return (
    <FormDialog
      title={`Checkpoint ${nameOf(info)}`}
      description="Keeps this moment. The sandbox runs on."
      isOpen
      onOpenChange={onClose}
      action="Make the checkpoint"
      isReady={json.name !== ''}
      onSubmit={submit}
      commands={checkpointCommands(nameOf(info), json)}
    >
      <TextField
        label="Name"
        required
        autoFocus
        maxLength={128}
        value={name}
        error={errorOf('name')}
        onChange={({ target }) => setName(target.value)}
      />
      <SelectField label="Keeps" value={kind} onChange={({ target }) => setKind(target.value as CheckpointKind)}>
        <option value="full">disk, memory and processes</option>
        <option value="disk_only">the disk alone</option>
      </SelectField>
      <DurationField
        label="Deleted by itself after"
        placeholder="never"
        value={expires}
        error={errorOf('expiresInSeconds')}
        onChange={setExpires}
      />
    </FormDialog>
  )
}
