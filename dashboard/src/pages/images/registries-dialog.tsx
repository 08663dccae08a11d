import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { RegistryInfo } from 'atoll-sdk'
import { Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { CommandHint, quoted } from '../../ui/commands.tsx'
import { Confirm, Dialog } from '../../ui/dialog.tsx'
import { TextField } from '../../ui/field.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { useSubmit } from '../../ui/use-submit.ts'

/** One for each registry that the operator allows, so there are few. */
const queryKey = ['images', 'registries']

/** The credentials with which the organisation fetches images. */
export function RegistriesDialog({ onClose }: { onClose: () => void }): ReactNode {
  const query = useQuery({ queryKey, queryFn: ({ signal }) => client.registries.list({ signal }) })
  return (
    <Dialog
      title="Registries"
      description="Credentials of the organisation for fetching images. Passwords are kept sealed, and no answer has them."
      isOpen
      onOpenChange={onClose}
    >
      <div className="flex flex-col gap-4">
        {query.isError && <ErrorNote error={query.error} onRetry={() => void query.refetch()} />}
        {query.isPending && <Loading label="Loading the registries" rows={2} />}
        {query.data?.length === 0 && <p className="text-soft">No credentials yet. Public images need none.</p>}
        {query.data !== undefined && query.data.length > 0 && (
          <ul className="divide-y rounded-md border">
            {query.data.map((registry) => (
              <RegistryRow key={registry.host} registry={registry} />
            ))}
          </ul>
        )}
        <LoginForm />
      </div>
    </Dialog>
  )
}

function RegistryRow({ registry: { host, username, updatedAt } }: { registry: RegistryInfo }): ReactNode {
  const queries = useQueryClient()
  return (
    <li className="flex items-center gap-2 py-1.5 pr-1.5 pl-3">
      <span className="min-w-0 flex-1">
        <span className="block truncate font-medium">{host}</span>
        <span className="block truncate text-[13px] text-soft">
          {username}, since <TimeAgo time={updatedAt} />
        </span>
      </span>
      <Confirm
        trigger={<IconButton label={`Remove the credentials of ${host}`} icon={<Trash2 className="size-4" />} />}
        title={`Remove the credentials of ${host}?`}
        action="Remove them"
        onConfirm={async () => {
          await client.registries.logout(host)
          await queries.invalidateQueries({ queryKey })
        }}
      >
        <p>Images that were fetched with them stay. What only they may read cannot be fetched any more.</p>
      </Confirm>
    </li>
  )
}

function LoginForm(): ReactNode {
  const queries = useQueryClient()
  const [host, setHost] = useState('')
  const [username, setUsername] = useState('')
  const [password, setPassword] = useState('')
  const { submit, isBusy, error } = useSubmit(async () => {
    await client.registries.login(host.trim(), { username, password })
    for (const clear of [setHost, setUsername, setPassword]) clear('')
    await queries.invalidateQueries({ queryKey })
  })
  return (
    <form onSubmit={submit} className="flex flex-col gap-3">
      <TextField
        label="Registry"
        required
        placeholder="ghcr.io"
        value={host}
        onChange={({ target }) => setHost(target.value)}
      />
      <div className="grid grid-cols-1 gap-3 sm:grid-cols-2">
        <TextField label="User" required value={username} onChange={({ target }) => setUsername(target.value)} />
        <TextField
          label="Password or token"
          type="password"
          autoComplete="new-password"
          required
          value={password}
          onChange={({ target }) => setPassword(target.value)}
        />
      </div>
      {error !== undefined && <ErrorNote error={error} />}
      <div className="flex justify-end gap-2">
        <CommandHint
          commands={{
            cli: `atoll registry login ${quoted(host.trim() || 'ghcr.io')} -u ${quoted(username || 'robot')} --password-stdin < token`,
            sdk: `await client.registries.login('${host.trim() || 'ghcr.io'}', { username: '${username || 'robot'}', password })`,
          }}
        />
        <Button type="submit" isBusy={isBusy}>
          Store the credentials
        </Button>
      </div>
    </form>
  )
}
