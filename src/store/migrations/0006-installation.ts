import { sql } from 'kysely'
import type { Kysely } from 'kysely'

/** Which data directory the database belongs to, and checkpoints whose rows are gone while their data may be left. */
const statements = [
  `create table installation (
    is_only boolean primary key default true constraint installation_is_only check (is_only),
    id text collate "C" not null
  )`,
  'create table deleted_checkpoints (id text collate "C" primary key)',
]

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
