import { sql, type Kysely } from 'kysely'
import { Migrator } from 'kysely/migration'
import { isServiceError } from '../../errors.ts'
import { silentLog, type Log } from '../../lib/log.ts'
import { rethrowTranslated, translated } from '../errors.ts'
import { beginBackfill, runBackfill, type Backfill } from './backfill.ts'
import { migrationStatements } from './statements.ts'

const progressMs = 30_000

export interface Migration {
  /** Changes the schema, in one transaction with the other pending migrations up to the next backfill. */
  up(db: Kysely<unknown>): Promise<void>
  /** Fills large tables in batches after `up`. The next migration begins when it is done. */
  backfill?: Backfill
}

export type Migrations = Readonly<Record<string, Migration>>

/** All migrations by name, in the order of their numbers. */
export const migrations: Migrations = Object.fromEntries(
  Object.entries(migrationStatements).map(([name, statements]) => [
    name,
    { up: (db: Kysely<unknown>) => executeAll(db, statements) },
  ]),
)

/** One by one, so that an error names its statement. */
async function executeAll(db: Kysely<unknown>, statements: readonly string[]): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}

export interface MigrateOptions {
  migrations?: Migrations
  /** Throws when the database no longer belongs to this server. Called before each commit. */
  check?: () => void
  log?: Log
}

/**
 * Migrates the database to the newest schema. A start that is killed keeps what it has committed, batches of a backfill included,
 * and the next start continues there. Throws `unavailable` when the database does not answer.
 */
export async function migrate(
  db: Kysely<unknown>,
  { migrations: wanted = migrations, check = () => undefined, log = silentLog }: MigrateOptions = {},
): Promise<void> {
  const applied = await appliedMigrations(db).catch(rethrowTranslated)
  const unknown = applied.filter((name) => !(name in wanted))
  if (unknown.length > 0) {
    const what = `the database was written by a newer version of Atoll, or by one before 0.1.0 (${unknown.join(', ')})`
    throw new Error(`${what}; start that version instead, or begin with an empty database`)
  }
  // The creation of a new database is not logged.
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

/** Applies the migrations in one transaction. */
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
