import { sql } from 'kysely'
import type { Kysely } from 'kysely'

/**
 * What a session waits for and since when; how often a sandbox was put back to a checkpoint in place, and how many of those
 * restores its session has taken note of.
 */
const statements = [
  'alter table sessions add column waiting_for text collate "C"',
  'alter table sessions add column waiting_since timestamptz(3)',
  'alter table sandboxes add column restores integer not null default 0',
  'alter table sessions add column sandbox_restores integer not null default 0',
]

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
