import { sql, type Kysely } from 'kysely'
import { batches } from '../lib/batches.ts'
import { sessionEntry } from '../session/log-entries.ts'
import { deleteUnusedAgentConfigs } from './agent-configs.ts'
import type { LogWriter } from './event-log.ts'
import { anyOf } from './rows.ts'
import type { Database } from './schema.ts'

/** Bytes per statement, which PostgreSQL cancels after half a minute. */
const batchBytesMax = 8 * 1024 * 1024
const batchRowsMax = 1000
/** The cost of a row beside its bytes. */
const rowBytes = 256

/**
 * Deletes sessions with their history and the configurations that no session uses any more: small sessions in batches, a large
 * one in parts. An interrupted call can leave a session without the end of its stream; the next call deletes the rest.
 */
export async function deleteSessions(db: Kysely<Database>, writer: LogWriter, ids: readonly string[]): Promise<void> {
  const bytes = sql<number>`stream_bytes + history_bytes + last_sequence::bigint * ${sql.lit(rowBytes)}`.as('bytes')
  const sessions = await db.selectFrom('sessions').select(['id', bytes]).where('id', '=', anyOf(ids)).execute()
  for (const batch of batches(sessions, (session) => session.bytes, {
    sizeMax: batchBytesMax,
    countMax: batchRowsMax,
  })) {
    const [first] = batch
    if (first !== undefined && first.bytes > batchBytesMax) await deleteHistory(db, first.id)
    await writer.transaction(db, async (transaction, note) => {
      const sessionsOf = transaction.deleteFrom('sessions').where('id', '=', anyOf(batch.map(({ id }) => id)))
      const deleted = await sessionsOf.returning(['id', 'orgId', 'sandboxId']).execute()
      for (const session of deleted) note(session.orgId, sessionEntry('deleted', session))
    })
  }
  await deleteUnusedAgentConfigs(db)
}

async function deleteHistory(db: Kysely<Database>, sessionId: string): Promise<void> {
  while (await shortenStream(db, sessionId));
  for (const table of ['messages', 'session_events']) {
    const of = sql`from ${sql.table(table)} where session_id = ${sessionId}`
    const some = sql`delete ${of} and position in (select position ${of} limit ${batchRowsMax})`
    while (((await some.execute(db)).numAffectedRows ?? 0n) > 0n);
  }
}

/** Deletes the newest events first, so a concurrent reader sees a shorter stream without a gap. */
async function shortenStream(db: Kysely<Database>, sessionId: string): Promise<boolean> {
  return await db.transaction().execute(async (transaction) => {
    // PostgreSQL knows the size on disk without reading the text. A single event is smaller than a batch.
    const { rows } = await sql<{ first: number | null }>`
      select min(sequence) as first from (
        select sequence, sum(pg_column_size(data)) over (order by sequence desc) as bytes from (
          select sequence, data from stream_events where session_id = ${sessionId} order by sequence desc limit ${batchRowsMax}
        ) as newest
      ) as summed where bytes <= ${batchBytesMax}`.execute(transaction)
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
