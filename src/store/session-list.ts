import { sql } from 'kysely'
import type { Kysely } from 'kysely'
import type { SessionQuery } from '../session/store.ts'
import { decodeCursor, page } from './cursor.ts'
import type { Position } from './cursor.ts'
import type { Database } from './schema.ts'
import { shortColumns } from './session-rows.ts'
import type { ShortRow } from './session-rows.ts'
import { matching } from './session-search.ts'
import { strict } from './text.ts'

/** Sessions that one page of a search looks into, and their histories together: on PGlite a mebibyte takes 10 to 14 ms. */
const searchedMax = 500
const searchedBytesMax = 32 * 1024 * 1024

/** Rows read at once: each can have artifacts of a hundred kilobytes and more. */
const rowsAtOnce = 8

interface ListedRows {
  rows: ShortRow[]
  nextCursor?: string
}

interface Measured extends Position {
  bytes: number
}

/** What an answer tells of a session. What it leaves out of the configuration is not read. */
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
  const ids = items.map(({ id }) => id)
  const rows: ShortRow[] = []
  for (let start = 0; start < ids.length; start += rowsAtOnce) {
    const some = ids.slice(start, start + rowsAtOnce)
    rows.push(...(await inOrder(db, { orgId }, limit).select(shortColumns).where('id', 'in', some).execute()))
  }
  return { rows, ...(nextCursor === undefined ? {} : { nextCursor }) }
}

/** The sessions that one page of a search finds, one too many if there are so many, and where the next one goes on. */
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

/** How many of the first rows hold no more than this together; at least one. */
function countWithin(rows: readonly Measured[], bytesMax: number): number {
  let bytes = 0
  const beyond = rows.findIndex((row, index) => (bytes += row.bytes) > bytesMax && index > 0)
  return beyond < 0 ? rows.length : beyond
}

function inOrder(
  db: Kysely<Database>,
  { orgId, userId, cursor }: Pick<SessionQuery, 'orgId' | 'userId' | 'cursor'>,
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
  if (after !== undefined) {
    rows = rows.where((eb) => eb(eb.refTuple('createdAt', 'id'), '<', eb.tuple(after.createdAt, after.id)))
  }
  return rows
}
