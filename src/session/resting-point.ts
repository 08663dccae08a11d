import type { SessionStore } from './store.ts'
import type { Point } from './turn.ts'

/** A point whose disk is that which the sandbox of a session had at an event between turns. */
export interface RestingPoint {
  point: Point
  /** The newest turn of the branch in force then, as far as the point tells. */
  turnId?: string | undefined
}

type RestingStore = Pick<SessionStore, 'point' | 'pointBefore' | 'rewindBefore'>

/** The newest point at or before an event, or that to which a newer rewind has put the disk. Undefined where none is kept. */
export async function restingPoint(
  store: RestingStore,
  sessionId: string,
  event: number,
): Promise<RestingPoint | undefined> {
  const rewind = await store.rewindBefore(sessionId, event)
  const newer = await store.pointBefore(sessionId, { after: rewind?.event ?? 0, until: event })
  if (newer !== undefined) return { point: newer, turnId: newer.turnId }
  if (rewind === undefined) return undefined
  // A rewind of the conversation alone leaves the disk as it was.
  const { what, checkpointId, undoCheckpointId, turnId } = rewind
  const point = await store.point(sessionId, what === 'conversation' ? undoCheckpointId : checkpointId)
  return point && { point, turnId }
}
