import { hash } from 'node:crypto'
import type { LogEvent } from '../events/index.ts'
import { lanes, type Payload } from './destination.ts'

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
