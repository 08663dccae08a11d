import type { ReactNode } from 'react'
import { TextField } from '../../ui/field.tsx'

/** The name of a new session, in the form that the API takes. */
export function NameField({ value, onChange }: { value: string; onChange: (value: string) => void }): ReactNode {
  return (
    <TextField
      label="Name"
      hint="Lower case letters, digits and hyphens. May be left out."
      value={value}
      maxLength={63}
      pattern="[a-z0-9][a-z0-9\-]*"
      onChange={({ target }) => onChange(target.value)}
    />
  )
}
