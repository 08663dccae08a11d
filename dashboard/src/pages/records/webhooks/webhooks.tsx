import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import type { WebhookInfo } from 'atoll-sdk'
import { Plus } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { Button } from '../../../ui/button.tsx'
import { CommandLines } from '../../../ui/commands.tsx'
import { type Column, DataTable } from '../../../ui/data-table.tsx'
import { Page } from '../../../ui/page.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { WebhookDialog } from './webhook-dialog.tsx'
import { typesText, WebhookState } from './webhook-state.tsx'

const columns: readonly Column<WebhookInfo>[] = [
  {
    id: 'url',
    header: 'Destination',
    width: 'minmax(10rem,3fr)',
    sortBy: ({ name, url }) => name ?? url,
    cell: ({ name, url }) => (
      <span title={url}>
        {name !== null && name !== '' && <span className="mr-2 font-medium">{name}</span>}
        <span className={name === null || name === '' ? undefined : 'text-soft'}>{url}</span>
      </span>
    ),
  },
  {
    id: 'events',
    header: 'Events',
    width: 'minmax(0,2fr)',
    isWideOnly: true,
    cell: (webhook) => <span title={typesText(webhook)}>{typesText(webhook)}</span>,
  },
  {
    id: 'sandbox',
    header: 'Sandbox',
    width: 'minmax(0,1fr)',
    isWideOnly: true,
    cell: ({ sandboxId }) => sandboxId ?? <span className="text-soft">all</span>,
  },
  {
    id: 'state',
    header: 'State',
    width: '6rem',
    sortBy: ({ enabled, failingSince }) => (enabled ? (failingSince === null ? 'enabled' : 'failing') : 'disabled'),
    cell: (webhook) => <WebhookState webhook={webhook} />,
  },
  {
    id: 'made',
    header: 'Made',
    width: '8.5rem',
    sortBy: ({ createdAt }) => createdAt,
    cell: ({ createdAt }) => <TimeAgo time={createdAt} />,
  },
]

export function Webhooks(): ReactNode {
  const navigate = useNavigate()
  const [isMaking, setMaking] = useState(false)
  const [sorting, setSorting] = useState([{ id: 'made', desc: true }])
  const webhooks = useQuery({ queryKey: ['webhooks'], queryFn: ({ signal }) => client.webhooks.list({ signal }) })
  const make = (
    <Button look="primary" onClick={() => setMaking(true)}>
      <Plus aria-hidden="true" className="size-4" /> New destination
    </Button>
  )
  return (
    <Page title="Webhooks" isFilling actions={make} lead="Atoll calls a URL of yours, signed, when something happens.">
      {webhooks.isPending ? (
        <Loading label="Loading the destinations" />
      ) : webhooks.isError ? (
        <ErrorNote error={webhooks.error} onRetry={() => void webhooks.refetch()} />
      ) : webhooks.data.length === 0 ? (
        <EmptyState title="No destinations yet" actions={make}>
          <p className="mb-3">Each event is one signed POST. Nothing is lost while your receiver is away.</p>
          <div className="text-left">
            <CommandLines
              commands={{
                cli: "atoll webhook create https://example.com/hook --type 'session.*'",
                curl: { path: '/api/webhooks', json: { url: 'https://example.com/hook', eventTypes: ['session.*'] } },
                sdk: "await client.webhooks.create({ url: 'https://example.com/hook', eventTypes: ['session.*'] })",
              }}
            />
          </div>
        </EmptyState>
      ) : (
        <DataTable
          label="Destinations of webhooks"
          rows={webhooks.data}
          columns={columns}
          rowId={({ id }) => id}
          sorting={sorting}
          onSort={setSorting}
          onOpen={({ id }) => void navigate({ to: '/webhooks/$id', params: { id } })}
        />
      )}
      {isMaking && <WebhookDialog onClose={() => setMaking(false)} />}
    </Page>
  )
}
