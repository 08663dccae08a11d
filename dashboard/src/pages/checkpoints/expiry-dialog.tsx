import { useQueryClient } from '@tanstack/react-query'
import type { ListedCheckpointInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { serverNow } from '../../lib/clock.ts'
import { formatTime } from '../../lib/format.ts'
import { SelectField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { refreshCheckpoints, setExpiry } from './checkpoint.ts'

const choices: readonly (readonly [seconds: number, label: string])[] = [
  [3600, 'in an hour'],
  [86_400, 'in a day'],
  [7 * 86_400, 'in a week'],
  [30 * 86_400, 'in 30 days'],
  [365 * 86_400, 'in a year'],
]
const never = 'never'

/** Sets when a checkpoint is deleted by itself. */
export function ExpiryDialog({
  checkpoint: { id, expiresAt },
  onClose,
}: {
  checkpoint: Pick<ListedCheckpointInfo, 'id' | 'expiresAt'>
  onClose: () => void
}): ReactNode {
  const queries = useQueryClient()
  const [choice, setChoice] = useState(expiresAt === undefined ? '86400' : never)
  const seconds = choice === never ? null : Number(choice)
  const submit = async () => {
    await setExpiry(id, seconds)
    await refreshCheckpoints(queries)
    onClose()
  }
  return (
    <FormDialog
      title="Expiry of the checkpoint"
      description={
        expiresAt === undefined ? 'It stays until it is deleted.' : `It is deleted at ${formatTime(expiresAt)}.`
      }
      isOpen
      onOpenChange={onClose}
      action="Set"
      onSubmit={submit}
      commands={{
        ...(seconds === null ? {} : { cli: `atoll checkpoint expire ${id} ${seconds}` }),
        curl: { method: 'PATCH', path: `/api/checkpoints/${id}`, json: { expiresInSeconds: seconds } },
        sdk: `await checkpoint.setExpiry(${String(seconds)})`,
      }}
    >
      <SelectField
        label="Delete it"
        value={choice}
        onChange={({ target }) => setChoice(target.value)}
        hint={
          seconds === null
            ? 'It stays until somebody deletes it.'
            : `At ${formatTime(new Date(serverNow() + seconds * 1000))}, or later while a sandbox is being started from it.`
        }
      >
        {choices.map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
        <option value={never}>never</option>
      </SelectField>
    </FormDialog>
  )
}
