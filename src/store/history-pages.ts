import { sql } from 'kysely'
import type { Kysely } from 'kysely'
import type { Message, SessionEvent } from '../session/session.ts'
import { rowPageBytes } from '../session/store.ts'
import type { RowPage } from '../session/store.ts'
import { present } from './rows.ts'
import type { Present } from './rows.ts'
import type { Database, MessageTable } from './schema.ts'

type MessageRow = Pick<MessageTable, 'id' | 'role' | 'content' | 'state' | 'createdAt'>

/** See `SessionStore.messages`. */
export async function messagePage(db: Kysely<Database>, sessionId: string, page: RowPage): Promise<Message[]> {
  // How long a text is is known without a look at it, so that none behind the end of the page is read.
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

/** See `SessionStore.events`. */
export async function eventPage(db: Kysely<Database>, sessionId: string, page: RowPage): Promise<SessionEvent[]> {
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
