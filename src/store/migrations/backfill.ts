import { sql, type Kysely } from 'kysely'
import type { Log } from '../../lib/log.ts'

/** Rows per batch: some hundred milliseconds of work, which an interrupted start repeats. */
const batchRowsMax = 1000
const progressMs = 10_000

/**
 * Processes one batch inside the given transaction: at most `limit` rows with keys after `after`, in the order of the keys. Returns the last
 * key and the number of rows; undefined when no rows are left.
 */
export type Backfill = (
  db: Kysely<unknown>,
  batch: { after: string | undefined; limit: number },
) => Promise<{ last: string; rows: number } | undefined>

export interface BackfillRun {
  name: string
  backfill: Backfill
  /** Throws when the database no longer belongs to this server. */
  check: () => void
  log: Log
}

/** The unfinished backfills, one row each. */
const table = 'create table if not exists schema_backfills (name text primary key, key text, rows bigint not null)'

/** Runs in the transaction of the migration, so that neither is committed without the other. */
export async function beginBackfill(transaction: Kysely<unknown>, name: string): Promise<void> {
  await sql.raw(table).execute(transaction)
  await sql`insert into schema_backfills (name, rows) values (${name}, 0)`.execute(transaction)
}

/** Continues after the last committed batch. Does nothing when the backfill is done. */
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

/** Undefined when there is nothing to do. `rows` counts all batches so far. */
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
