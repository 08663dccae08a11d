import { sql } from 'kysely'
import type { Kysely } from 'kysely'

/**
 * How much of the input came from a cache and went into one, and what the calls have cost. The cost of those before is not known:
 * a null, to which nothing can be added.
 */
const statements = [
  'alter table sessions add column cache_read_tokens bigint not null default 0',
  'alter table sessions add column cache_write_tokens bigint not null default 0',
  'alter table sessions add column cost_nano_usd bigint',
  'update sessions set cost_nano_usd = 0 where input_tokens + output_tokens = 0',
]

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
