import { hash } from 'node:crypto'
import type { LogEvent } from '../events/index.ts'
import { type Destination, lanes, type Payload } from './destination.ts'
import type { NewMessage } from './store.ts'

/** The message of an event, under this id of the event, to a destination. */
export function messageTo(destination: Destination, event: LogEvent, eventId: string): NewMessage {
  const { id: destinationId, payload } = destination
  const { orgId, type: eventType } = event
  return {
    ...{ id: messageId(destinationId, eventId), orgId, destinationId, eventId, eventType },
    ...{ body: bodyOf(event, payload, eventId), lane: laneOf(event), state: 'pending' },
  }
}

/** The body of a delivery. `eventId` is `event.id`; an event of a session has `sessionId` too. */
export function bodyOf(event: LogEvent, payload: Payload, id: string): string {
  const { orgId, type, sandboxId, sessionId, subject, ts, data } = event
  const about = { ...(sandboxId === undefined ? {} : { sandboxId }), ...(sessionId === undefined ? {} : { sessionId }) }
  const full = payload === 'full' ? { actor: event.actor, cause: event.cause, data } : {}
  return JSON.stringify({
    type,
    ...about,
    eventId: id,
    event: { id, ts: ts.toISOString(), orgId, ...about, type, subject, ...full },
  })
}

/** The message of an event for a destination: the same, however often it is handed over. */
export function messageId(destinationId: string, eventId: string): string {
  return `msg_${hash('sha256', `${destinationId}\n${eventId}`).slice(0, 24)}`
}

export function laneOf({
  sandboxId,
  sessionId,
  subject,
}: Pick<LogEvent, 'sandboxId' | 'sessionId' | 'subject'>): number {
  return Number.parseInt(hash('sha256', sandboxId ?? sessionId ?? subject).slice(0, 6), 16) % lanes
}
