import type { ReactNode } from 'react'
import { TextField } from '../../../ui/field.tsx'
import type { DraftProps } from './build-options.tsx'
import { withRegistry } from './draft.ts'

export function ReferenceField({ draft, onChange }: DraftProps): ReactNode {
  const reference = draft.reference.trim()
  const whole = reference === '' ? undefined : withRegistry(reference)
  return (
    <TextField
      label="Image in a registry"
      maxLength={512}
      placeholder="python:3.12, or ghcr.io/team/tools:1"
      value={draft.reference}
      hint={
        whole === undefined || whole === reference
          ? 'The operator allows the registries. A tag is fetched once; a digest behind @ says exactly what is meant.'
          : `Fetches ${whole}.`
      }
      onChange={({ target }) => onChange({ reference: target.value })}
    />
  )
}
