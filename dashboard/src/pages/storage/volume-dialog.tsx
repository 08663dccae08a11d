import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useId, useState, type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { formatBytes } from '../../lib/format.ts'
import { literalOf } from '../../sandboxes/literal.ts'
import { quoted } from '../../ui/commands.tsx'
import { TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { volumesQuery } from './volume-query.ts'

const sizeMbMin = 16
const sizeMbMax = 1_048_576
const sizeMbDefault = 10_240
/** Names that the field of the source proposes. */
const proposedMax = 200

/** Makes a volume, empty or as a clone, and opens its page. `from`: the volume, or `volume@snapshot`, that is proposed as the source. */
export function VolumeDialog({ from, onClose }: { from: string | undefined; onClose: () => void }): ReactNode {
  const queries = useQueryClient()
  const navigate = useNavigate()
  const listId = useId()
  const { data: volumes = [] } = useQuery(volumesQuery)
  const [name, setName] = useState('')
  const [sizeText, setSizeText] = useState('')
  const [source, setSource] = useState(from ?? '')
  const sizeMB = sizeText.trim() === '' ? undefined : Number(sizeText)
  const isSize = sizeMB === undefined || (Number.isInteger(sizeMB) && sizeMB >= sizeMbMin && sizeMB <= sizeMbMax)
  const json = {
    ...(sizeMB === undefined ? {} : { sizeMB }),
    ...(source.trim() === '' ? {} : { from: source.trim() }),
  }
  const shown = name.trim() || 'data'
  const submit = async () => {
    const made = await client.volumes.create(name.trim(), json)
    await queries.invalidateQueries({ queryKey: ['volumes'] })
    await navigate({ to: '/volumes/$volume', params: { volume: made.name } })
  }
  return (
    <FormDialog
      title={from === undefined ? 'New volume' : `Clone ${from}`}
      isOpen
      onOpenChange={onClose}
      action={from === undefined ? 'Create' : 'Clone'}
      isReady={name.trim() !== '' && isSize}
      onSubmit={submit}
      commands={{
        cli: `atoll volume create ${quoted(shown)}${sizeMB === undefined ? '' : ` --size ${sizeMB}`}${json.from === undefined ? '' : ` --from ${quoted(json.from)}`}`,
        curl: { method: 'POST', path: '/api/volumes', json: { name: shown, ...json } },
        sdk: `await client.volumes.create(${literalOf(shown)}${Object.keys(json).length === 0 ? '' : `, ${literalOf(json)}`})`,
      }}
    >
      <TextField
        label="Name"
        autoFocus
        required
        maxLength={63}
        placeholder="data"
        value={name}
        hint="Small letters, digits, dots, dashes and underscores."
        onChange={({ target }) => setName(target.value)}
      />
      <TextField
        label="Size in MiB"
        type="number"
        min={sizeMbMin}
        max={sizeMbMax}
        placeholder={source.trim() === '' ? String(sizeMbDefault) : 'as its source'}
        value={sizeText}
        error={isSize ? undefined : `A whole number from ${sizeMbMin} to ${sizeMbMax}.`}
        hint={
          sizeMB === undefined
            ? 'What it may hold. It takes no more of the disk than it holds.'
            : formatBytes(sizeMB * 2 ** 20)
        }
        onChange={({ target }) => setSizeText(target.value)}
      />
      <TextField
        label="Begins as a clone of"
        list={listId}
        placeholder="nothing: it is empty"
        value={source}
        hint="A volume, or volume@snapshot. A clone takes the same time whatever it holds."
        onChange={({ target }) => setSource(target.value)}
      />
      <datalist id={listId}>
        {volumes.slice(0, proposedMax).map((volume) => (
          <option key={volume.id} value={volume.name} />
        ))}
      </datalist>
    </FormDialog>
  )
}
