import { sql, type Kysely } from 'kysely'
import type { ForkReference, SessionStore } from '../session/store.ts'
import type { Point, Rewind, Turn } from '../session/turn.ts'
import { anyOf, present } from './rows.ts'
import type { Database } from './schema.ts'
import { lenientJson } from './text.ts'

const turnColumns = [
  'messageId',
  'parentId',
  'firstEvent',
  'lastEvent',
  'startedAt',
  'endedAt',
  'subtype',
  'preview',
  'usageBefore',
  'files',
  'leftEvent',
] as const satisfies (keyof Turn)[]
const pointColumns = [
  'checkpointId',
  'origin',
  'turnId',
  'afterEvent',
  'kind',
  'sizeBytes',
  'durationMs',
  'project',
  'createdAt',
] as const satisfies (keyof Point)[]
const rewindColumns = [
  'event',
  'what',
  'checkpointId',
  'undoCheckpointId',
  'turnId',
  'restoredMessageId',
  'adoptedFrom',
  'createdAt',
] as const satisfies (keyof Rewind)[]
const forkColumns = [
  'id',
  'keyId',
  'userId',
  'name',
  'status',
  'activity',
  'forkPoint',
  'archivedFor',
  'createdAt',
] as const satisfies (keyof ForkReference)[]

/** Reads the turns of a session, its points and its rewinds, and the sessions that were forked from it. */
export function sessionTurns(db: Kysely<Database>) {
  const turnsOf = (sessionId: string) =>
    db.selectFrom('sessionTurns').select(turnColumns).where('sessionId', '=', sessionId)
  const pointsOf = (sessionId: string) =>
    db.selectFrom('sessionPoints').select(pointColumns).where('sessionId', '=', sessionId)
  const rewindsOf = (sessionId: string) =>
    db.selectFrom('sessionRewinds').select(rewindColumns).where('sessionId', '=', sessionId)

  return {
    async turn(sessionId, messageId) {
      const row = await turnsOf(sessionId).where('messageId', '=', messageId).executeTakeFirst()
      return row && present(row)
    },

    async turns(sessionId, { limit, branch = 'in force', before, begunBy }) {
      let query = turnsOf(sessionId).orderBy('position', 'desc').limit(limit)
      if (branch === 'in force') query = query.where('leftEvent', 'is', null)
      if (begunBy !== undefined) query = query.where('firstEvent', '<=', begunBy)
      if (before !== undefined) {
        query = query.where('position', '<', (eb) =>
          eb
            .selectFrom('sessionTurns')
            .select('position')
            .where('sessionId', '=', sessionId)
            .where('messageId', '=', before),
        )
      }
      return (await query.execute()).map((row) => present(row))
    },

    async branch(sessionId, turnId, limit) {
      if (turnId === undefined || limit < 1) return []
      const { rows } = await sql<{ messageId: string }>`
        with recursive branch (message_id, parent_id, depth) as (
          select message_id, parent_id, 1 from session_turns where session_id = ${sessionId} and message_id = ${turnId}
          union all
          select parent.message_id, parent.parent_id, branch.depth + 1 from branch
          join session_turns parent on parent.session_id = ${sessionId} and parent.message_id = branch.parent_id
          where branch.depth < ${limit}
        )
        select message_id from branch order by depth`.execute(db)
      return rows.map(({ messageId }) => messageId)
    },

    async setTurnFiles(sessionId, messageId, files) {
      await db
        .updateTable('sessionTurns')
        // Their paths come from the sandbox.
        .set({ files: lenientJson(files) })
        .where('sessionId', '=', sessionId)
        .where('messageId', '=', messageId)
        .execute()
    },

    async point(sessionId, checkpointId) {
      const row = await pointsOf(sessionId).where('checkpointId', '=', checkpointId).executeTakeFirst()
      return row && present(row)
    },

    async pointOfTurn(sessionId, turnId, origin) {
      let query = pointsOf(sessionId)
        .where('turnId', '=', turnId)
        .orderBy(sql`origin = 'turn'`, 'desc')
        .orderBy('position', 'desc')
        .limit(1)
      if (origin === undefined) query = query.where(sql<boolean>`(origin = 'turn' or not ${isAfterRewind})`)
      else query = query.where('origin', '=', origin)
      const row = await query.executeTakeFirst()
      return row && present(row)
    },

    async pointBefore(sessionId, { after, until }) {
      const row = await pointsOf(sessionId)
        .where('afterEvent', '>', after)
        .where('afterEvent', '<=', until)
        .orderBy('afterEvent', 'desc')
        .orderBy('position', 'desc')
        .limit(1)
        .executeTakeFirst()
      return row && present(row)
    },

    async points(sessionId) {
      const turns = db
        .selectFrom('sessionTurns')
        .select(['messageId', sql<number>`row_number() over (order by position)`.as('number')])
        .where('sessionId', '=', sessionId)
      return await db
        .selectFrom('sessionPoints')
        .leftJoin(turns.as('turns'), 'turns.messageId', 'sessionPoints.turnId')
        .select(['checkpointId', 'origin', sql<number>`coalesce(number, 0)`.as('ordinal')])
        .where('sessionId', '=', sessionId)
        .orderBy('position')
        .execute()
    },

    async knownPoints(checkpointIds) {
      const rows = await db
        .selectFrom('sessionPoints')
        .select('checkpointId')
        .where('checkpointId', '=', anyOf(checkpointIds))
        .execute()
      return new Set(rows.map(({ checkpointId }) => checkpointId))
    },

    async removePoints(sessionId, checkpointIds) {
      await db
        .deleteFrom('sessionPoints')
        .where('sessionId', '=', sessionId)
        .where('checkpointId', '=', anyOf(checkpointIds))
        .execute()
    },

    async rewindUndoneBy(sessionId, undoCheckpointId) {
      const row = await rewindsOf(sessionId).where('undoCheckpointId', '=', undoCheckpointId).executeTakeFirst()
      return row && present(row)
    },

    async rewindBefore(sessionId, event) {
      const row = await rewindsOf(sessionId)
        .where('event', '<=', event)
        .orderBy('event', 'desc')
        .limit(1)
        .executeTakeFirst()
      return row && present(row)
    },

    async forksOf(sessionId, { turnIds, limit }) {
      let query = db
        .selectFrom('sessions')
        .select(forkColumns)
        .where('forkedFrom', '=', sessionId)
        .orderBy('createdAt')
        .orderBy('id')
        .limit(limit)
      if (turnIds !== undefined) query = query.where('forkPoint', '=', anyOf(turnIds))
      return (await query.execute()).map((row) => present(row))
    },

    async startingFrom(checkpointIds) {
      const rows = await db
        .selectFrom('sessions')
        .select('checkpointId')
        .where('checkpointId', '=', anyOf(checkpointIds))
        .where('status', '=', 'running')
        .where('activity', 'in', ['starting', 'failed'])
        .execute()
      return new Set(rows.flatMap(({ checkpointId }) => checkpointId ?? []))
    },
  } satisfies Partial<SessionStore>
}

/** Whether a rewind lies between the end of the turn and the point: the sandbox of then is not the one that the turn left. */
const isAfterRewind = sql<boolean>`exists (
  select from session_rewinds rewind join session_turns turn using (session_id)
  where session_id = session_points.session_id and turn.message_id = session_points.turn_id
    and rewind.event > turn.last_event and rewind.event <= session_points.after_event
)`
