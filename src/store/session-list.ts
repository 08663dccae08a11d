import { sql, type Kysely } from 'kysely'
import { batches } from '../lib/batches.ts'
import { defined } from '../lib/defined.ts'
import type { SessionQuery } from '../session/store.ts'
import { decodeCursor, page, type Position, within } from './rows.ts'
import type { Database } from './schema.ts'
import { shortColumns, type ShortRow } from './session-rows.ts'
import { strict } from './text.ts'

/** Sessions per page of a search, and the bytes of their histories: a mebibyte takes about 10 ms. */
const searchedMax = 500
const searchedBytesMax = 32 * 1024 * 1024

interface ListedRows {
  rows: ShortRow[]
  nextCursor?: string
}

interface Measured extends Position {
  bytes: number
}

/** The bytes of a session in an answer. The unread part of the configuration does not count. */
const toldBytes = sql<number>`history_bytes + octet_length(artifacts::text)`.as('bytes')

/** One page of a list, newest first; see `SessionStore.listSessions`. */
export async function listedRows(db: Kysely<Database>, query: SessionQuery): Promise<ListedRows> {
  const { orgId, limit, search, historyBytesMax = Infinity } = query
  const looked = search === undefined ? undefined : await searched(db, query, search)
  let candidates = inOrder(db, looked === undefined ? query : { orgId }, limit + 1)
  if (looked !== undefined) {
    const { ids, ...next } = looked
    if (ids.length === 0) return { rows: [], ...next }
    candidates = candidates.where('id', 'in', ids)
  }
  const measured = await candidates.select(['id', 'createdAt', toldBytes]).execute()
  const fitting = Math.min(limit, countWithin(measured, historyBytesMax))
  const { items, nextCursor = looked?.nextCursor } = page(measured, fitting)
  const rows = new Map<string, ShortRow>()
  for (const group of batches(items, ({ bytes }) => bytes, { sizeMax: bytesAtOnce })) {
    const ids = group.map(({ id }) => id)
    // By ids and without an order, for which PostgreSQL might read all sessions of the organisation.
    for (const row of await db.selectFrom('sessions').select(shortColumns).where('id', 'in', ids).execute())
      rows.set(row.id, row)
  }
  return { rows: items.flatMap(({ id }) => rows.get(id) ?? []), ...defined({ nextCursor }) }
}

/** The sessions found by one page of a search, one more than the limit if possible, and the cursor of the next page. */
async function searched(
  db: Kysely<Database>,
  query: SessionQuery,
  search: string,
): Promise<{ ids: string[]; nextCursor?: string }> {
  const pattern = `%${strict(search, 'search').replaceAll(/[\\%_]/g, (character) => `\\${character}`)}%`
  const rows = await inOrder(db, query, searchedMax + 1)
    .select(['id', 'createdAt', 'historyBytes as bytes'])
    .execute()
  const { items, ...next } = page(rows, Math.min(searchedMax, countWithin(rows, searchedBytesMax)))
  return { ids: await matching(db, items, { pattern, limit: query.limit + 1 }), ...next }
}

/** The number of first rows that hold at most `bytesMax` together; at least one. */
function countWithin(rows: readonly Measured[], bytesMax: number): number {
  let bytes = 0
  const beyond = rows.findIndex((row, index) => (bytes += row.bytes) > bytesMax && index > 0)
  return beyond < 0 ? rows.length : beyond
}

function inOrder(
  db: Kysely<Database>,
  { orgId, userId, reach, cursor }: Pick<SessionQuery, 'orgId' | 'userId' | 'reach' | 'cursor'>,
  limit: number,
) {
  const after = cursor === undefined ? undefined : decodeCursor(cursor)
  let rows = db
    .selectFrom('sessions')
    .where('orgId', '=', orgId)
    .orderBy('createdAt', 'desc')
    .orderBy('id', 'desc')
    .limit(limit)
  if (userId !== undefined) rows = rows.where('userId', '=', userId)
  if (reach !== undefined) rows = rows.where(within(reach, 'sessions'))
  if (after !== undefined) {
    rows = rows.where((eb) => eb(eb.refTuple('createdAt', 'id'), '<', eb.tuple(after.createdAt, after.id)))
  }
  return rows
}

/** Bytes of history per statement: searches must not keep the connections from other callers for long. */
const bytesAtOnce = 4 * 1024 * 1024
/** Messages of one session per statement. */
const messagesAtOnce = 10_000

/**
 * Returns the first sessions, up to `limit`, with a title or a message that matches the pattern. No index helps, so it searches the
 * histories in bounded statements.
 */
async function matching(
  db: Kysely<Database>,
  sessions: readonly Omit<Measured, 'createdAt'>[],
  { pattern, limit }: { pattern: string; limit: number },
): Promise<string[]> {
  const found: string[] = []
  for (const group of batches(sessions, ({ bytes }) => bytes, { sizeMax: bytesAtOnce })) {
    const [first] = group
    const isLong = first !== undefined && first.bytes > bytesAtOnce
    const ids = isLong ? await matchingLong(db, first.id, pattern) : await matchingShort(db, group, pattern)
    found.push(...group.map(({ id }) => id).filter((id) => ids.has(id)))
    if (found.length >= limit) return found.slice(0, limit)
  }
  return found
}

async function matchingShort(
  db: Kysely<Database>,
  group: readonly Omit<Measured, 'createdAt'>[],
  pattern: string,
): Promise<Set<string>> {
  const ids = group.map(({ id }) => id)
  // Not `title … or exists (…)`: PostgreSQL might then read the messages of all sessions.
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
