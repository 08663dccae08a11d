import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { CreatedKeyInfo, NewKey } from 'atoll-sdk'
import { type ReactNode, useState } from 'react'
import { type Scope, useAccount } from '../../../account/account.tsx'
import { serverNow } from '../../../lib/clock.ts'
import { formatCount } from '../../../lib/format.ts'
import { type Commands, quoted } from '../../../ui/commands.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { TextField } from '../../../ui/field.tsx'
import { FormDialog } from '../../../ui/form-dialog.tsx'
import { ExpiryField, expiresAtOf, type Expiry, expiryDefault } from './expiry-field.tsx'
import { MadeKey } from './made-key.tsx'
import type { KeyPlace } from './place.ts'
import { ScopesField } from './scopes-field.tsx'
import { allScopes, wholeScopes } from './scope-texts.ts'

const prefixPattern = /^[a-z0-9][a-z0-9-]{0,31}$/

/** Makes a key and shows its secret. What the key of this page does not have itself is not offered. */
export function KeyDialog({ place, onClose }: { place: KeyPlace; onClose: () => void }): ReactNode {
  const queries = useQueryClient()
  const account = useAccount()
  const isOperator = account?.isOperator === true
  const own = isOperator ? undefined : account?.key
  const list = useQuery({ queryKey: place.queryKey, queryFn: ({ signal }) => place.keys.list({ signal }) })
  const ownSandboxesMax = list.data?.find(({ id }) => id === place.ownId)?.sandboxesMax ?? undefined
  const ownScopes = own?.scopes ?? undefined
  const ownPrefix = own?.namePrefix ?? ''
  const ownEnd = own?.expiresAt ?? undefined
  const [name, setName] = useState('')
  const [isAll, setAll] = useState(ownScopes === undefined)
  const [scopes, setScopes] = useState<readonly Scope[]>(ownScopes ?? [])
  const [expiry, setExpiry] = useState<Expiry>(() => expiryDefault(ownEnd))
  const [namePrefix, setNamePrefix] = useState(ownPrefix)
  const [sandboxesMax, setSandboxesMax] = useState(ownSandboxesMax === undefined ? '' : String(ownSandboxesMax))
  const [made, setMade] = useState<CreatedKeyInfo>()
  const offered = allScopes.filter(
    (scope) => (ownScopes?.includes(scope) ?? true) && (namePrefix === '' || !wholeScopes.has(scope)),
  )
  const chosen = scopes.filter((scope) => offered.includes(scope))
  const expiresAt = expiresAtOf(expiry, serverNow(), ownEnd)
  const input = (end: string | undefined): NewKey => ({
    ...(name.trim() === '' ? {} : { name: name.trim() }),
    ...(isAll ? {} : { scopes: [...chosen] }),
    ...(end === undefined ? {} : { expiresAt: end }),
    ...(namePrefix === '' ? {} : { namePrefix }),
    ...(sandboxesMax === '' ? {} : { sandboxesMax: Number(sandboxesMax) }),
  })
  const prefixFault =
    namePrefix !== '' && !prefixPattern.test(namePrefix)
      ? 'Write 1 to 32 of a–z, 0–9 and -, the first no -.'
      : namePrefix.startsWith(ownPrefix)
        ? undefined
        : `It must begin with ${ownPrefix}, as that of this key.`
  const isReady =
    (isAll || chosen.length > 0) && prefixFault === undefined && (expiry.choice !== 'own' || expiresAt !== undefined)
  const submit = async () => {
    // Counted from the click on, and not from the opening of the dialog.
    setMade(await place.keys.create(input(expiresAtOf(expiry, serverNow(), ownEnd))))
    await queries.invalidateQueries({ queryKey: place.queryKey })
  }
  if (made !== undefined)
    return (
      <Dialog title="The key is made" size="wide" isOpen isKept onOpenChange={onClose}>
        <MadeKey made={made} onClose={onClose} />
      </Dialog>
    )
  return (
    <FormDialog
      title="New key"
      isOpen
      onOpenChange={onClose}
      action="Make the key"
      isReady={isReady}
      onSubmit={submit}
      commands={commandsOf(place, input(expiresAt))}
    >
      <TextField
        label="Name"
        autoFocus
        maxLength={128}
        placeholder="ci"
        value={name}
        onChange={({ target }) => setName(target.value)}
        hint="For people: what it is for, or who has it."
      />
      <ScopesField
        offered={offered}
        canHaveAll={ownScopes === undefined}
        isAll={isAll}
        onAll={setAll}
        chosen={chosen}
        onChoose={setScopes}
        isWithoutWhole={namePrefix !== ''}
      />
      <ExpiryField expiry={expiry} onChange={setExpiry} ownEnd={ownEnd} />
      <TextField
        label="Name prefix"
        maxLength={32}
        placeholder="ci-"
        value={namePrefix}
        onChange={({ target }) => setNamePrefix(target.value)}
        error={prefixFault}
        hint={`It sees and makes only what has a name that begins so, and what it has made itself.${ownPrefix === '' ? ' Empty: everything.' : ''}`}
      />
      <TextField
        label="Sandboxes at most"
        type="number"
        min={0}
        max={ownSandboxesMax ?? 1_000_000}
        step={1}
        required={ownSandboxesMax !== undefined}
        value={sandboxesMax}
        onChange={({ target }) => setSandboxesMax(target.value)}
        hint={
          ownSandboxesMax === undefined
            ? 'Those of it that are not stopped, hibernated ones too. Empty: no bound of its own.'
            : `At most ${formatCount(ownSandboxesMax)}, as this key has.`
        }
      />
    </FormDialog>
  )
}

function commandsOf({ path, organisation }: KeyPlace, json: NewKey): Commands {
  const { name, scopes = [], expiresAt, namePrefix, sandboxesMax } = json
  const hours = expiresAt === undefined ? undefined : Math.ceil((Date.parse(expiresAt) - serverNow()) / 3_600_000)
  const flags = [
    ...(organisation === undefined ? [] : [`--org ${organisation}`]),
    ...(name === undefined ? [] : [`--name ${quoted(name)}`]),
    ...scopes.map((scope) => `--scope ${scope}`),
    ...(hours === undefined ? [] : [`--expires ${hours}h`]),
    ...(namePrefix === undefined ? [] : [`--name-prefix ${quoted(namePrefix)}`]),
    ...(sandboxesMax === undefined ? [] : [`--sandboxes-max ${sandboxesMax}`]),
  ]
  return {
    cli: ['atoll key create', ...flags].join(' '),
    curl: { method: 'POST', path, json },
    ...(organisation === undefined ? { sdk: `await client.keys.create(${JSON.stringify(json)})` } : {}),
  }
}
