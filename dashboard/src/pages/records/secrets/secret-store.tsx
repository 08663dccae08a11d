import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import type { SecretStoreInfo } from 'atoll-sdk'
import { Pencil, Plus, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { Badge } from '../../../ui/badge.tsx'
import { Button } from '../../../ui/button.tsx'
import { CommandHint, quoted } from '../../../ui/commands.tsx'
import { Confirm } from '../../../ui/dialog.tsx'
import { Facts, Page } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { HostsText } from './hosts.tsx'
import { SecretList } from './secret-list.tsx'
import { SetSecretDialog } from './set-secret-dialog.tsx'
import { StoreDialog } from './store-dialog.tsx'

export function SecretStore(): ReactNode {
  const { store: id } = useParams({ from: '/shell/secrets/$store' })
  const store = useQuery({
    queryKey: ['secret-store', id],
    queryFn: ({ signal }) => client.secrets.getStore(id, { signal }),
  })
  if (store.isPending)
    return (
      <Page title="Secret store">
        <Loading label="Loading the store" />
      </Page>
    )
  if (store.isError)
    return (
      <Page title="Secret store">
        <ErrorNote error={store.error} onRetry={() => void store.refetch()} />
        <Link to="/secrets" className="text-accent underline">
          All stores
        </Link>
      </Page>
    )
  return <LoadedStore store={store.data} />
}

function LoadedStore({ store }: { store: SecretStoreInfo }): ReactNode {
  const [isSetting, setSetting] = useState(false)
  const [isChanging, setChanging] = useState(false)
  const navigate = useNavigate()
  const queries = useQueryClient()
  const remove = async () => {
    await client.secrets.deleteStore(store.id)
    await navigate({ to: '/secrets' })
    queries.removeQueries({ queryKey: ['secret-store', store.id] })
    await queries.invalidateQueries({ queryKey: ['secret-stores'] })
  }
  return (
    <Page
      title={store.name}
      isFilling
      aside={store.isDefault && <Badge title="Every sandbox of the organisation has it">default</Badge>}
      actions={
        <>
          <CommandHint
            commands={{
              cli: `atoll secret store get ${quoted(store.name)}`,
              curl: { path: `/api/secret-stores/${store.id}/secrets` },
              sdk: `await client.secrets.list('${store.id}')`,
            }}
          />
          <Button onClick={() => setChanging(true)}>
            <Pencil aria-hidden="true" className="size-4" /> Change
          </Button>
          <Confirm
            trigger={
              <Button look="danger">
                <Trash2 aria-hidden="true" className="size-4" /> Delete
              </Button>
            }
            title={`Delete the store ${store.name}?`}
            action="Delete the store"
            onConfirm={remove}
          >
            Its secrets are gone for good, sandboxes that run lose them, and its hosts restrict nothing any more.
          </Confirm>
          <Button look="primary" onClick={() => setSetting(true)}>
            <Plus aria-hidden="true" className="size-4" /> Set a secret
          </Button>
        </>
      }
    >
      <Facts
        items={[
          ['Id', <code className="font-mono text-[13px]">{store.id}</code>],
          [
            'Its sandboxes reach',
            <HostsText hosts={store.egressAllowlist} shownMax={40} none="whatever the rest of their policy allows" />,
          ],
          ['Given to', store.isDefault ? 'every sandbox of the organisation' : 'sandboxes that name it'],
          ['Changed', <TimeAgo time={store.updatedAt} />],
        ]}
      />
      <SecretList store={store} onSet={() => setSetting(true)} />
      {isSetting && <SetSecretDialog store={store} onClose={() => setSetting(false)} />}
      {isChanging && <StoreDialog store={store} onClose={() => setChanging(false)} />}
    </Page>
  )
}
