import { useMutation, useQuery } from '@tanstack/react-query'
import type { WebhookDeliveryInfo } from 'atoll-sdk'
import { Send } from 'lucide-react'
import type { ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { formatTime } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { JsonText } from '../../../ui/json-text.tsx'
import { Facts } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { useRereadDeliveries } from './delivery-news.ts'
import { DeliveryState } from './webhook-state.tsx'

const attemptsMax = 20
const errorCharsMax = 2000

/** A message with its body and its attempts, and another attempt. */
export function MessageDialog({
  webhookId,
  messageId,
  attempts,
  onClose,
}: {
  webhookId: string
  messageId: string
  attempts: readonly WebhookDeliveryInfo[]
  onClose: () => void
}): ReactNode {
  const toast = useToast()
  const reread = useRereadDeliveries(webhookId)
  const message = useQuery({
    queryKey: ['webhooks', webhookId, 'deliveries', messageId],
    queryFn: ({ signal }) => client.webhooks.delivery(webhookId, messageId, { signal }),
  })
  const redeliver = useMutation({
    mutationFn: () => client.webhooks.redeliver(webhookId, messageId),
    onSuccess: () => {
      toast({ text: 'A new attempt is on its way.' })
      reread()
    },
  })
  return (
    <Dialog title="Message" size="wide" isOpen onOpenChange={onClose}>
      {message.isPending ? (
        <Loading label="Loading the message" />
      ) : message.isError ? (
        <ErrorNote error={message.error} onRetry={() => void message.refetch()} />
      ) : (
        <div className="flex flex-col gap-4">
          <Facts
            items={[
              ['Event', message.data.eventType],
              ['Name of the event', <code className="font-mono text-[13px] break-all">{message.data.eventId}</code>],
              ['webhook-id', <code className="font-mono text-[13px] break-all">{message.data.id}</code>],
              ['State', <DeliveryState state={message.data.state} />],
              ['Made', formatTime(message.data.timestamp)],
            ]}
          />
          <div>
            <h3 className="mb-1 font-medium">Attempts</h3>
            <ul className="flex flex-col gap-1">
              {attempts.slice(0, attemptsMax).map((attempt) => (
                <li key={attempt.attemptId} className="flex flex-wrap items-baseline gap-x-2">
                  <DeliveryState state={attempt.status} />
                  <span className="tabular-nums">{formatTime(attempt.timestamp)}</span>
                  {attempt.responseStatusCode !== undefined && <span>answered {attempt.responseStatusCode}</span>}
                  {attempt.error !== undefined && (
                    <span className="min-w-0 break-words text-bad">{attempt.error.slice(0, errorCharsMax)}</span>
                  )}
                </li>
              ))}
            </ul>
            {attempts.length === 0 && <p className="text-soft">None among the newest 50 of the destination.</p>}
          </div>
          <div>
            <h3 className="mb-1 font-medium">Body</h3>
            {message.data.payload === null ? (
              <p className="text-soft">It was dropped, since the destination was disabled for too long.</p>
            ) : (
              <JsonText label="Body of the message" value={message.data.payload} />
            )}
          </div>
          {redeliver.isError && <ErrorNote error={redeliver.error} />}
          <div className="flex items-center justify-end gap-2">
            <CommandHint
              commands={{
                cli: `atoll webhook redeliver ${webhookId} ${messageId}`,
                curl: { method: 'POST', path: `/api/webhooks/${webhookId}/deliveries/${messageId}/redeliver` },
                sdk: `await client.webhooks.redeliver('${webhookId}', '${messageId}')`,
              }}
            />
            <Button
              isBusy={redeliver.isPending}
              disabled={message.data.payload === null}
              onClick={() => redeliver.mutate()}
            >
              <Send aria-hidden="true" className="size-4" /> Send again
            </Button>
          </div>
        </div>
      )}
    </Dialog>
  )
}
