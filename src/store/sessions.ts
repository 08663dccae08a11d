import { sql } from 'kysely'
import type { Kysely, Selectable } from 'kysely'
import type { AgentConfig, Session, StreamEvent } from '../session/session.ts'
import { streamPageBytes } from '../session/store.ts'
import type { RowPage, SessionStore } from '../session/store.ts'
import { AgentConfigs } from './agent-configs.ts'
import { bytesOf, committer, insertMessages, insertSessionEvents, toSession } from './commit.ts'
import { recordMade } from './creations.ts'
import { present } from './rows.ts'
import type { Database, SessionTable } from './schema.ts'
import { listedRows } from './session-list.ts'
import { purgeSessions } from './session-purge.ts'
import { lenientJson, strict } from './text.ts'

export function sessionStore(db: Kysely<Database>): SessionStore {
  const configs = new AgentConfigs()
  const whole = async (row: Selectable<SessionTable> | undefined): Promise<Session | undefined> =>
    row && toSession(row, await configs.get(db, row.agentConfigHash))

  return {
    async createSession(session, messages, event, creation) {
      const { agentConfig, artifacts, userId, userEmail, userName, title, framework, ...rest } = session
      const text = {
        userId: strict(userId, 'user_id'),
        userEmail: userEmail === undefined ? null : strict(userEmail, 'user_email'),
        userName: userName === undefined ? null : strict(userName, 'user_name'),
        title: strict(title, 'title'),
        framework: strict(framework, 'framework'),
        artifacts: lenientJson(artifacts),
      }
      await db.transaction().execute(async (transaction) => {
        await recordMade(transaction, creation, session.id)
        const agentConfigHash = await configs.put(transaction, agentConfig)
        await transaction
          .insertInto('sessions')
          .values({ ...rest, ...text, agentConfigHash, historyBytes: bytesOf([...messages, event]) })
          .execute()
        await insertMessages(transaction, session.id, messages)
        await insertSessionEvents(transaction, session.id, [event])
      })
    },

    async session(id, orgId) {
      let query = db.selectFrom('sessions').selectAll().where('id', '=', id)
      if (orgId !== undefined) query = query.where('orgId', '=', orgId)
      return await whole(await query.executeTakeFirst())
    },

    async sessionWithoutTexts(id) {
      const row = await db.selectFrom('sessions').selectAll().where('id', '=', id).executeTakeFirst()
      if (row === undefined) return undefined
      const found = await configs.withoutTexts(db, [row.agentConfigHash])
      return sessionWith(row, found.get(row.agentConfigHash))
    },

    async sessionBySandbox(sandboxId) {
      const row = await db
        .selectFrom('sessions')
        .selectAll()
        .where('sandboxId', '=', sandboxId)
        .orderBy('createdAt', 'desc')
        .executeTakeFirst()
      return await whole(row)
    },

    async sessionByGatewayToken(tokenHash) {
      const row = await db
        .selectFrom('sessions')
        .selectAll()
        .where('gatewayTokenHash', '=', tokenHash)
        .executeTakeFirst()
      return await whole(row)
    },

    async listSessions(query) {
      const { rows, ...next } = await listedRows(db, query)
      const found = await configs.withoutTexts(
        db,
        rows.map(({ agentConfigHash }) => agentConfigHash),
      )
      return { items: rows.map((row) => sessionWith(row, found.get(row.agentConfigHash))), ...next }
    },

    async sessionsIn(status) {
      return await db
        .selectFrom('sessions')
        .select(['id', 'orgId', 'sandboxId'])
        .where('status', '=', status)
        .orderBy('createdAt')
        .orderBy('id')
        .execute()
    },

    commit: committer(db, configs),

    async messages(sessionId, { after, limit }: Partial<RowPage> = {}) {
      let query = db
        .selectFrom('messages')
        .select(['id', 'role', 'content', 'state', 'createdAt'])
        .where('sessionId', '=', sessionId)
        .orderBy('position')
      if (limit !== undefined) query = query.limit(limit)
      if (after !== undefined) {
        query = query.where('position', '>', (eb) =>
          eb.selectFrom('messages').select('position').where('id', '=', after),
        )
      }
      return (await query.execute()).map(present)
    },

    async message(sessionId, id) {
      const row = await db
        .selectFrom('messages')
        .select(['id', 'role', 'content', 'state', 'createdAt'])
        .where('sessionId', '=', sessionId)
        .where('id', '=', id)
        .executeTakeFirst()
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
      const row = await db
        .selectFrom('messages')
        .select(['id', 'role', 'content', 'state', 'createdAt'])
        .where('sessionId', '=', sessionId)
        .where('role', '=', 'user')
        .where('state', '=', state)
        .orderBy('position')
        .limit(1)
        .executeTakeFirst()
      return row && present(row)
    },

    async events(sessionId, { after, limit }: Partial<RowPage> = {}) {
      let query = db
        .selectFrom('sessionEvents')
        .select(['id', 'type', 'level', 'message', 'createdAt'])
        .where('sessionId', '=', sessionId)
        .orderBy('position')
      if (limit !== undefined) query = query.limit(limit)
      if (after !== undefined) {
        query = query.where('position', '>', (eb) =>
          eb.selectFrom('sessionEvents').select('position').where('id', '=', after),
        )
      }
      return await query.execute()
    },

    async stream(sessionId, after, limit) {
      // Numbers are dense, so that one event at a time is looked at and none behind the end of the page is read.
      const { rows } = await sql<StreamEvent>`
        with recursive page (sequence, data, created_at, bytes) as (
          select sequence, data, created_at, octet_length(data::text) from stream_events
          where session_id = ${sessionId} and sequence = ${after + 1}
          union all
          select next.sequence, next.data, next.created_at, page.bytes + octet_length(next.data::text) from page
          join stream_events next on next.session_id = ${sessionId} and next.sequence = page.sequence + 1
          where next.sequence <= ${after + limit} and page.bytes < ${streamPageBytes}
        )
        select sequence, data, created_at from page order by sequence`.execute(db)
      return rows
    },

    async lastSequence(sessionId) {
      const row = await db.selectFrom('sessions').select('lastSequence').where('id', '=', sessionId).executeTakeFirst()
      return row?.lastSequence ?? 0
    },

    async streamBytes(sessionId) {
      const row = await db.selectFrom('sessions').select('streamBytes').where('id', '=', sessionId).executeTakeFirst()
      return row?.streamBytes ?? 0
    },

    async historyBytes(...sessionIds) {
      const rows = await db.selectFrom('sessions').select('historyBytes').where('id', 'in', sessionIds).execute()
      return rows.reduce((sum, row) => sum + row.historyBytes, 0)
    },

    async purgeSessions(endedBefore) {
      const count = await purgeSessions(db, endedBefore)
      if (count > 0) await configs.purge(db)
      return count
    },
  }
}

function sessionWith(row: Selectable<SessionTable>, agentConfig: AgentConfig | undefined): Session {
  if (agentConfig === undefined) throw new Error(`session ${row.id} has no agent configuration`)
  return toSession(row, agentConfig)
}
