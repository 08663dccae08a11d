import { useQuery } from '@tanstack/react-query'
import type { ListedCheckpointInfo, TemplateInfo } from 'atoll-sdk'
import { useId, type ChangeEvent, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { client } from '../../account/client.ts'
import { SelectField, TextField } from '../../ui/field.tsx'
import type { NewSandbox, NewSandboxField } from './new-sandbox.ts'

/** Checkpoints that are proposed, the newest; any other one is typed. */
const proposedMax = 200

/** What the sandbox starts from: an image, or a checkpoint with its processes where they were. */
export function StartField({
  form,
  onChange,
  refusal,
}: {
  form: NewSandbox
  onChange: (change: Partial<NewSandbox>) => void
  refusal: { field: NewSandboxField; reason: string } | undefined
}): ReactNode {
  const name = useId()
  const errorOf = (field: NewSandboxField) => (refusal?.field === field ? refusal.reason : undefined)
  return (
    <fieldset className="flex flex-col gap-2">
      <legend className="mb-1 font-medium">Starts from</legend>
      <div className="flex gap-4">
        {(['image', 'checkpoint'] as const).map((begin) => (
          <label key={begin} className="flex items-center gap-2">
            <input
              type="radio"
              name={name}
              className="size-4 accent-accent"
              checked={form.begin === begin}
              onChange={() => onChange({ begin })}
            />
            {begin === 'image' ? 'an image' : 'a checkpoint'}
          </label>
        ))}
      </div>
      {form.begin === 'image' ? (
        <ImageField
          value={form.template}
          error={errorOf('template')}
          onChange={({ target }) => onChange({ template: target.value })}
        />
      ) : (
        <CheckpointField
          value={form.checkpoint}
          error={errorOf('checkpoint')}
          onChange={({ target }) => onChange({ checkpoint: target.value })}
        />
      )}
    </fieldset>
  )
}

interface ChoiceProps {
  value: string
  error: string | undefined
  onChange: (event: ChangeEvent<HTMLInputElement>) => void
}

function ImageField({ value, error, onChange }: ChoiceProps): ReactNode {
  const list = useId()
  const may = useMay()
  const { data = [] } = useQuery({
    queryKey: ['images', 'templates'],
    enabled: may('image'),
    queryFn: async ({ signal }) => await client.json<TemplateInfo[]>('GET', '/api/templates', { signal }),
  })
  const names = new Set(['base', ...data.flatMap(({ name, status }) => (status === 'error' ? [] : [name]))])
  return (
    <>
      <TextField label="Image" placeholder="base" list={list} value={value} error={error} onChange={onChange} />
      <datalist id={list}>
        {[...names].map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
    </>
  )
}

function CheckpointField({ value, error, onChange }: ChoiceProps): ReactNode {
  const list = useId()
  const { data = [] } = useQuery({
    queryKey: ['checkpoints', 'newest'],
    queryFn: async ({ signal }) =>
      (await client.page<ListedCheckpointInfo[]>('/api/checkpoints', { query: { limit: proposedMax }, signal })).items,
  })
  const ready = data.filter(({ status }) => status === 'ready')
  return (
    <>
      <TextField
        label="Checkpoint"
        placeholder="cp-… or SANDBOX/NAME"
        hint="Its disk, and its processes where it has memory."
        required
        list={list}
        value={value}
        error={error}
        onChange={onChange}
      />
      <datalist id={list}>
        {ready.map(({ id, name, sandboxName, sandboxId }) => (
          <option key={id} value={id}>
            {`${sandboxName ?? sandboxId}/${name}`}
          </option>
        ))}
      </datalist>
    </>
  )
}

export function SecretStoreField({
  value,
  error,
  onChange,
}: {
  value: string
  error: string | undefined
  onChange: (event: { target: { value: string } }) => void
}): ReactNode {
  const may = useMay()
  const mayRead = may('secret')
  const { data = [] } = useQuery({
    queryKey: ['secret-stores'],
    enabled: mayRead,
    queryFn: async ({ signal }) => await client.secrets.listStores({ signal }),
  })
  if (!mayRead)
    return <TextField label="Secret store" placeholder="none" value={value} error={error} onChange={onChange} />
  return (
    <SelectField label="Secret store" value={value} error={error} onChange={onChange}>
      <option value="">none</option>
      {data.map(({ id, name }) => (
        <option key={id} value={name}>
          {name}
        </option>
      ))}
    </SelectField>
  )
}
