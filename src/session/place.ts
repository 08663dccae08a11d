import { ServiceError } from '../errors.ts'
import type { NamedPlace } from '../lib/session-place.ts'
import type { SessionHead, SessionStore } from './store.ts'
import type { Point } from './turn.ts'

/** A point, and how near it is to what was asked for. */
export interface Place {
  point: Point
  /** Nothing that belongs to a turn lies between the point and the event. */
  isExact: boolean
  /** The number that was asked for, or that of the newest event at the point. */
  event: number
}

type PlaceStore = Pick<SessionStore, 'turn' | 'turns' | 'point' | 'pointOfTurn' | 'pointBefore' | 'rewindBefore'>

/**
 * Finds the newest point of a session at or before a place. Throws `not_found` for an unknown message or checkpoint, and where no point is
 * kept; `invalid_request` for a number that the stream has not reached; `conflict` for a message whose turn has not ended.
 */
export async function findPlace(
  store: PlaceStore,
  session: SessionHead,
  at: NamedPlace,
  field: string,
): Promise<Place> {
  if ('checkpointId' in at) {
    const point = await store.point(session.id, at.checkpointId)
    if (point !== undefined) return exactly(point)
    throw new ServiceError('not_found', `the session has no checkpoint ${at.checkpointId}`, {
      details: { field: `${field}.checkpoint_id` },
    })
  }
  if ('messageId' in at) return exactly(await pointAfter(store, session.id, at.messageId, `${field}.message_id`))
  return await placeBefore(store, session, at.eventId, `${field}.event_id`)
}

function exactly(point: Point): Place {
  return { point, isExact: true, event: point.afterEvent }
}

async function pointAfter(store: PlaceStore, sessionId: string, messageId: string, field: string): Promise<Point> {
  const turn = await store.turn(sessionId, messageId)
  if (turn === undefined)
    throw new ServiceError('not_found', `the session has no turn of message ${messageId}`, { details: { field } })
  if (turn.endedAt === undefined)
    throw new ServiceError('conflict', 'the turn of the message has not ended', { details: { field } })
  const point = await store.pointOfTurn(sessionId, messageId)
  if (point !== undefined) return point
  throw new ServiceError('not_found', `no checkpoint of the turn of message ${messageId} is kept`, {
    details: { field },
  })
}

/** The numbers of a stream do not go back: after a rewind its point counts, until there is a newer one. */
async function placeBefore(store: PlaceStore, session: SessionHead, event: number, field: string): Promise<Place> {
  const { id, lastSequence } = session
  if (event < 1 || event > lastSequence)
    throw new ServiceError('invalid_request', `${field} must be the number of an event: 1 to ${lastSequence}`, {
      details: { field },
    })
  const rewind = await store.rewindBefore(id, event)
  const newer = await store.pointBefore(id, { after: rewind?.event ?? 0, until: event })
  const point = newer ?? (rewind && (await store.point(id, rewind.checkpointId)))
  if (point === undefined)
    throw new ServiceError('not_found', `no checkpoint before event ${event} is kept`, { details: { field } })
  const begun = newer?.afterEvent ?? rewind?.event ?? 0
  const isMixed = newer === undefined && rewind !== undefined && rewind.what !== 'all'
  return { point, isExact: !isMixed && !(await hasTurnBetween(store, id, begun, event)), event }
}

/** Whether a turn has begun in events above `after` and up to `until`. */
async function hasTurnBetween(store: PlaceStore, sessionId: string, after: number, until: number): Promise<boolean> {
  const [newest] = await store.turns(sessionId, { limit: 1, branch: 'all', begunBy: until })
  return newest !== undefined && newest.firstEvent > after
}
