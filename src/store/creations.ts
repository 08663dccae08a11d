import { sql } from 'kysely'
import type { Transaction } from 'kysely'
import { ServiceError } from '../errors.ts'
import type { Creation, CreationNote } from '../lib/creation.ts'
import type { Database } from './schema.ts'

/**
 * Writes into the key's row what this transaction makes. Throws `conflict`, so that it makes nothing, where another one has
 * made it: a commit whose end nobody heard of may still be under way in the database, and its lock on the row is waited for.
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

/** Takes note of what became of what has this id. With all that a request made the request is undone, and its key free again. */
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
  const { orgId, key, seed } = creation.claim
  await transaction
    .deleteFrom('idempotencyKeys')
    .where('orgId', '=', orgId)
    .where('key', '=', key)
    .where('seed', '=', seed)
    .execute()
}

function rowOf(transaction: Transaction<Database>, { claim: { orgId, key, seed } }: Creation) {
  return transaction
    .updateTable('idempotencyKeys')
    .where('orgId', '=', orgId)
    .where('key', '=', key)
    .where('seed', '=', seed)
}
