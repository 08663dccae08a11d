import { sql } from 'kysely'
import type { Kysely } from 'kysely'

/** Where a session's conversation comes from, and the sandbox whose checkpoint is to be removed when the fork has started. */
const statements = [
  'alter table sessions add column forked_from text collate "C"',
  'alter table sessions add column fork_checkpoint_of text collate "C"',
]

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
