import { useQuery } from '@tanstack/react-query'
import type { ListedCheckpointInfo } from 'atoll-sdk'
import { Plus, X } from 'lucide-react'
import { useId, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { client } from '../../../account/client.ts'
import { Button, IconButton } from '../../../ui/button.tsx'
import { inputLook, SelectField, TextField } from '../../../ui/field.tsx'
import { SecretStoreField } from '../../sandboxes/start-fields.tsx'
import type { MountForm, NewSessionForm } from './new-session.ts'

/** Checkpoints that are proposed, the newest; any other one is typed. */
const proposedMax = 100

interface SandboxFieldsProps {
  form: NewSessionForm
  /** Why fields were refused. */
  fields: Readonly<Record<string, string>>
  onChange: (change: Partial<NewSessionForm>) => void
}

/** What the sandbox of a session begins with, and what is kept of it. */
export function SandboxFields({ form, fields, onChange }: SandboxFieldsProps): ReactNode {
  return (
    <>
      <div className="grid gap-4 sm:grid-cols-2">
        <CheckpointField
          value={form.checkpointId}
          error={fields['checkpoint_id']}
          onChange={(checkpointId) => onChange({ checkpointId })}
        />
        <SelectField
          label="Kept after each turn"
          hint="What a turn can be gone back to with."
          value={form.checkpoints}
          onChange={({ target }) => onChange({ checkpoints: target.value as NewSessionForm['checkpoints'] })}
        >
          <option value="">as the server keeps it</option>
          <option value="turn">disk and memory</option>
          <option value="disk">the disk</option>
          <option value="none">nothing</option>
        </SelectField>
      </div>
      <SecretStoreField
        value={form.secretStore}
        error={fields['secret_store']}
        onChange={({ target }) => onChange({ secretStore: target.value })}
      />
      <VolumesField mounts={form.volumes} error={fields['volumes']} onChange={(volumes) => onChange({ volumes })} />
    </>
  )
}

interface CheckpointFieldProps {
  value: string
  error: string | undefined
  onChange: (value: string) => void
}

function CheckpointField({ value, error, onChange }: CheckpointFieldProps): ReactNode {
  const list = useId()
  const may = useMay()
  const { data = [] } = useQuery({
    queryKey: ['checkpoints', 'proposed'],
    enabled: may('sandbox:read'),
    queryFn: async ({ signal }) =>
      (await client.page<ListedCheckpointInfo[]>('/api/checkpoints', { query: { limit: proposedMax }, signal })).items,
  })
  return (
    <>
      <TextField
        label="Begin from a checkpoint"
        hint="Empty: an empty sandbox."
        placeholder="cp-… or SANDBOX/NAME"
        list={list}
        value={value}
        error={error}
        onChange={({ target }) => onChange(target.value)}
      />
      <datalist id={list}>
        {data.map(({ id, name, sandboxName, sandboxId }) => (
          <option key={id} value={id}>
            {`${sandboxName ?? sandboxId}/${name}`}
          </option>
        ))}
      </datalist>
    </>
  )
}

interface VolumesFieldProps {
  mounts: readonly MountForm[]
  error: string | undefined
  onChange: (mounts: readonly MountForm[]) => void
}

function VolumesField({ mounts, error, onChange }: VolumesFieldProps): ReactNode {
  const list = useId()
  const note = useId()
  const may = useMay()
  const { data = [] } = useQuery({
    queryKey: ['volumes', 'names'],
    enabled: may('volume') && mounts.length > 0,
    queryFn: async ({ signal }) => (await client.volumes.list({ signal })).map(({ name }) => name),
  })
  const change = (index: number, part: Partial<MountForm>) =>
    onChange(mounts.map((mount, at) => (at === index ? { ...mount, ...part } : mount)))
  return (
    <fieldset className="flex min-w-0 flex-col gap-2" aria-describedby={error === undefined ? undefined : note}>
      <legend className="mb-1 font-medium">Volumes</legend>
      {mounts.map(({ name, path, readOnly }, index) => (
        <div key={index} className="flex flex-wrap items-center gap-2">
          <input
            aria-label={`Name of volume ${index + 1}`}
            placeholder="name"
            list={list}
            autoComplete="off"
            value={name}
            onChange={({ target }) => change(index, { name: target.value })}
            className={`${inputLook} min-w-28 flex-1`}
          />
          <input
            aria-label={`Folder of volume ${index + 1}`}
            placeholder="/data"
            autoComplete="off"
            value={path}
            onChange={({ target }) => change(index, { path: target.value })}
            className={`${inputLook} min-w-28 flex-1 font-mono`}
          />
          <label className="flex items-center gap-1.5">
            <input
              type="checkbox"
              className="size-4 accent-accent"
              checked={readOnly}
              onChange={({ target }) => change(index, { readOnly: target.checked })}
            />
            read only
          </label>
          <IconButton
            label={`Without volume ${index + 1}`}
            icon={<X aria-hidden="true" className="size-4" />}
            onClick={() => onChange(mounts.filter((_mount, at) => at !== index))}
          />
        </div>
      ))}
      <datalist id={list}>
        {data.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      {error !== undefined && (
        <p id={note} className="text-[13px] text-bad">
          {error}
        </p>
      )}
      <Button
        size="small"
        className="self-start"
        onClick={() => onChange([...mounts, { name: '', path: '', readOnly: false }])}
      >
        <Plus aria-hidden="true" className="size-4" /> Add a volume
      </Button>
    </fieldset>
  )
}
