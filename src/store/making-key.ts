import { sql } from 'kysely'
import { whoActs } from '../events/index.ts'

/** The `keyId` of a new record: the key that acts, or for a session's token and agent the key that made the session; null for none. */
export function makingKey() {
  const { type, id } = whoActs().actor
  if (type === 'key') return id ?? null
  if (type !== 'token' && type !== 'agent') return null
  return sql<string | null>`(select key_id from sessions where id = ${id ?? null})`
}
