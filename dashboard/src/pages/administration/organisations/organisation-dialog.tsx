import { useQueryClient } from '@tanstack/react-query'
import type { OrganisationInfo, OrganisationLimits } from 'atoll-sdk'
import { type ReactNode, useState } from 'react'
import { client } from '../../../account/client.ts'
import { type Commands, quoted } from '../../../ui/commands.tsx'
import { TextField } from '../../../ui/field.tsx'
import { FormDialog } from '../../../ui/form-dialog.tsx'
import { changedLimits, type LimitDraft, limitNames } from '../limits.ts'
import { LimitFields } from './limit-fields.tsx'

/** Makes an organisation, or changes the name and the limits of one. */
export function OrganisationDialog({
  organisation,
  onClose,
  onMade,
}: {
  organisation?: OrganisationInfo
  onClose: () => void
  onMade?: (organisation: OrganisationInfo) => void
}): ReactNode {
  const queries = useQueryClient()
  const [name, setName] = useState(organisation?.name ?? '')
  const [draft, setDraft] = useState<LimitDraft>(() => draftOf(organisation?.limits ?? {}))
  const limits = changedLimits(draft, organisation?.limits ?? {})
  const hasLimits = Object.keys(limits).length > 0
  const isRenamed = name.trim() !== organisation?.name
  const json = {
    ...(isRenamed ? { name: name.trim() } : {}),
    ...(hasLimits ? { limits } : {}),
  }
  const submit = async () => {
    const done =
      organisation === undefined
        ? await client.organisations.create({ ...json, name: name.trim() })
        : await client.organisations.update(organisation.id, json)
    await queries.invalidateQueries({ queryKey: ['organisations'] })
    onClose()
    onMade?.(done)
  }
  return (
    <FormDialog
      title={organisation === undefined ? 'New organisation' : `Change ${organisation.name}`}
      {...(organisation === undefined ? { description: 'It has no key yet: make its first one next.' } : {})}
      size="wide"
      isOpen
      onOpenChange={onClose}
      action={organisation === undefined ? 'Make the organisation' : 'Change the organisation'}
      isReady={name.trim() !== '' && (organisation === undefined || isRenamed || hasLimits)}
      onSubmit={submit}
      commands={commandsOf(organisation, name.trim(), limits, json)}
    >
      <TextField
        label="Name"
        required
        maxLength={128}
        autoFocus
        value={name}
        onChange={({ target }) => setName(target.value)}
        placeholder="Team Reef"
      />
      <LimitFields draft={draft} onChange={setDraft} defaults={organisation} />
    </FormDialog>
  )
}

function draftOf(limits: OrganisationLimits): LimitDraft {
  return Object.fromEntries(
    limitNames.flatMap((name) => {
      const value = limits[name]
      return value === undefined || value === null ? [] : [[name, String(value)]]
    }),
  )
}

function commandsOf(
  organisation: OrganisationInfo | undefined,
  name: string,
  limits: OrganisationLimits,
  json: object,
): Commands {
  const flags = Object.entries(limits).map(([limit, value]) => ` --limit ${limit}=${value ?? 'default'}`)
  if (organisation === undefined)
    return {
      cli: `atoll org create ${quoted(name || 'Team Reef')}${flags.join('')}`,
      curl: { path: '/api/orgs', json },
      sdk: `await client.organisations.create(${JSON.stringify(json)})`,
    }
  const renamed = name === organisation.name ? '' : ` --name ${quoted(name)}`
  return {
    cli: `atoll org set ${organisation.id}${renamed}${flags.join('')}`,
    curl: { method: 'PATCH', path: `/api/orgs/${organisation.id}`, json },
    sdk: `await client.organisations.update('${organisation.id}', ${JSON.stringify(json)})`,
  }
}
