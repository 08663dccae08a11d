import { useQueryClient } from '@tanstack/react-query'
import type { EventInfo, WebhookInfo } from 'atoll-sdk'
import { useCallback, useRef } from 'react'
import { useEvents } from '../../../live/live.tsx'

/** An attempt follows its cause within this time, as a rule. */
const settleMs = 1500

/**
 * Reads the deliveries once more when what was caused has had the time to be sent. The log tells of events, and not of the attempts to send them.
 */
export function useRereadDeliveries(id: string): () => void {
  const queries = useQueryClient()
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  return useCallback(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined
      void queries.invalidateQueries({ queryKey: ['webhooks', id] })
    }, settleMs)
  }, [queries, id])
}

/** Follows the events that the destination gets. */
export function useDeliveryNews(webhook: WebhookInfo): void {
  const reread = useRereadDeliveries(webhook.id)
  useEvents((event) => {
    if (isTaken(webhook, event)) reread()
  })
}

function isTaken({ enabled, eventTypes, sandboxId }: WebhookInfo, event: EventInfo): boolean {
  if (!enabled || (sandboxId !== null && sandboxId !== event.sandboxId)) return false
  return (
    eventTypes.length === 0 ||
    eventTypes.some((type) => (type.endsWith('.*') ? event.type.startsWith(type.slice(0, -1)) : event.type === type))
  )
}
