import type { ExpressionBuilder, Kysely, Selectable } from 'kysely'
import type { SessionQuery } from '../session/store.ts'
import { decodeCursor, encodeCursor, page } from './cursor.ts'
import type { Database, SessionTable } from './schema.ts'
import { strict } from './text.ts'

/** Sessions that one page of a search looks into: no index helps, and the database has other work. */
const searchedMax = 500

interface ListedRows {
  rows: Selectable<SessionTable>[]
  nextCursor?: string
}

/** One page of a list, newest first; see `SessionStore.listSessions`. */
export async function listedRows(db: Kysely<Database>, query: SessionQuery): Promise<ListedRows> {
  const { limit, search } = query
  if (search === undefined) {
    const rows = await inOrder(db, query, limit + 1)
      .selectAll()
      .execute()
    const { items, ...next } = page(rows, countOnPage(rows, query))
    return { rows: items, ...next }
  }
  const looked = await inOrder(db, query, searchedMax + 1)
    .select(['id', 'createdAt'])
    .execute()
  const last = looked.length > searchedMax ? looked[searchedMax - 1] : undefined
  const ids = looked.slice(0, searchedMax).map(({ id }) => id)
  if (ids.length === 0) return { rows: [] }
  const found = await inOrder(db, { orgId: query.orgId }, limit + 1)
    .selectAll()
    .where('id', 'in', ids)
    .where((eb) => holds(eb, strict(search, 'search')))
    .execute()
  const { items, nextCursor = last && encodeCursor(last) } = page(found, countOnPage(found, query))
  return { rows: items, ...(nextCursor === undefined ? {} : { nextCursor }) }
}

/** How many of the first rows are on one page: `limit`, or fewer where their histories would be too large together. */
function countOnPage(
  rows: readonly Selectable<SessionTable>[],
  { limit, historyBytesMax = Infinity }: SessionQuery,
): number {
  let bytes = 0
  const beyond = rows.findIndex((row, index) => (bytes += row.historyBytes) > historyBytesMax && index > 0)
  return beyond < 0 ? limit : Math.min(limit, beyond)
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

function holds(eb: ExpressionBuilder<Database, 'sessions'>, text: string) {
  const pattern = `%${text.replaceAll(/[\\%_]/g, (character) => `\\${character}`)}%`
  const said = eb
    .selectFrom('messages')
    .select('messages.id')
    .whereRef('messages.sessionId', '=', 'sessions.id')
    .where('content', 'ilike', pattern)
  return eb.or([eb('title', 'ilike', pattern), eb.exists(said)])
}
