import { sql } from 'kysely'
import type { Kysely } from 'kysely'

/** A purge asks of each configuration whether a session still has it. */
const statements = ['create index sessions_agent_config on sessions (agent_config_hash)']

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
