import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { SecretInfo, SecretStoreInfo } from 'atoll-sdk'
import { Plus, RefreshCw, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { Badge } from '../../../ui/badge.tsx'
import { Button, IconButton } from '../../../ui/button.tsx'
import { type Column, DataTable } from '../../../ui/data-table.tsx'
import { Confirm } from '../../../ui/dialog.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { HostsText } from './hosts.tsx'
import { SetSecretDialog } from './set-secret-dialog.tsx'

/** The secrets of a store: how each is used, and never its value. */
export function SecretList({ store, onSet }: { store: SecretStoreInfo; onSet: () => void }): ReactNode {
  const queries = useQueryClient()
  const [sorting, setSorting] = useState([{ id: 'name', desc: false }])
  const [rotated, setRotated] = useState<SecretInfo>()
  const secrets = useQuery({
    queryKey: ['secrets', store.id],
    queryFn: ({ signal }) => client.secrets.list(store.id, { signal }),
  })
  const remove = async (name: string) => {
    await client.secrets.delete(store.id, name)
    await queries.invalidateQueries({ queryKey: ['secrets', store.id] })
  }
  const columns: readonly Column<SecretInfo>[] = [
    {
      id: 'name',
      header: 'Name',
      width: 'minmax(8rem,2fr)',
      sortBy: ({ name }) => name,
      cell: ({ name }) => (
        <span className="font-mono text-[13px]" title={name}>
          {name}
        </span>
      ),
    },
    {
      id: 'hosts',
      header: 'Sent to',
      width: 'minmax(0,3fr)',
      isWideOnly: true,
      cell: ({ allowedHosts }) => <HostsText hosts={allowedHosts} none="hosts that the egress lists" />,
    },
    {
      id: 'use',
      header: 'Used in',
      width: 'minmax(0,2fr)',
      isWideOnly: true,
      cell: ({ in: places, sign }) => (sign === undefined ? places.join(', ') : <Badge>signs requests</Badge>),
    },
    {
      id: 'placeholder',
      header: 'Placeholder',
      width: 'minmax(0,1.5fr)',
      isWideOnly: true,
      cell: ({ placeholder }) => (
        <span className="font-mono text-[13px]" title={placeholder}>
          {placeholder}
        </span>
      ),
    },
    {
      id: 'set',
      header: 'Value set',
      width: '8.5rem',
      sortBy: ({ updatedAt }) => updatedAt,
      cell: ({ updatedAt }) => <TimeAgo time={updatedAt} />,
    },
    {
      id: 'acts',
      header: 'Acts',
      isHeaderHidden: true,
      width: '5.5rem',
      cell: (secret) => (
        <span className="flex justify-end">
          <IconButton
            label={`Set another value for ${secret.name}`}
            icon={<RefreshCw className="size-4" />}
            onClick={() => setRotated(secret)}
          />
          <Confirm
            trigger={<IconButton label={`Delete ${secret.name}`} icon={<Trash2 className="size-4" />} />}
            title={`Delete ${secret.name}?`}
            action="Delete the secret"
            onConfirm={() => remove(secret.name)}
          >
            Its value is gone for good. Sandboxes that run with the store lose it from their next request on.
          </Confirm>
        </span>
      ),
    },
  ]
  if (secrets.isPending) return <Loading label="Loading the secrets" />
  if (secrets.isError) return <ErrorNote error={secrets.error} onRetry={() => void secrets.refetch()} />
  return (
    <>
      {secrets.data.length === 0 ? (
        <EmptyState
          title="No secrets in this store"
          actions={
            <Button onClick={onSet}>
              <Plus aria-hidden="true" className="size-4" /> Set a secret
            </Button>
          }
        >
          A secret has a name, a value, and the hosts to which the value is sent.
        </EmptyState>
      ) : (
        <DataTable
          label={`Secrets of ${store.name}`}
          rows={secrets.data}
          columns={columns}
          rowId={({ id }) => id}
          sorting={sorting}
          onSort={setSorting}
        />
      )}
      {rotated !== undefined && (
        <SetSecretDialog store={store} secret={rotated} onClose={() => setRotated(undefined)} />
      )}
    </>
  )
}
