import { sql } from 'kysely'
import type { Kysely } from 'kysely'
import { FairYield } from '../lib/async/fair-yield.ts'
import type { Database } from './schema.ts'

/** Of histories that one statement looks into: the database, which may have one connection alone, has other work. */
const bytesAtOnce = 4 * 1024 * 1024
/** Messages of one session that one statement looks into. */
const messagesAtOnce = 10_000

interface Searched {
  id: string
  /** Of its history. */
  bytes: number
}

/** Of all searches: one statement of one of them between two looks at what else there is to do. */
const statements = new FairYield(1)

/**
 * Those of the sessions whose title, or one of whose messages, matches the pattern; the first ones, up to `limit`. No index
 * helps, so it looks into them part by part.
 */
export async function matching(
  db: Kysely<Database>,
  sessions: readonly Searched[],
  { pattern, limit }: { pattern: string; limit: number },
): Promise<string[]> {
  const found: string[] = []
  for (const group of groups(sessions)) {
    const [first] = group
    const isLong = first !== undefined && first.bytes > bytesAtOnce
    const ids = isLong ? await matchingLong(db, first.id, pattern) : await matchingShort(db, group, pattern)
    found.push(...group.map(({ id }) => id).filter((id) => ids.has(id)))
    if (found.length >= limit) return found.slice(0, limit)
    await statements.next()
  }
  return found
}

/** In order: many short ones together, a long one by itself. */
function* groups(sessions: readonly Searched[]): Generator<Searched[]> {
  let group: Searched[] = []
  let bytes = 0
  for (const session of sessions) {
    if (group.length > 0 && bytes + session.bytes > bytesAtOnce) {
      yield group
      group = []
      bytes = 0
    }
    group.push(session)
    bytes += session.bytes
  }
  if (group.length > 0) yield group
}

async function matchingShort(db: Kysely<Database>, group: readonly Searched[], pattern: string): Promise<Set<string>> {
  const ids = group.map(({ id }) => id)
  // Not `title … or exists (…)`: for that PostgreSQL may look into the messages of all sessions that there are.
  const rows = await db
    .selectFrom('sessions')
    .select('id')
    .where('id', 'in', ids)
    .where('title', 'ilike', pattern)
    .union((eb) =>
      eb
        .selectFrom('messages')
        .select('sessionId as id')
        .where('sessionId', 'in', ids)
        .where('content', 'ilike', pattern),
    )
    .execute()
  return new Set(rows.map(({ id }) => id))
}

async function matchingLong(db: Kysely<Database>, id: string, pattern: string): Promise<Set<string>> {
  const titled = db.selectFrom('sessions').select('id').where('id', '=', id).where('title', 'ilike', pattern)
  if ((await titled.executeTakeFirst()) !== undefined) return new Set([id])
  for (let last: number | null = 0; last !== null;) {
    await statements.next()
    const { rows } = await sql<{ found: boolean | null; last: number | null }>`
      select bool_or(content ilike ${pattern}) as found, max(position) as last from (
        select *, sum(octet_length(content)) over (order by position) - octet_length(content) as before from (
          select position, content from messages
          where session_id = ${id} and position > ${last} order by position limit ${messagesAtOnce}
        ) as limited
      ) as measured where before < ${bytesAtOnce}`.execute(db)
    if (rows[0]?.found === true) return new Set([id])
    last = rows[0]?.last ?? null
  }
  return new Set()
}
