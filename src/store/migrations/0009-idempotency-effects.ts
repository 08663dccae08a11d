import { sql } from 'kysely'
import type { Kysely } from 'kysely'

/**
 * What a request under an `Idempotency-Key` has made. Nobody knows it of requests that an earlier version left unfinished: their
 * keys match no request any more, so that nothing is done twice.
 */
const statements = [
  `alter table idempotency_keys
    add column seed text not null default '',
    add column made text[] not null default '{}'`,
  `update idempotency_keys set request_hash = '' where status_code is null`,
]

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
