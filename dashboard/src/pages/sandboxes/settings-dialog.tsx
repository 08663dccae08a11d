import { useQueryClient } from '@tanstack/react-query'
import type { SandboxInfo, UpdateSandboxOptions } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { defined } from '../../lib/search.ts'
import { nameOf, sandboxKey, sandboxOf } from '../../sandboxes/sandbox.ts'
import { useCollection } from '../../sandboxes/use-sandboxes.ts'
import { SelectField, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { updateCommands } from './commands.ts'
import { DurationField } from './duration-field.tsx'
import { refusalOf } from './new-sandbox.ts'

/** Changes the name of a sandbox and what ends it. What is left as it is is not sent. */
export function SettingsDialog({ info, onClose }: { info: SandboxInfo; onClose: () => void }): ReactNode {
  const [name, setName] = useState(info.name ?? '')
  const [ttlSeconds, setTtlSeconds] = useState(String(info.timeout))
  const [onIdle, setOnIdle] = useState(info.onIdle)
  const [maxAgeSeconds, setMaxAgeSeconds] = useState(String(info.maxAgeSeconds))
  const [refusal, setRefusal] = useState<ReturnType<typeof refusalOf>>()
  const queries = useQueryClient()
  const collection = useCollection()
  const errorOf = (field: string) => (refusal?.field === field ? refusal.reason : undefined)
  const change = defined({
    name: name.trim() === (info.name ?? '') ? undefined : name.trim() === '' ? null : name.trim(),
    ttlSeconds: changedOf(ttlSeconds, info.timeout),
    onIdle: onIdle === info.onIdle ? undefined : onIdle,
    maxAgeSeconds: changedOf(maxAgeSeconds, info.maxAgeSeconds),
  }) satisfies UpdateSandboxOptions
  const submit = async () => {
    try {
      const changed = await sandboxOf(info).update(change)
      // No event tells of it.
      queries.setQueryData(sandboxKey(info.sandboxID), changed)
      collection.put(changed)
      onClose()
    } catch (error) {
      const refused = refusalOf(error)
      if (refused === undefined) throw error
      setRefusal(refused)
    }
  }
  return (
    <FormDialog
      title={`Name and ends of ${nameOf(info)}`}
      isOpen
      onOpenChange={onClose}
      action="Save"
      isReady={Object.keys(change).length > 0}
      onSubmit={submit}
      commands={updateCommands(nameOf(info), change)}
    >
      <TextField
        label="Name"
        placeholder="none"
        hint="a–z, 0–9 and -. Links with the old name lead nowhere then."
        value={name}
        error={errorOf('name')}
        onChange={({ target }) => setName(target.value)}
      />
      <DurationField
        label="Idle timeout"
        hint="0: never"
        value={ttlSeconds}
        error={errorOf('ttlSeconds')}
        onChange={setTtlSeconds}
      />
      <SelectField
        label="When it is idle"
        value={onIdle}
        error={errorOf('onIdle')}
        onChange={({ target }) => setOnIdle(target.value as SandboxInfo['onIdle'])}
      >
        <option value="hibernate">hibernate, keep all</option>
        <option value="stop">delete it</option>
      </SelectField>
      <DurationField
        label="Maximum age"
        hint="Counted from its creation; then it is deleted. 0: never"
        value={maxAgeSeconds}
        error={errorOf('maxAgeSeconds')}
        onChange={setMaxAgeSeconds}
      />
    </FormDialog>
  )
}

function changedOf(text: string, known: number): number | undefined {
  return text === '' || Number(text) === known ? undefined : Number(text)
}
