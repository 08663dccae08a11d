import { sql, type Kysely, type Transaction } from 'kysely'
import { ServiceError } from '../errors.ts'
import type { Capsule, CapsuleStore, NewCapsule } from '../session/capsule-store.ts'
import { recordMade } from './idempotency.ts'
import { anyOf, present } from './rows.ts'
import type { Database } from './schema.ts'

const columns = [
  ...(['id', 'orgId', 'sessionId', 'scope', 'event', 'checkpointId', 'reason', 'forks'] as const),
  ...(['createdAt', 'expiresAt', 'revokedAt'] as const),
] as const satisfies (keyof Capsule)[]

export function capsuleStore(db: Kysely<Database>): CapsuleStore {
  return {
    async insert(capsule, { livingMax, creation }) {
      await db.transaction().execute(async (transaction) => {
        await lockSession(transaction, capsule)
        const { count } = await transaction
          .selectFrom('sessionCapsules')
          .select((select) => select.fn.countAll<number>().as('count'))
          .where('sessionId', '=', capsule.sessionId)
          .where('reason', 'is', null)
          .where(livesAt(capsule.createdAt))
          .executeTakeFirstOrThrow()
        if (count >= livingMax) {
          const details = { limit: livingMax }
          throw new ServiceError('conflict', `the session has ${count} capsules, the most that may live`, { details })
        }
        await recordMade(transaction, creation, capsule.id)
        await transaction.insertInto('sessionCapsules').values(capsule).execute()
      })
    },

    async insertOwn(capsule, keptMax) {
      await db.transaction().execute(async (transaction) => {
        await lockSession(transaction, capsule)
        await transaction.insertInto('sessionCapsules').values(capsule).execute()
        const newest = transaction
          .selectFrom('sessionCapsules')
          .select('id')
          .where('sessionId', '=', capsule.sessionId)
          .where('reason', 'is not', null)
          .orderBy('createdAt', 'desc')
          .orderBy('id', 'desc')
          .limit(keptMax)
        await transaction
          .deleteFrom('sessionCapsules')
          .where('sessionId', '=', capsule.sessionId)
          .where('reason', 'is not', null)
          .where('id', 'not in', newest)
          .execute()
      })
    },

    async find(sessionId, id) {
      const query = db.selectFrom('sessionCapsules').select(columns).where('id', '=', id)
      const row = await query.where('sessionId', '=', sessionId).executeTakeFirst()
      return row && present(row)
    },

    async living(tokenHash, now) {
      const query = db.selectFrom('sessionCapsules').select(columns).where('tokenHash', '=', tokenHash)
      const row = await query.where(livesAt(now)).executeTakeFirst()
      return row && present(row)
    },

    async list(sessionId, now) {
      const rows = await db
        .selectFrom('sessionCapsules')
        .select(columns)
        .where('sessionId', '=', sessionId)
        .where(livesAt(now))
        .orderBy('createdAt', 'desc')
        .orderBy('id', 'desc')
        .execute()
      return rows.map((row) => present(row))
    },

    async revoke(sessionId, id, now) {
      const row = await db
        .updateTable('sessionCapsules')
        .set({ revokedAt: sql<Date>`coalesce(revoked_at, ${now})` })
        .where('id', '=', id)
        .where('sessionId', '=', sessionId)
        .returning(columns)
        .executeTakeFirst()
      return row && present(row)
    },

    async addFork(id, now, max) {
      const { numUpdatedRows } = await db
        .updateTable('sessionCapsules')
        .set({ forks: sql<number>`forks + 1` })
        .where('id', '=', id)
        .where('forks', '<', max)
        .where(livesAt(now))
        .executeTakeFirstOrThrow()
      return numUpdatedRows > 0n
    },

    async removeFork(id) {
      await db
        .updateTable('sessionCapsules')
        .set({ forks: sql<number>`greatest(forks - 1, 0)` })
        .where('id', '=', id)
        .execute()
    },

    async neededCheckpoints(checkpointIds, now) {
      const rows = await db
        .selectFrom('sessionCapsules')
        .select('checkpointId')
        .where('checkpointId', '=', anyOf(checkpointIds))
        .where(livesAt(now))
        .execute()
      return new Set(rows.flatMap(({ checkpointId }) => checkpointId ?? []))
    },

    async deleteOver({ expiredBy, revokedBy }, limit) {
      const over = db
        .selectFrom('sessionCapsules')
        .select('id')
        .where((eb) => eb.or([eb('expiresAt', '<=', expiredBy), eb('revokedAt', '<=', revokedBy)]))
        .limit(limit)
      const rows = await db.deleteFrom('sessionCapsules').where('id', 'in', over).returning(columns).execute()
      return rows.map((row) => present(row))
    },
  }
}

function livesAt(now: Date) {
  return sql<boolean>`(revoked_at is null and expires_at > ${now})`
}

/** Counts are right while it is held. The session may be purged at any moment before. */
async function lockSession(transaction: Transaction<Database>, { sessionId }: NewCapsule): Promise<void> {
  const session = transaction.selectFrom('sessions').select('id').where('id', '=', sessionId)
  if ((await session.forNoKeyUpdate().executeTakeFirst()) !== undefined) return
  throw new ServiceError('not_found', `no session ${sessionId}`)
}
