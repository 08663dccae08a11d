import type { WebhookDeliveryInfo, WebhookInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatTime, shorten } from '../../../lib/format.ts'
import { Badge, type Tone } from '../../../ui/badge.tsx'

const reasonCharsMax = 200

/** Whether events are sent, or why not. */
export function WebhookState({ webhook }: { webhook: WebhookInfo }): ReactNode {
  const { enabled, disabledReason, failingSince } = webhook
  if (!enabled)
    return (
      <Badge tone={disabledReason === null ? 'plain' : 'bad'} title={shorten(disabledReason ?? '', reasonCharsMax)}>
        disabled
      </Badge>
    )
  if (failingSince !== null)
    return (
      <Badge tone="warn" title={`Each attempt has failed since ${formatTime(failingSince)}`}>
        failing
      </Badge>
    )
  return <Badge tone="good">enabled</Badge>
}

const tones: Record<WebhookDeliveryInfo['status'] | 'dropped', Tone> = {
  success: 'good',
  pending: 'accent',
  failed: 'bad',
  dropped: 'bad',
}

export function DeliveryState({ state }: { state: keyof typeof tones }): ReactNode {
  return <Badge tone={tones[state]}>{state}</Badge>
}

/** The types of events of a destination, on one line. */
export function typesText({ eventTypes }: Pick<WebhookInfo, 'eventTypes'>): string {
  return eventTypes.length === 0 ? 'all events' : eventTypes.join(', ')
}
