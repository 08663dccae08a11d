import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { Plus } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import type { SecretStoreInfo } from 'atoll-sdk'
import { client } from '../../../account/client.ts'
import { Badge } from '../../../ui/badge.tsx'
import { Button } from '../../../ui/button.tsx'
import { CommandLines } from '../../../ui/commands.tsx'
import { type Column, DataTable } from '../../../ui/data-table.tsx'
import { Page } from '../../../ui/page.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { HostsText } from './hosts.tsx'
import { StoreDialog } from './store-dialog.tsx'

const columns: readonly Column<SecretStoreInfo>[] = [
  {
    id: 'name',
    header: 'Name',
    width: 'minmax(9rem,2fr)',
    sortBy: ({ name }) => name,
    cell: ({ name, isDefault }) => (
      <span className="flex items-center gap-2">
        <span className="truncate font-medium" title={name}>
          {name}
        </span>
        {isDefault && <Badge title="Every sandbox of the organisation has it">default</Badge>}
      </span>
    ),
  },
  {
    id: 'hosts',
    header: 'Reaches',
    width: 'minmax(0,3fr)',
    isWideOnly: true,
    cell: ({ egressAllowlist }) => <HostsText hosts={egressAllowlist} none="no restriction" />,
  },
  {
    id: 'changed',
    header: 'Changed',
    width: '8.5rem',
    sortBy: ({ updatedAt }) => updatedAt,
    cell: ({ updatedAt }) => <TimeAgo time={updatedAt} />,
  },
]

export function SecretStores(): ReactNode {
  const navigate = useNavigate()
  const [isMaking, setMaking] = useState(false)
  const [sorting, setSorting] = useState([{ id: 'name', desc: false }])
  const stores = useQuery({
    queryKey: ['secret-stores'],
    queryFn: ({ signal }) => client.secrets.listStores({ signal }),
  })
  const make = (
    <Button look="primary" onClick={() => setMaking(true)}>
      <Plus aria-hidden="true" className="size-4" /> New store
    </Button>
  )
  return (
    <Page
      title="Secrets"
      isFilling
      actions={make}
      lead="A sandbox uses a secret and never has it: inside stands a placeholder, and the value is put in its place on the way to the hosts of the secret."
    >
      {stores.isPending ? (
        <Loading label="Loading the stores" />
      ) : stores.isError ? (
        <ErrorNote error={stores.error} onRetry={() => void stores.refetch()} />
      ) : stores.data.length === 0 ? (
        <EmptyState title="No secret stores yet" actions={make}>
          <p className="mb-3">A store is a named set of secrets. A sandbox is given one by its name.</p>
          <div className="text-left">
            <CommandLines
              commands={{
                cli: 'atoll secret store create production',
                curl: { path: '/api/secret-stores', json: { name: 'production' } },
                sdk: "await client.secrets.createStore({ name: 'production' })",
              }}
            />
          </div>
        </EmptyState>
      ) : (
        <DataTable
          label="Secret stores"
          rows={stores.data}
          columns={columns}
          rowId={({ id }) => id}
          sorting={sorting}
          onSort={setSorting}
          onOpen={({ id }) => void navigate({ to: '/secrets/$store', params: { store: id } })}
        />
      )}
      {isMaking && (
        <StoreDialog
          onClose={() => setMaking(false)}
          onDone={({ id }) => void navigate({ to: '/secrets/$store', params: { store: id } })}
        />
      )}
    </Page>
  )
}
