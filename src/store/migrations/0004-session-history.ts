import { sql } from 'kysely'
import type { Kysely } from 'kysely'

/** What a session's messages and events hold, nearly: what the server adds from now on it counts to the byte. */
const statements = [
  'alter table sessions add column history_bytes bigint not null default 0',
  `update sessions set history_bytes =
    coalesce((select sum(octet_length(content) + 128) from messages where session_id = sessions.id), 0) +
    coalesce((select sum(octet_length(message) + 128) from session_events where session_id = sessions.id), 0)`,
]

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
