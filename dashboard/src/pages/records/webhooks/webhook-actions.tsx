import { useMutation, useQueryClient } from '@tanstack/react-query'
import type { WebhookInfo } from 'atoll-sdk'
import { Eye, Pause, Pencil, Play, RefreshCw, Send, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { Button } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { Confirm, Dialog } from '../../../ui/dialog.tsx'
import { ErrorNote } from '../../../ui/states.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { useRereadDeliveries } from './delivery-news.ts'
import { WebhookDialog, WebhookSecret } from './webhook-dialog.tsx'

/** What can be done with a destination. */
export function WebhookActions({
  webhook,
  onDelete,
}: {
  webhook: WebhookInfo
  onDelete: () => Promise<void>
}): ReactNode {
  const { id, enabled } = webhook
  const queries = useQueryClient()
  const toast = useToast()
  const reread = useRereadDeliveries(id)
  const [isChanging, setChanging] = useState(false)
  const [secret, setSecret] = useState<string>()
  const reload = () => queries.invalidateQueries({ queryKey: ['webhooks'] })
  const toggle = useMutation({
    mutationFn: () => client.webhooks.update(id, { enabled: !enabled }),
    onSuccess: reload,
  })
  const test = useMutation({
    mutationFn: () => client.webhooks.test(id),
    onSuccess: () => {
      toast({ text: 'An example is on its way.' })
      reread()
    },
  })
  const show = useMutation({ mutationFn: () => client.webhooks.secret(id), onSuccess: setSecret, gcTime: 0 })
  const rotate = async () => {
    const rotated = await client.webhooks.update(id, { rotateSecret: true })
    setSecret(rotated.secret)
    await reload()
  }
  const error = toggle.error ?? test.error ?? show.error
  return (
    <>
      <CommandHint
        commands={{
          cli: `atoll webhook test ${id}\natoll webhook ${enabled ? 'disable' : 'enable'} ${id}\natoll webhook secret ${id} --rotate\natoll webhook rm ${id}`,
          curl: { method: 'POST', path: `/api/webhooks/${id}/test` },
          sdk: `await client.webhooks.test('${id}')`,
        }}
      />
      <Button isBusy={test.isPending} onClick={() => test.mutate()} disabled={!enabled}>
        <Send aria-hidden="true" className="size-4" /> Send an example
      </Button>
      <Button isBusy={toggle.isPending} onClick={() => toggle.mutate()}>
        {enabled ? <Pause aria-hidden="true" className="size-4" /> : <Play aria-hidden="true" className="size-4" />}
        {enabled ? 'Disable' : 'Enable'}
      </Button>
      <Button onClick={() => setChanging(true)}>
        <Pencil aria-hidden="true" className="size-4" /> Change
      </Button>
      <Button isBusy={show.isPending} onClick={() => show.mutate()} title="The audit notes that it was read">
        <Eye aria-hidden="true" className="size-4" /> Secret
      </Button>
      <Confirm
        trigger={
          <Button>
            <RefreshCw aria-hidden="true" className="size-4" /> Rotate
          </Button>
        }
        title="Make another secret?"
        action="Rotate the secret"
        onConfirm={rotate}
      >
        Deliveries are signed with both for a day. Give the new one to the receiver in this time.
      </Confirm>
      <Confirm
        trigger={
          <Button look="danger">
            <Trash2 aria-hidden="true" className="size-4" /> Delete
          </Button>
        }
        title="Delete the destination?"
        action="Delete the destination"
        onConfirm={onDelete}
      >
        Its deliveries and those that wait are gone for good.
      </Confirm>
      {error !== null && (
        <div className="w-full">
          <ErrorNote error={error} />
        </div>
      )}
      {isChanging && <WebhookDialog webhook={webhook} onClose={() => setChanging(false)} />}
      {secret !== undefined && (
        <Dialog title="The secret of the destination" isOpen isKept onOpenChange={() => setSecret(undefined)}>
          <WebhookSecret secret={secret} />
        </Dialog>
      )}
    </>
  )
}
