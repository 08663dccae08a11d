import type { LogEvent, LogEventType } from '../events/index.ts'

/** `full`: with the facts of the event. `thin`: with its ids alone, for receivers that read the rest from the API. */
export type Payload = 'full' | 'thin'

/** Where events of an organisation go. `sandboxId`: those of one sandbox alone, with whose record it goes. */
export interface Destination {
  id: string
  orgId: string
  name?: string
  url: string
  /** As they were given, wildcards unexpanded; empty: all. */
  eventTypes: string[]
  sandboxId?: string
  payload: Payload
  /** The newest event that it does not get. */
  afterNumber: number
  /** While it is not, messages wait, for a day and up to ten thousand. */
  isEnabled: boolean
  /** Why the server has disabled it. */
  disabledReason?: string
  failingSince?: Date
  /** Attempts that have failed in a row. */
  failures: number
  /** No attempt before: its receiver fails. */
  circuitUntil?: Date
  /** Messages that were not sent because it was disabled for too long. */
  dropped: number
  createdAt: Date
  updatedAt: Date
}

/** A destination with its secrets, sealed (`lib/sealed.ts`). */
export interface SealedDestination extends Destination {
  sealedSecret: string
  /** The secret before the last rotation, with which messages are signed too until then. */
  sealedOldSecret?: string
  oldSecretUntil?: Date
  /** Own headers of each request, as JSON. */
  sealedHeaders?: string
}

export type MessageState = 'pending' | 'success' | 'failed' | 'dropped'

/** One event for one destination: the same for all attempts. */
export interface Message {
  /** `msg_…`: what receivers tell repeats by. */
  id: string
  orgId: string
  destinationId: string
  eventId: string
  eventType: LogEventType
  lane: number
  body: string
  state: MessageState
  attempts: number
  nextAttemptAt?: Date
  createdAt: Date
}

export interface Attempt {
  id: number
  messageId: string
  startedAt: Date
  durationMs: number
  state: 'success' | 'failed'
  responseStatusCode?: number
  error?: string
}

/** Lanes of a destination: events of one subject are in one, which keeps their order until a repeat. */
export const lanes = 4

export function purposeOf({ id }: Pick<Destination, 'id'>): string {
  return `webhook ${id}`
}

export type { LogEvent }
