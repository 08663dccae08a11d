import { sql } from 'kysely'
import { Migrator } from 'kysely/migration'
import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'
import { isServiceError } from '../../errors.ts'
import { translated } from '../errors.ts'
import { up as initial } from './0001-initial.ts'
import { up as sessionOutput } from './0002-session-output.ts'
import { up as sessionForks } from './0003-session-forks.ts'
import { up as sessionHistory } from './0004-session-history.ts'
import { up as sessionPurge } from './0005-session-purge.ts'
import { up as installation } from './0006-installation.ts'
import { up as customDomains } from './0007-custom-domains.ts'
import { up as modelUsage } from './0008-model-usage.ts'
import { up as sessionWaits } from './0010-session-waits.ts'

/** All migrations by name, in order. A migration that was released never changes: what follows is a new one. */
export const migrations: Record<string, Migration> = {
  '0001-initial': { up: initial },
  '0002-session-output': { up: sessionOutput },
  '0003-session-forks': { up: sessionForks },
  '0004-session-history': { up: sessionHistory },
  '0005-session-purge': { up: sessionPurge },
  '0006-installation': { up: installation },
  '0007-custom-domains': { up: customDomains },
  '0008-model-usage': { up: modelUsage },
  '0010-session-waits': { up: sessionWaits },
}

/**
 * Brings the database to the newest schema, all in one transaction.
 * Throws `unavailable` when the database does not answer.
 */
export async function migrate<Schema>(db: Kysely<Schema>): Promise<void> {
  const migrator = new Migrator({
    db,
    provider: { getMigrations: () => Promise.resolve(migrations) },
    migrationTableName: 'schema_migrations',
    migrationLockTableName: 'schema_migration_lock',
  })
  const { error, results } = await migrator.migrateToLatest()
  if (error === undefined) return
  const told = translated(error)
  if (isServiceError(told, 'unavailable')) throw told
  if (await isNewer(db)) {
    throw new Error('the database was written by a newer version of Atoll; start that version instead', {
      cause: error,
    })
  }
  const failed = results?.find((result) => result.status === 'Error')?.migrationName
  throw new Error(`the database could not be migrated${failed === undefined ? '' : ` (${failed})`}`, { cause: error })
}

async function isNewer<Schema>(db: Kysely<Schema>): Promise<boolean> {
  try {
    const { rows } = await sql<{ name: string }>`select name from schema_migrations`.execute(db)
    return rows.some(({ name }) => !(name in migrations))
  } catch {
    // The failure that brought us here is told anyway.
    return false
  }
}
