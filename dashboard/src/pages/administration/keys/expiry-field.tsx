import type { ReactNode } from 'react'
import { formatTime } from '../../../lib/format.ts'
import { SelectField, TextField } from '../../../ui/field.tsx'
import { serverNow } from '../../../lib/clock.ts'

const lives = { '1h': 1, '1d': 24, '7d': 168, '30d': 720, '90d': 2160, '1y': 8760 } as const
const labels: Record<keyof typeof lives, string> = {
  '1h': 'In an hour',
  '1d': 'In a day',
  '7d': 'In 7 days',
  '30d': 'In 30 days',
  '90d': 'In 90 days',
  '1y': 'In a year',
}
const hourMs = 3_600_000

/** `never`: with the maker, if that ends. `own`: at the time of the field. */
export interface Expiry {
  choice: 'never' | 'own' | keyof typeof lives
  /** As the field has it, in the reader's zone. */
  time: string
}

export function expiryDefault(ownEnd: string | undefined): Expiry {
  return { choice: ownEnd === undefined ? '90d' : 'never', time: '' }
}

/** When the key ends, as ISO 8601; undefined: never, or no time is given yet. */
export function expiresAtOf({ choice, time }: Expiry, nowMs: number, ownEnd: string | undefined): string | undefined {
  if (choice === 'never') return ownEnd
  const ms = choice === 'own' ? Date.parse(time) : nowMs + lives[choice] * hourMs
  return Number.isNaN(ms) ? undefined : new Date(ms).toISOString()
}

/** The end of a new key, which is not after that of its maker. */
export function ExpiryField({
  expiry,
  onChange,
  ownEnd,
}: {
  expiry: Expiry
  onChange: (expiry: Expiry) => void
  ownEnd: string | undefined
}): ReactNode {
  const leftMs = ownEnd === undefined ? Infinity : Date.parse(ownEnd) - serverNow()
  const offered = (Object.keys(lives) as (keyof typeof lives)[]).filter((life) => lives[life] * hourMs <= leftMs)
  return (
    <div className="flex flex-col gap-2">
      <SelectField
        label="Ends"
        value={expiry.choice}
        onChange={({ target }) => onChange({ ...expiry, choice: target.value as Expiry['choice'] })}
        {...(ownEnd === undefined ? {} : { hint: `Not after ${formatTime(ownEnd)}, when this key ends.` })}
      >
        {offered.map((life) => (
          <option key={life} value={life}>
            {labels[life]}
          </option>
        ))}
        <option value="own">At a time of your choice</option>
        <option value="never">{ownEnd === undefined ? 'Never' : 'With this key'}</option>
      </SelectField>
      {expiry.choice === 'own' && (
        <TextField
          label="Time of its end"
          type="datetime-local"
          required
          value={expiry.time}
          onChange={({ target }) => onChange({ ...expiry, time: target.value })}
          hint={`In your time zone, ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`}
        />
      )}
    </div>
  )
}
