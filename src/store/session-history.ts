import { sql, type Kysely, type RawBuilder, type Selectable } from 'kysely'
import { storedEvent, type Message, type SessionEvent } from '../session/session.ts'
import { rowPageBytes, streamPageBytes, type History, type RowPage, type SessionStore } from '../session/store.ts'
import { anyOf, present } from './rows.ts'
import type { Database, MessageTable } from './schema.ts'

const messageColumns = ['id', 'role', 'content', 'state', 'turnId', 'isLeft', 'createdAt'] as const
const eventColumns = ['id', 'type', 'level', 'message', 'createdAt'] as const
type MessageRow = Pick<Selectable<MessageTable>, (typeof messageColumns)[number]>

/** The table, its columns, and the column whose length bounds a page. */
type PagedTable = readonly [table: string, columns: readonly string[], text: string]
const allRows = sql<boolean>`true`
const inForce = sql<boolean>`not is_left`
const messagePages: PagedTable = ['messages', messageColumns, 'content']
const eventPages: PagedTable = ['sessionEvents', eventColumns, 'message']

/** Reads the messages, the session events and the stream events of a session. */
export function sessionHistory(db: Kysely<Database>) {
  const messagesOf = (sessionId: string) =>
    db.selectFrom('messages').select(messageColumns).where('sessionId', '=', sessionId)

  return {
    async messages(sessionId, page) {
      const some = page?.branch === 'all' ? allRows : inForce
      const rows =
        page === undefined
          ? await messagesOf(sessionId).where(some).orderBy('position').execute()
          : await pageOf<MessageRow>(db, messagePages, sessionId, page, some)
      return rows.map(messageOf)
    },

    async message(sessionId, id) {
      const row = await messagesOf(sessionId).where('id', '=', id).executeTakeFirst()
      return row && messageOf(row)
    },

    async queuedMessageIds(sessionId) {
      const rows = await db
        .selectFrom('messages')
        .select('id')
        .where('sessionId', '=', sessionId)
        .where('role', '=', 'user')
        .where('state', '=', 'queued')
        .orderBy('position')
        .execute()
      return rows.map(({ id }) => id)
    },

    async firstMessage(sessionId, state) {
      const row = await messagesOf(sessionId)
        .where('role', '=', 'user')
        .where('state', '=', state)
        .orderBy('position')
        .limit(1)
        .executeTakeFirst()
      return row && messageOf(row)
    },

    async events(sessionId, page) {
      if (page !== undefined) return await pageOf<SessionEvent>(db, eventPages, sessionId, page)
      return await db
        .selectFrom('sessionEvents')
        .select(eventColumns)
        .where('sessionId', '=', sessionId)
        .orderBy('position')
        .execute()
    },

    async eventTypes(sessionId) {
      const rows = await db
        .selectFrom('sessionEvents')
        .select('type')
        .where('sessionId', '=', sessionId)
        .groupBy('type')
        .orderBy((eb) => eb.fn.max('position'))
        .execute()
      return rows.map(({ type }) => type)
    },

    async histories(sessionIds) {
      const found = new Map<string, History>(sessionIds.map((id) => [id, { messages: [], events: [] }]))
      const messages = await rowsOf<MessageRow>(db, messagePages, sessionIds, inForce)
      for (const { sessionId, ...message } of messages) found.get(sessionId)?.messages.push(messageOf(message))
      const events = await rowsOf<SessionEvent>(db, eventPages, sessionIds)
      for (const { sessionId, ...event } of events) found.get(sessionId)?.events.push(event)
      return found
    },

    async stream(sessionId, after, limit) {
      // Sequence numbers are dense, so the recursion reads one event at a time and none beyond the end of the page.
      const { rows } = await sql<{ sequence: number; text: string; createdAt: Date }>`
        with recursive page (sequence, text, created_at, bytes) as (
          select sequence, data::text, created_at, octet_length(data::text) from stream_events
          where session_id = ${sessionId} and sequence = ${after + 1}
          union all
          select next.sequence, next.data::text, next.created_at, page.bytes + octet_length(next.data::text) from page
          join stream_events next on next.session_id = ${sessionId} and next.sequence = page.sequence + 1
          where next.sequence <= ${after + limit} and page.bytes < ${streamPageBytes}
        )
        select sequence, text, created_at from page order by sequence`.execute(db)
      return rows.map(({ sequence, text, createdAt }) => storedEvent(sequence, text, createdAt))
    },
  } satisfies Partial<SessionStore>
}

function messageOf({ isLeft, ...row }: MessageRow): Message {
  return isLeft ? { ...present(row), isLeft } : present(row)
}

/** PostgreSQL knows the length of a text without reading it, so no text beyond the end of the page is read. */
async function pageOf<Row>(
  db: Kysely<Database>,
  [table, columns, text]: PagedTable,
  sessionId: string,
  { after, limit }: RowPage,
  some = allRows,
): Promise<Row[]> {
  const bytes = sql`octet_length(${sql.ref(text)})`
  const start = after === undefined ? sql`0` : sql`(select position from ${sql.table(table)} where id = ${after})`
  const { rows } = await sql<Row>`
    select ${sql.join(columns.map((column) => sql.ref(column)))} from (
      select *, sum(${bytes}) over (order by position) - ${bytes} as before from (
        select * from ${sql.table(table)}
        where session_id = ${sessionId} and position > ${start} and ${some}
        order by position limit ${limit}
      ) as limited
    ) as measured where before < ${rowPageBytes} order by position`.execute(db)
  return rows
}

/** All rows of several sessions, in order within each. */
async function rowsOf<Row>(
  db: Kysely<Database>,
  [table, columns]: PagedTable,
  sessionIds: readonly string[],
  some: RawBuilder<boolean> = allRows,
): Promise<(Row & { sessionId: string })[]> {
  const { rows } = await sql<Row & { sessionId: string }>`
    select ${sql.join([...columns, 'sessionId'].map((column) => sql.ref(column)))} from ${sql.table(table)}
    where session_id = ${anyOf(sessionIds)} and ${some} order by session_id, position`.execute(db)
  return rows
}
