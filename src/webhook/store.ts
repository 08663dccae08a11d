import type { LogEvent } from '../events/index.ts'
import type { Creation } from '../lib/creation.ts'
import type { Attempt, Destination, Message, MessageState, SealedDestination } from './destination.ts'

export type DestinationChange = {
  [Key in keyof Omit<SealedDestination, 'id' | 'orgId' | 'sandboxId' | 'createdAt' | 'afterNumber'>]?:
    | SealedDestination[Key]
    | undefined
}

export type NewMessage = Omit<Message, 'attempts' | 'createdAt' | 'nextAttemptAt'>

/** One row for each attempt, and for a message without any. */
export interface Delivery {
  message: Pick<Message, 'id' | 'eventType' | 'eventId' | 'state' | 'createdAt' | 'nextAttemptAt'>
  attempt?: Attempt
}

export interface Handover {
  /** Messages that were added. */
  count: number
  /** Whether the log has more. */
  hasMore: boolean
}

/**
 * The port to destinations and the queue of what they get. Each method is one transaction. A message and the job of its delivery are added
 * together, and the cursor of the organisation moves with them: no event is handed over twice or not at all.
 */
export interface WebhookStore {
  /** Makes what deliveries need, where it is missing. */
  prepare(): Promise<void>
  /**
   * Adds destinations that get what the log says from now on. Those of a sandbox also get what the log has said of it already. Those that
   * are there are left as they are. `messagesOf` says what they get. Throws `quota_exceeded` beyond `destinationsMax` of the organisation.
   */
  insertDestinations(
    destinations: readonly Omit<SealedDestination, 'afterNumber'>[],
    options: {
      destinationsMax: number
      messagesOf: (destination: Destination, event: LogEvent) => NewMessage | undefined
      creation?: Creation | undefined
    },
  ): Promise<void>
  /** Newest first. */
  listDestinations(orgId: string): Promise<Destination[]>
  destination(orgId: string, id: string): Promise<SealedDestination | undefined>
  /** A key with the value `undefined` clears its field. */
  updateDestination(orgId: string, id: string, change: DestinationChange): Promise<SealedDestination | undefined>
  /**
   * Lets the messages that have waited be delivered, and drops those from before `before` and beyond the newest `messagesMax`. Notes in the
   * log how many were dropped.
   */
  enable(
    orgId: string,
    id: string,
    bounds: { before: Date; messagesMax: number },
  ): Promise<SealedDestination | undefined>
  /** With its messages. False when there is none. */
  deleteDestination(orgId: string, id: string): Promise<boolean>
  /** Organisations that have destinations. */
  organisationsWithDestinations(): Promise<string[]>

  /** Hands the next events of the log over. */
  handOver(
    orgId: string,
    limit: number,
    messagesOf: (destination: Destination, event: LogEvent) => NewMessage | undefined,
  ): Promise<Handover>
  /** Adds one message beside the log, and its job. */
  addMessage(message: NewMessage): Promise<void>
  /** Newest first. */
  listDeliveries(destinationId: string, limit: number): Promise<Delivery[]>
  message(destinationId: string, id: string): Promise<{ message: Message; attempts: Attempt[] } | undefined>
  /** Attempts it again now, from the beginning of its schedule. */
  redeliver(destinationId: string, id: string): Promise<void>
  countMessages(destinationId: string, state: MessageState): Promise<number>

  /** Notes in the log that destinations were disabled by their failures. */
  tellDisabled(): Promise<number>
  /** Deletes messages that are over from before `before`, drops what disabled destinations have from before `droppedBefore`. */
  purge(before: Date, droppedBefore: Date): Promise<number>
  /** Deletes destinations whose sandbox has no record any more. */
  purgePinned(): Promise<number>
}
