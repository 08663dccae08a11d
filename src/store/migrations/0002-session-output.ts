import { sql } from 'kysely'
import type { Kysely } from 'kysely'

/** What a session's stream takes on disk, and which turn is to end: both outlive the server that knows them. */
const statements = [
  'alter table sessions add column stream_bytes bigint not null default 0',
  `update sessions set stream_bytes = coalesce(
    (select sum(octet_length(data::text)) from stream_events where session_id = sessions.id), 0)`,
  'alter table sessions add column interrupted_message_id text collate "C"',
]

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
