import { sql, type ExpressionBuilder, type Kysely, type Transaction } from 'kysely'
import { ServiceError } from '../errors.ts'
import type { Claim, Creation, CreationNote, IdempotencyState, StoredResponse } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import type { Database } from './schema.ts'
import { lenientJson, strict } from './text.ts'

/** How long a key replays its response (docs/use/api.md § Conventions). */
const doneMs = 24 * 60 * 60 * 1000
/** Rows per statement, whose time is limited: each can hold an answer of 64 KiB. */
const purgedAtOnce = 1000
/** Attempts of `begin` when a conflicting entry disappears concurrently. */
const attemptsMax = 5

/** The physical location of a row: the primary key has two columns. */
const row = sql<string>`ctid`

/**
 * The state of requests by organisation and `Idempotency-Key`. The caller of `begin` must prevent concurrent runs of one request; the store
 * keeps the state that outlives a run (`docs/internals/store.md` § Keys of requests).
 */
export interface IdempotencyStore {
  /**
   * `requestHash` names method, path and body; the claim's seed is for a key without an entry, or with an expired one. Throws
   * `invalid_request` for a key with NUL characters.
   */
  begin(claim: Claim, requestHash: string, now: Date): Promise<IdempotencyState>
  /** Stores the response, also of an undone request, unless the key has another life by now. `requestHash` and `begun` are those of `begin`. */
  finish(claim: Claim, requestHash: string, begun: Date, response: StoredResponse): Promise<void>
  /** Frees the key after a failure that must not be replayed. An entry that lists records, or has a response, stays. */
  abandon(claim: Claim): Promise<void>
  /** Deletes all entries begun before the moment. Returns their number. */
  purge(before: Date): Promise<number>
}

export function idempotencyStore(db: Kysely<Database>): IdempotencyStore {
  /** Inserts the entry, or takes over an expired one. */
  const claimed = async ({ orgId, key, seed }: Claim, requestHash: string, now: Date): Promise<boolean> => {
    const inserted = await db
      .insertInto('idempotencyKeys')
      .values({ orgId, key: strict(key, 'Idempotency-Key'), requestHash, seed, createdAt: now })
      .onConflict((conflict) =>
        conflict
          .columns(['orgId', 'key'])
          .doUpdateSet({ requestHash, seed, made: [], statusCode: null, body: null, headers: null, createdAt: now })
          .where('idempotencyKeys.createdAt', '<', new Date(now.getTime() - doneMs)),
      )
      .returning('key')
      .executeTakeFirst()
    return inserted !== undefined
  }

  return {
    async begin(claim, requestHash, now) {
      for (let attempt = 0; attempt < attemptsMax; attempt++) {
        if (await claimed(claim, requestHash, now)) return { state: 'claimed', seed: claim.seed, made: [] }
        const entry = await db
          .selectFrom('idempotencyKeys')
          .select(['requestHash', 'seed', 'made', 'statusCode', 'body', 'headers'])
          .where('orgId', '=', claim.orgId)
          .where('key', '=', claim.key)
          .executeTakeFirst()
        if (entry === undefined) continue
        if (entry.requestHash !== requestHash) return { state: 'conflict' }
        const { seed, made, statusCode, body, headers } = entry
        if (statusCode === null) return { state: 'claimed', seed, made }
        return { state: 'done', statusCode, body: body ?? '', ...defined({ headers: headers ?? undefined }) }
      }
      throw new ServiceError('unavailable', 'the entry of the Idempotency-Key keeps changing')
    },

    async finish(claim, requestHash, begun, { statusCode, body, headers }) {
      const response = { statusCode, body, headers: headers === undefined ? null : lenientJson(headers) }
      await db
        .insertInto('idempotencyKeys')
        .values({ ...claim, requestHash, createdAt: begun, ...response })
        .onConflict((conflict) =>
          conflict.columns(['orgId', 'key']).doUpdateSet(response).where('idempotencyKeys.seed', '=', claim.seed),
        )
        .execute()
    },

    async abandon(claim) {
      await db
        .deleteFrom('idempotencyKeys')
        .where(isOf(claim))
        .where('statusCode', 'is', null)
        .where(sql<boolean>`made = '{}'`)
        .execute()
    },

    async purge(before) {
      const old = db.selectFrom('idempotencyKeys').where('createdAt', '<', before).limit(purgedAtOnce)
      for (let count = 0; ;) {
        const { numDeletedRows } = await db
          .deleteFrom('idempotencyKeys')
          .where(row, 'in', old.select(row.as('row')))
          .executeTakeFirstOrThrow()
        if (numDeletedRows === 0n) return count
        count += Number(numDeletedRows)
      }
    },
  }
}

/**
 * Adds the id of a record to the row of the key, in the transaction that creates the record. Throws `conflict`, and the transaction creates
 * nothing, when another transaction has created it. A commit with an unknown outcome may still run in the database; the update waits
 * for its row lock.
 */
export async function recordMade(
  transaction: Transaction<Database>,
  creation: Creation | undefined,
  id: string,
): Promise<void> {
  if (creation === undefined) return
  const { numUpdatedRows } = await rowOf(transaction, creation)
    .set({ made: sql<string[]>`array_append(made, ${id}::text)` })
    .where(creation.isPart ? sql<boolean>`${id}::text <> all(made)` : sql<boolean>`made = '{}'`)
    .executeTakeFirstOrThrow()
  if (numUpdatedRows > 0n) return
  throw new ServiceError('conflict', 'the first request with this Idempotency-Key is still running')
}

/** Records the outcome of a record. When everything that a request has created is undone, its key is free again. */
export async function recordOutcome(
  transaction: Transaction<Database>,
  { creation, outcome }: CreationNote,
  id: string,
): Promise<void> {
  if (outcome === 'made') return await recordMade(transaction, creation, id)
  if (creation.isPart) {
    await rowOf(transaction, creation)
      .set({ made: sql<string[]>`array_remove(made, ${id}::text)` })
      .execute()
    return
  }
  await transaction.deleteFrom('idempotencyKeys').where(isOf(creation.claim)).execute()
}

function rowOf(transaction: Transaction<Database>, { claim }: Creation) {
  return transaction.updateTable('idempotencyKeys').where(isOf(claim))
}

/** Matches the row of a key while it has the life of the claim. */
function isOf({ orgId, key, seed }: Claim) {
  return (eb: ExpressionBuilder<Database, 'idempotencyKeys'>) => eb.and({ orgId, key, seed })
}
