import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import type { WebhookDeliveryInfo, WebhookInfo } from 'atoll-sdk'
import { RotateCw } from 'lucide-react'
import type { ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { formatSeconds, shorten } from '../../../lib/format.ts'
import { IconButton } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { type Column, DataTable } from '../../../ui/data-table.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { useDeliveryNews } from './delivery-news.ts'
import { MessageDialog } from './message-dialog.tsx'
import { DeliveryState } from './webhook-state.tsx'

const errorCharsMax = 200
/** What one call answers; the API has no older ones. */
const shownMax = 50

const columns: readonly Column<WebhookDeliveryInfo>[] = [
  {
    id: 'event',
    header: 'Event',
    width: 'minmax(9rem,2fr)',
    cell: ({ eventType }) => <span title={eventType}>{eventType}</span>,
  },
  { id: 'state', header: 'State', width: '5.5rem', cell: ({ status }) => <DeliveryState state={status} /> },
  {
    id: 'answer',
    header: 'Answer',
    width: 'minmax(0,2fr)',
    isWideOnly: true,
    cell: ({ responseStatusCode, error }) => {
      const text = shorten(error ?? '', errorCharsMax)
      return (
        <span title={text}>
          {responseStatusCode ?? ''} <span className="text-soft">{text}</span>
        </span>
      )
    },
  },
  {
    id: 'took',
    header: 'Took',
    width: '5rem',
    isNumeric: true,
    isWideOnly: true,
    cell: ({ durationMs }) => (durationMs === undefined ? '' : formatSeconds(durationMs / 1000)),
  },
  {
    id: 'next',
    header: 'Next attempt',
    width: '8.5rem',
    isWideOnly: true,
    cell: ({ nextAttemptAt }) => nextAttemptAt !== undefined && <TimeAgo time={nextAttemptAt} />,
  },
  { id: 'when', header: 'When', width: '8.5rem', cell: ({ timestamp }) => <TimeAgo time={timestamp} /> },
]

/** The newest attempts to send to a destination; one opens its message. */
export function Deliveries({ webhook }: { webhook: WebhookInfo }): ReactNode {
  const { id } = webhook
  const { message } = useSearch({ from: '/shell/webhooks/$id' })
  const navigate = useNavigate({ from: '/webhooks/$id' })
  const deliveries = useQuery({
    queryKey: ['webhooks', id, 'deliveries'],
    queryFn: ({ signal }) => client.webhooks.deliveries(id, { signal }),
  })
  useDeliveryNews(webhook)
  const open = (messageId?: string) =>
    void navigate({ search: messageId === undefined ? {} : { message: messageId }, replace: true })
  return (
    <>
      <div className="flex items-center gap-2">
        <h2 className="font-semibold">Deliveries</h2>
        {deliveries.data !== undefined && deliveries.data.length >= shownMax && (
          <span className="text-[13px] text-soft">the newest {shownMax} attempts</span>
        )}
        <span className="ml-auto flex">
          <CommandHint
            commands={{
              cli: `atoll webhook deliveries ${id}`,
              curl: { path: `/api/webhooks/${id}/deliveries` },
              sdk: `await client.webhooks.deliveries('${id}')`,
            }}
          />
          <IconButton
            label="Read the deliveries again"
            icon={<RotateCw className="size-4" />}
            isBusy={deliveries.isFetching}
            onClick={() => void deliveries.refetch()}
          />
        </span>
      </div>
      {deliveries.isPending ? (
        <Loading label="Loading the deliveries" />
      ) : deliveries.isError ? (
        <ErrorNote error={deliveries.error} onRetry={() => void deliveries.refetch()} />
      ) : deliveries.data.length === 0 ? (
        <EmptyState title="Nothing was sent yet">
          The next event that the destination takes is sent at once. “Send an example” needs none.
        </EmptyState>
      ) : (
        <DataTable
          label="Deliveries"
          rows={deliveries.data}
          columns={columns}
          rowId={({ attemptId, id: messageId }) => `${messageId} ${attemptId}`}
          onOpen={({ id: messageId }) => open(messageId)}
        />
      )}
      {message !== undefined && (
        <MessageDialog
          webhookId={id}
          messageId={message}
          attempts={deliveries.data?.filter((one) => one.id === message) ?? []}
          onClose={() => open()}
        />
      )}
    </>
  )
}
