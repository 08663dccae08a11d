import { sql } from 'kysely'
import type { Kysely } from 'kysely'
import type { Log } from '../../lib/log.ts'

/** Rows that one batch looks at: some hundred milliseconds' work, and what an end in between has done again. */
const batchRowsMax = 1000
const progressMs = 10_000

/**
 * Does one batch in the transaction that it gets: the rows whose keys come after `after`, in the order of the keys, at most
 * `limit` of them. Returns the last key and how many rows there were; undefined when there were none.
 */
export type Backfill = (
  db: Kysely<unknown>,
  batch: { after: string | undefined; limit: number },
) => Promise<{ last: string; rows: number } | undefined>

export interface BackfillRun {
  name: string
  backfill: Backfill
  /** Throws when the database is not this server's any more. */
  check: () => void
  log: Log
}

/** What is left to do, since a transaction that has changed the schema: one row for each backfill that is not done. */
const table = 'create table if not exists schema_backfills (name text primary key, key text, rows bigint not null)'

/** In the transaction of the migration that it belongs to, so that neither is there without the other. */
export async function beginBackfill(transaction: Kysely<unknown>, name: string): Promise<void> {
  await sql.raw(table).execute(transaction)
  await sql`insert into schema_backfills (name, rows) values (${name}, 0)`.execute(transaction)
}

/** Goes on where the last committed batch has ended. Does nothing when the backfill was done before. */
export async function runBackfill(db: Kysely<unknown>, run: BackfillRun): Promise<void> {
  const { name, log } = run
  const { rows: tables } = await sql<{ there: boolean }>`
    select to_regclass('schema_backfills') is not null as there`.execute(db)
  if (tables[0]?.there !== true) return
  const startedMs = performance.now()
  const facts = (rows: number) => ({
    backfill: name,
    rows,
    seconds: Math.round((performance.now() - startedMs) / 1000),
  })
  let loggedMs = startedMs
  for (let batch = 0; ; batch++) {
    const state = await db.transaction().execute((transaction) => runBatch(transaction, run))
    if (state === undefined) return
    if (batch === 0) log.info(facts(state.rows), 'a backfill of the database runs')
    if (state.isDone) {
      log.info(facts(state.rows), 'a backfill of the database is done')
      return
    }
    if (performance.now() - loggedMs < progressMs) continue
    loggedMs = performance.now()
    log.info(facts(state.rows), 'a backfill of the database still runs')
  }
}

/** Undefined when there is nothing to do. `rows` are those of all batches. */
async function runBatch(
  transaction: Kysely<unknown>,
  { name, backfill, check }: BackfillRun,
): Promise<{ rows: number; isDone: boolean } | undefined> {
  const { rows: left } = await sql<{ key: string | null; rows: number }>`
    select key, rows from schema_backfills where name = ${name} for update`.execute(transaction)
  const [state] = left
  if (state === undefined) return undefined
  const after = state.key ?? undefined
  const done = await backfill(transaction, { after, limit: batchRowsMax })
  check()
  if (done === undefined) {
    await sql`delete from schema_backfills where name = ${name}`.execute(transaction)
    return { rows: state.rows, isDone: true }
  }
  if (done.last === after) throw new Error('a batch has ended at the key after which it began')
  const rows = state.rows + done.rows
  await sql`update schema_backfills set key = ${done.last}, rows = ${rows} where name = ${name}`.execute(transaction)
  return { rows, isDone: false }
}
