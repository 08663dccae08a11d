/**
 * Calls to the outside when something happens. The server hands events of the log over to a queue in the database; a process of its own
 * (`delivery/`) sends them.
 */
export type { Attempt, Destination, Message, MessageState, Payload, SealedDestination } from './destination.ts'
export { assertWithinQuota } from './quota.ts'
export { Webhooks, type InlineWebhook, type NewDestination, type WebhookLimits } from './service.ts'
export type { Delivery, DestinationChange, Handover, NewMessage, WebhookStore } from './store.ts'
export { noTargets, readTargets, type AllowedTargets } from './target.ts'
