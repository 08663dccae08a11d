import { sql } from 'kysely'
import type { Kysely } from 'kysely'
import type { Database } from './schema.ts'

/** Of one statement: on PGlite all others wait for it, and PostgreSQL gives up one that takes half a minute. */
const bytesAtOnce = 8 * 1024 * 1024
const rowsAtOnce = 1000
/** What a row costs beside its bytes. */
const rowBytes = 256

/**
 * Forgets the sessions that ended before this time: small ones together, a large one in parts. What an interrupted purge leaves,
 * which may be a session without the end of its stream, is for the next one.
 */
export async function purgeSessions(db: Kysely<Database>, endedBefore: Date): Promise<number> {
  const ended = db.selectFrom('sessions').where('status', '=', 'ended').where('updatedAt', '<', endedBefore)
  const bytes = sql<number>`stream_bytes + history_bytes + last_sequence::bigint * ${sql.lit(rowBytes)}`.as('bytes')
  for (let count = 0; ;) {
    const [first, ...others] = await ended.select(['id', bytes]).limit(rowsAtOnce).execute()
    if (first === undefined) return count
    if (first.bytes > bytesAtOnce) await empty(db, first.id)
    let sum = first.bytes
    const together = [first, ...others.filter((one) => (sum += one.bytes) <= bytesAtOnce)]
    const ids = together.map(({ id }) => id)
    const { numDeletedRows } = await db.deleteFrom('sessions').where('id', 'in', ids).executeTakeFirstOrThrow()
    count += Number(numDeletedRows)
  }
}

async function empty(db: Kysely<Database>, sessionId: string): Promise<void> {
  while (await shortenStream(db, sessionId));
  for (const table of ['messages', 'session_events']) {
    const of = sql`from ${sql.table(table)} where session_id = ${sessionId}`
    const some = sql`delete ${of} and position in (select position ${of} limit ${rowsAtOnce})`
    while (((await some.execute(db)).numAffectedRows ?? 0n) > 0n);
  }
}

/** Removes the newest events. Whoever reads the stream meanwhile finds one that is shorter and has no hole. */
async function shortenStream(db: Kysely<Database>, sessionId: string): Promise<boolean> {
  return await db.transaction().execute(async (transaction) => {
    // The size on disk is known without a look at the text. Of one event it is less than a statement may take.
    const { rows } = await sql<{ first: number | null }>`
      select min(sequence) as first from (
        select sequence, sum(pg_column_size(data)) over (order by sequence desc) as bytes from (
          select sequence, data from stream_events where session_id = ${sessionId} order by sequence desc limit ${rowsAtOnce}
        ) as newest
      ) as summed where bytes <= ${bytesAtOnce}`.execute(transaction)
    const first = rows[0]?.first ?? undefined
    if (first === undefined) return false
    await transaction
      .deleteFrom('streamEvents')
      .where('sessionId', '=', sessionId)
      .where('sequence', '>=', first)
      .execute()
    await transaction
      .updateTable('sessions')
      .set({ lastSequence: first - 1 })
      .where('id', '=', sessionId)
      .execute()
    return true
  })
}
