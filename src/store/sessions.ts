import { sql } from 'kysely'
import type { Kysely } from 'kysely'
import { storedEvent } from '../session/event-text.ts'
import type { Session } from '../session/session.ts'
import { streamPageBytes } from '../session/store.ts'
import type { MeteredSession, SessionStore } from '../session/store.ts'
import {
  agentConfigRow,
  purgeAgentConfigs,
  putAgentConfig,
  readAgentConfigs,
  readInstructions,
  readSkills,
} from './agent-configs.ts'
import { bytesOf, committer, insertMessages, insertSessionEvents } from './commit.ts'
import { recordMade } from './creations.ts'
import { eventPage, messagePage } from './history-pages.ts'
import { ownHost } from './installation.ts'
import { present } from './rows.ts'
import type { Database } from './schema.ts'
import { listedRows } from './session-list.ts'
import { purgeSessions } from './session-purge.ts'
import { headColumns, sessionOf, shortColumns, sizeColumns, toSession } from './session-rows.ts'
import type { HeadRow, ShortRow } from './session-rows.ts'
import { lenientJson, strict } from './text.ts'

export function sessionStore(db: Kysely<Database>): SessionStore {
  const short = async (row: ShortRow | undefined): Promise<Session | undefined> =>
    row && toSession(row, (await readAgentConfigs(db, [row.agentConfigHash])).get(row.agentConfigHash))
  const metered = () =>
    db
      .selectFrom('sessions')
      .innerJoin('agentConfigs', 'hash', 'agentConfigHash')
      .select([...headColumns, meteredConfig])

  return {
    async createSession(session, messages, event, { configOf, creation } = {}) {
      const { agentConfig, artifacts, userId, userEmail, userName, title, framework, ...rest } = session
      const text = {
        userId: strict(userId, 'user_id'),
        userEmail: userEmail === undefined ? null : strict(userEmail, 'user_email'),
        userName: userName === undefined ? null : strict(userName, 'user_name'),
        title: strict(title, 'title'),
        framework: strict(framework, 'framework'),
        artifacts: lenientJson(artifacts),
      }
      const config = configOf === undefined ? await agentConfigRow(agentConfig) : undefined
      await db.transaction().execute(async (transaction) => {
        await recordMade(transaction, creation, session.id)
        if (config !== undefined) await putAgentConfig(transaction, config)
        const agentConfigHash = config?.hash ?? hashOfSession(configOf)
        await transaction
          .insertInto('sessions')
          .values({ ...rest, ...text, hostId: ownHost, agentConfigHash, historyBytes: bytesOf([...messages, event]) })
          .execute()
        await insertMessages(transaction, session.id, messages)
        await insertSessionEvents(transaction, session.id, [event])
      })
    },

    async session(id, orgId) {
      let query = db.selectFrom('sessions').select(shortColumns).where('id', '=', id)
      if (orgId !== undefined) query = query.where('orgId', '=', orgId)
      return await short(await query.executeTakeFirst())
    },

    async head(id, orgId) {
      let query = db
        .selectFrom('sessions')
        .select([...headColumns, ...sizeColumns])
        .where('id', '=', id)
      if (orgId !== undefined) query = query.where('orgId', '=', orgId)
      const row = await query.executeTakeFirst()
      if (row === undefined) return undefined
      const { lastSequence, streamBytes, historyBytes, ...rest } = row
      return { ...sessionOf(rest), lastSequence, streamBytes, historyBytes }
    },

    async metered(id) {
      return meteredOf(await metered().where('id', '=', id).executeTakeFirst())
    },

    async meteredByGatewayToken(tokenHash) {
      return meteredOf(await metered().where('gatewayTokenHash', '=', tokenHash).executeTakeFirst())
    },

    async sessionBySandbox(sandboxId) {
      const row = await db
        .selectFrom('sessions')
        .select(shortColumns)
        .where('sandboxId', '=', sandboxId)
        .orderBy('createdAt', 'desc')
        .executeTakeFirst()
      return await short(row)
    },

    instructions: (id) => readInstructions(db, id),
    skills: (id) => readSkills(db, id),

    async listSessions(query) {
      const { rows, ...next } = await listedRows(db, query)
      const found = await readAgentConfigs(
        db,
        rows.map(({ agentConfigHash }) => agentConfigHash),
      )
      return { items: rows.map((row) => toSession(row, found.get(row.agentConfigHash))), ...next }
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

    commit: committer(db),

    async messages(sessionId, page) {
      if (page !== undefined) return await messagePage(db, sessionId, page)
      const rows = await db
        .selectFrom('messages')
        .select(['id', 'role', 'content', 'state', 'createdAt'])
        .where('sessionId', '=', sessionId)
        .orderBy('position')
        .execute()
      return rows.map(present)
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
      // Numbers are dense, so that one event at a time is looked at and none behind the end of the page is read.
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

    async lastSequence(sessionId) {
      const row = await db.selectFrom('sessions').select('lastSequence').where('id', '=', sessionId).executeTakeFirst()
      return row?.lastSequence ?? 0
    },

    async historyBytes(...sessionIds) {
      const rows = await db.selectFrom('sessions').select('historyBytes').where('id', 'in', sessionIds).execute()
      return rows.reduce((sum, row) => sum + row.historyBytes, 0)
    },

    async purgeSessions(endedBefore) {
      const count = await purgeSessions(db, endedBefore)
      if (count > 0) await purgeAgentConfigs(db)
      return count
    },
  }
}

/** Nothing else of a configuration: the others can be long, and this is read with each call of a model. */
const meteredConfig = sql<MeteredSession['agentConfig']>`jsonb_build_object(
  'model', config -> 'model', 'maxTokens', config -> 'maxTokens', 'maxCostUsd', config -> 'maxCostUsd'
)`.as('agentConfig')

type MeteredRow = HeadRow & Pick<MeteredSession, 'agentConfig'>

function meteredOf(row: MeteredRow | undefined): MeteredSession | undefined {
  if (row === undefined) return undefined
  const { agentConfig, ...rest } = row
  return { ...sessionOf(rest), agentConfig: present(agentConfig) as MeteredSession['agentConfig'] }
}

function hashOfSession(id: string | undefined) {
  return sql<string>`(select agent_config_hash from sessions where id = ${id})`
}
