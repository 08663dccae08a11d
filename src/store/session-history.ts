import { sql, type Kysely } from 'kysely'
import { storedEvent } from '../session/session.ts'
import type { Message, SessionEvent } from '../session/session.ts'
import { rowPageBytes, streamPageBytes, type RowPage, type SessionStore } from '../session/store.ts'
import { present, type Present } from './rows.ts'
import type { Database, MessageTable } from './schema.ts'

export type SessionHistory = Pick<
  SessionStore,
  'messages' | 'message' | 'queuedMessageIds' | 'firstMessage' | 'events' | 'eventTypes' | 'stream'
>

/** Reads the messages, the session events and the stream events of a session. */
export function sessionHistory(db: Kysely<Database>): SessionHistory {
  const messagesOf = (sessionId: string) =>
    db.selectFrom('messages').select(['id', 'role', 'content', 'state', 'createdAt']).where('sessionId', '=', sessionId)

  return {
    async messages(sessionId, page) {
      if (page !== undefined) return await messagePage(db, sessionId, page)
      const rows = await messagesOf(sessionId).orderBy('position').execute()
      return rows.map(present)
    },

    async message(sessionId, id) {
      const row = await messagesOf(sessionId).where('id', '=', id).executeTakeFirst()
      return row && present(row)
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
      return row && present(row)
    },

    async events(sessionId, page) {
      if (page !== undefined) return await eventPage(db, sessionId, page)
      return await db
        .selectFrom('sessionEvents')
        .select(['id', 'type', 'level', 'message', 'createdAt'])
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
  }
}

type MessageRow = Pick<MessageTable, 'id' | 'role' | 'content' | 'state' | 'createdAt'>

async function messagePage(db: Kysely<Database>, sessionId: string, page: RowPage): Promise<Message[]> {
  // PostgreSQL knows the length of a text without reading it, so no text beyond the end of the page is read.
  const { rows } = await sql<MessageRow>`
    select id, role, content, state, created_at from (
      select *, sum(octet_length(content)) over (order by position) - octet_length(content) as before from (
        select * from messages
        where session_id = ${sessionId} and position > ${positionOf('messages', page)}
        order by position limit ${page.limit}
      ) as limited
    ) as measured where before < ${rowPageBytes} order by position`.execute(db)
  return rows.map((row): Present<MessageRow> => present(row))
}

async function eventPage(db: Kysely<Database>, sessionId: string, page: RowPage): Promise<SessionEvent[]> {
  const { rows } = await sql<SessionEvent>`
    select id, type, level, message, created_at from (
      select *, sum(octet_length(message)) over (order by position) - octet_length(message) as before from (
        select * from session_events
        where session_id = ${sessionId} and position > ${positionOf('session_events', page)}
        order by position limit ${page.limit}
      ) as limited
    ) as measured where before < ${rowPageBytes} order by position`.execute(db)
  return rows
}

function positionOf(table: 'messages' | 'session_events', { after }: RowPage) {
  if (after === undefined) return sql`0`
  return sql`(select position from ${sql.table(table)} where id = ${after})`
}
