import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import type { WebhookInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { formatCount, shorten } from '../../../lib/format.ts'
import { Facts, Page } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { Deliveries } from './deliveries.tsx'
import { WebhookActions } from './webhook-actions.tsx'
import { typesText, WebhookState } from './webhook-state.tsx'

export function WebhookPage(): ReactNode {
  const { id } = useParams({ from: '/shell/webhooks/$id' })
  const webhook = useQuery({
    queryKey: ['webhooks', id],
    queryFn: ({ signal }) => client.webhooks.get(id, { signal }),
  })
  if (webhook.isPending)
    return (
      <Page title="Destination">
        <Loading label="Loading the destination" />
      </Page>
    )
  if (webhook.isError)
    return (
      <Page title="Destination">
        <ErrorNote error={webhook.error} onRetry={() => void webhook.refetch()} />
        <Link to="/webhooks" className="text-accent underline">
          All destinations
        </Link>
      </Page>
    )
  return <LoadedDestination webhook={webhook.data} />
}

function LoadedDestination({ webhook }: { webhook: WebhookInfo }): ReactNode {
  const navigate = useNavigate()
  const queries = useQueryClient()
  const { id, name, url, sandboxId, payload, disabledReason, failingSince, droppedCount, createdAt } = webhook
  const remove = async () => {
    await client.webhooks.delete(id)
    await navigate({ to: '/webhooks' })
    queries.removeQueries({ queryKey: ['webhooks', id] })
    await queries.invalidateQueries({ queryKey: ['webhooks'], exact: true })
  }
  return (
    <Page
      title={name === null || name === '' ? shorten(url, 80) : name}
      isFilling
      aside={<WebhookState webhook={webhook} />}
      actions={<WebhookActions webhook={webhook} onDelete={remove} />}
    >
      <Facts
        items={[
          ['URL', <span className="break-all">{url}</span>],
          ['Events', <span className="break-all">{typesText(webhook)}</span>],
          ...(sandboxId === null
            ? []
            : [
                [
                  'Only of',
                  <Link to="/sandboxes/$sandboxId" params={{ sandboxId }} className="text-accent underline">
                    {sandboxId}
                  </Link>,
                ] as const,
              ]),
          ['Sends', payload === 'thin' ? 'ids alone' : 'the facts of the event'],
          ...(disabledReason === null ? [] : [['Disabled because', disabledReason] as const]),
          ...(failingSince === null ? [] : [['Failing since', <TimeAgo time={failingSince} />] as const]),
          ...(droppedCount === 0
            ? []
            : [['Not sent', `${formatCount(droppedCount)} events that had waited for too long`] as const]),
          ['Made', <TimeAgo time={createdAt} />],
        ]}
      />
      <Deliveries webhook={webhook} />
    </Page>
  )
}
