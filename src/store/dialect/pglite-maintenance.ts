import type { PGlite } from '@electric-sql/pglite'

export interface MaintenanceLimits {
  /** The interval of the checks. */
  checkMs?: number
  /** A checkpoint follows when the write-ahead log has grown by this much. A start after a crash replays little more. */
  walBytesMax?: number
  /** The interval of vacuums. */
  vacuumMs?: number
}

/**
 * Tables that have outgrown what the planner knows of them. It knows nothing of a new table, and reads all of it for a few rows then.
 * PGlite counts no changes, so their sizes tell.
 */
const outgrown = `
  select quote_ident(relname) as name from pg_class
  where relkind = 'r' and relnamespace = 'public'::regnamespace
    and pg_relation_size(oid) > 2 * current_setting('block_size')::bigint * greatest(relpages, 8)`

const defaults = { checkMs: 60_000, walBytesMax: 64 * 1024 * 1024, vacuumMs: 60 * 60 * 1000 }

/**
 * Runs the maintenance for which a PostgreSQL server has processes and PGlite has none. Without checkpoints the write-ahead log grows
 * for ever; without vacuum dead rows stay; without analyses the planner knows no table sizes. Returns a function that stops the
 * maintenance and waits for a running round.
 */
export function maintain(pglite: Pick<PGlite, 'query'>, limits: MaintenanceLimits = {}): () => Promise<void> {
  const { checkMs = defaults.checkMs, walBytesMax = defaults.walBytesMax, vacuumMs = defaults.vacuumMs } = limits
  let running: Promise<void> = Promise.resolve()
  let checkpointedAt = '0/0'
  let vacuumedMs = Date.now()

  const round = async () => {
    const { rows } = await pglite.query<{ lsn: string; bytes: number }>(
      'select pg_current_wal_lsn()::text as lsn, pg_wal_lsn_diff(pg_current_wal_lsn(), $1::pg_lsn)::float8 as bytes',
      [checkpointedAt],
    )
    const wal = rows[0]
    // The first round knows no earlier checkpoint and makes one.
    if (wal !== undefined && wal.bytes > walBytesMax) {
      await pglite.query('checkpoint')
      checkpointedAt = wal.lsn
    }
    if (Date.now() - vacuumedMs >= vacuumMs) {
      vacuumedMs = Date.now()
      await pglite.query('vacuum (analyze)')
    }
    const { rows: tables } = await pglite.query<{ name: string }>(outgrown)
    // One at a time: others use the database in between.
    for (const { name } of tables) await pglite.query(`analyze ${name}`)
  }

  const timer = setInterval(() => {
    running = running.then(round).catch((error: unknown) => {
      process.emitWarning(error instanceof Error ? error : String(error), { code: 'ATOLL_STORE_MAINTENANCE' })
    })
  }, checkMs)
  timer.unref()

  return async () => {
    clearInterval(timer)
    await running
  }
}
