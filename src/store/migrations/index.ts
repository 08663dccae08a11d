import { sql } from 'kysely'
import type { Kysely } from 'kysely'
import { Migrator } from 'kysely/migration'
import { isServiceError } from '../../errors.ts'
import { silentLog } from '../../lib/log.ts'
import type { Log } from '../../lib/log.ts'
import { rethrowTranslated, translated } from '../errors.ts'
import { up as initial } from './0001-initial.ts'
import { up as sessionOutput } from './0002-session-output.ts'
import { up as sessionForks } from './0003-session-forks.ts'
import { up as sessionHistory } from './0004-session-history.ts'
import { up as sessionPurge } from './0005-session-purge.ts'
import { up as installation } from './0006-installation.ts'
import { up as customDomains } from './0007-custom-domains.ts'
import { up as modelUsage } from './0008-model-usage.ts'
import { up as idempotencyEffects } from './0009-idempotency-effects.ts'
import { up as sessionWaits } from './0010-session-waits.ts'
import { up as hosts } from './0011-hosts.ts'
import { beginBackfill, runBackfill } from './backfill.ts'
import type { Backfill } from './backfill.ts'

const progressMs = 30_000

export interface Migration {
  /** Changes the schema, in one transaction with the other migrations that are missing up to the next backfill. */
  up(db: Kysely<unknown>): Promise<void>
  /** Fills in what `up` left to do in large tables, in batches. The next migration begins when it is done. */
  backfill?: Backfill
}

export type Migrations = Readonly<Record<string, Migration>>

/** All migrations by name, in order. A migration that was released never changes: what follows is a new one. */
export const migrations: Migrations = {
  '0001-initial': { up: initial },
  '0002-session-output': { up: sessionOutput },
  '0003-session-forks': { up: sessionForks },
  '0004-session-history': { up: sessionHistory },
  '0005-session-purge': { up: sessionPurge },
  '0006-installation': { up: installation },
  '0007-custom-domains': { up: customDomains },
  '0008-model-usage': { up: modelUsage },
  '0009-idempotency-effects': { up: idempotencyEffects },
  '0010-session-waits': { up: sessionWaits },
  '0011-hosts': { up: hosts },
}

export interface MigrateOptions {
  migrations?: Migrations
  /** Throws when the database is not this server's any more; asked before each commit. */
  check?: () => void
  log?: Log
}

/**
 * Brings the database to the newest schema. Whatever was committed before an early end, a batch of a backfill included, is not
 * done again by the next start. Throws `unavailable` when the database does not answer.
 */
export async function migrate(
  db: Kysely<unknown>,
  { migrations: wanted = migrations, check = () => undefined, log = silentLog }: MigrateOptions = {},
): Promise<void> {
  const applied = await appliedMigrations(db).catch(rethrowTranslated)
  if (applied.some((name) => !(name in wanted))) {
    throw new Error('the database was written by a newer version of Atoll; start that version instead')
  }
  // A database that is being made has nothing to tell of.
  const context = { migrations: wanted, check, log: applied.length === 0 ? silentLog : log }
  const together: string[] = []
  for (const [name, { backfill }] of Object.entries(wanted)) {
    if (!applied.includes(name)) together.push(name)
    if (backfill === undefined) continue
    await apply(db, together.splice(0), context)
    await runBackfill(db, { name, backfill, check, log: context.log }).catch((error: unknown) => {
      throw failure(error, name)
    })
  }
  await apply(db, together, context)
}

async function appliedMigrations(db: Kysely<unknown>): Promise<string[]> {
  const { rows: tables } = await sql<{ there: boolean }>`
    select to_regclass('schema_migrations') is not null as there`.execute(db)
  if (tables[0]?.there !== true) return []
  const { rows } = await sql<{ name: string }>`select name from schema_migrations`.execute(db)
  return rows.map(({ name }) => name)
}

/** All in one transaction. */
async function apply(
  db: Kysely<unknown>,
  names: readonly string[],
  { migrations: wanted, check, log }: Required<MigrateOptions>,
): Promise<void> {
  const last = names.at(-1)
  if (last === undefined) return
  const steps = Object.entries(wanted).map(([name, migration]) => {
    const step = async (transaction: Kysely<unknown>) => {
      await logged(log, name, () => migration.up(transaction))
      if (migration.backfill !== undefined) await beginBackfill(transaction, name)
      check()
    }
    return [name, { up: step }] as const
  })
  const migrator = new Migrator({
    db,
    provider: { getMigrations: () => Promise.resolve(Object.fromEntries(steps)) },
    migrationTableName: 'schema_migrations',
    migrationLockTableName: 'schema_migration_lock',
  })
  const { error, results } = await migrator.migrateTo(last)
  if (error !== undefined) throw failure(error, results?.find(({ status }) => status === 'Error')?.migrationName)
}

async function logged(log: Log, migration: string, work: () => Promise<void>): Promise<void> {
  const startedMs = performance.now()
  const seconds = () => Math.round((performance.now() - startedMs) / 1000)
  log.info({ migration }, 'a migration of the database begins')
  const timer = setInterval(() => {
    log.info({ migration, seconds: seconds() }, 'a migration of the database still runs')
  }, progressMs)
  try {
    await work()
  } finally {
    clearInterval(timer)
  }
  log.info({ migration, seconds: seconds() }, 'a migration of the database is done')
}

function failure(error: unknown, name: string | undefined): unknown {
  const known = translated(error)
  if (isServiceError(known, 'unavailable')) return known
  return new Error(`the database could not be migrated${name === undefined ? '' : ` (${name})`}`, { cause: error })
}
