import { sql, type Kysely } from 'kysely'
import type { Session } from '../session/session.ts'
import { sessionEntry } from '../session/log-entries.ts'
import type { MeteredSession, SessionStore } from '../session/store.ts'
import {
  agentConfigRow,
  changeAgentConfig,
  lockAgentConfig,
  putAgentConfig,
  readAgentConfigs,
  readInstructions,
  readSkills,
} from './agent-configs.ts'
import { bytesOf, committer, insertMessages, insertSessionEvents } from './commit.ts'
import type { LogWriter } from './event-log.ts'
import { recordMade } from './idempotency.ts'
import { ownHost } from './installation.ts'
import { makingKey } from './making-key.ts'
import { sessionHistory } from './session-history.ts'
import { sessionTurns } from './session-turns.ts'
import { sessionTimeline } from './session-timeline.ts'
import { anyOf, ownedBy, present } from './rows.ts'
import type { Database } from './schema.ts'
import { listedRows } from './session-list.ts'
import { deleteSessions } from './session-delete.ts'
import { headColumns, sessionOf, shortColumns, sizeColumns, toSession } from './session-rows.ts'
import type { HeadRow, ShortRow } from './session-rows.ts'
import { lenientJson, strict } from './text.ts'

export function sessionStore(db: Kysely<Database>, writer: LogWriter): SessionStore {
  const short = async (row: ShortRow | undefined): Promise<Session | undefined> =>
    row && toSession(row, (await readAgentConfigs(db, [row.agentConfigHash])).get(row.agentConfigHash))
  const metered = () =>
    db
      .selectFrom('sessions')
      .innerJoin('agentConfigs', 'hash', 'agentConfigHash')
      .select([...headColumns, meteredConfig])

  return {
    ...sessionHistory(db),
    ...sessionTurns(db),
    ...sessionTimeline(db),

    async createSession(session, messages, event, { configOf, creation } = {}) {
      const { agentConfig, artifacts, pendingRewind, userId, userEmail, userName, title, framework, ...rest } = session
      const text = {
        userId: strict(userId, 'user_id'),
        userEmail: userEmail === undefined ? null : strict(userEmail, 'user_email'),
        userName: userName === undefined ? null : strict(userName, 'user_name'),
        title: strict(title, 'title'),
        framework: strict(framework, 'framework'),
        artifacts: lenientJson(artifacts),
        pendingRewind: pendingRewind === undefined ? null : lenientJson(pendingRewind),
      }
      const config = configOf ?? (await agentConfigRow(agentConfig))
      await writer.transaction(db, async (transaction, note) => {
        await recordMade(transaction, creation, session.id)
        const agentConfigHash = await (typeof config === 'string'
          ? lockAgentConfig(transaction, config)
          : putAgentConfig(transaction, config))
        await transaction
          .insertInto('sessions')
          .values({
            ...rest,
            ...text,
            hostId: ownHost,
            keyId: makingKey(),
            agentConfigHash,
            historyBytes: bytesOf([...messages, event]),
          })
          .execute()
        await insertMessages(transaction, session.id, messages)
        await insertSessionEvents(transaction, session.id, [event])
        note(session.orgId, sessionEntry('created', session), sessionEntry(session.activity, session))
      })
    },

    async countRunning(orgId) {
      const { count } = await db
        .selectFrom('sessions')
        .select((select) => select.fn.countAll<number>().as('count'))
        .where('orgId', '=', orgId)
        .where('status', '=', 'running')
        .executeTakeFirstOrThrow()
      return count
    },

    async session(id, orgId) {
      const query = db.selectFrom('sessions').select(shortColumns).where('id', '=', id).where(ownedBy(orgId))
      return await short(await query.executeTakeFirst())
    },

    async head(id, orgId) {
      const columns = [...headColumns, ...sizeColumns]
      const query = db.selectFrom('sessions').select(columns).where('id', '=', id).where(ownedBy(orgId))
      const row = await query.executeTakeFirst()
      return row && present(row)
    },

    async sessionNamed(name, orgId) {
      const row = await db
        .selectFrom('sessions')
        .select('id')
        .where('orgId', '=', orgId)
        .where('name', '=', name)
        .where('status', '=', 'running')
        .executeTakeFirst()
      return row?.id
    },

    async metered(id) {
      return meteredOf(await metered().where('id', '=', id).executeTakeFirst())
    },

    async meteredByGatewayToken(tokenHash) {
      return meteredOf(await metered().where('gatewayTokenHash', '=', tokenHash).executeTakeFirst())
    },

    instructions: (id) => readInstructions(db, id),
    skills: (id) => readSkills(db, id),
    changeAgentConfig: (id, change) => changeAgentConfig(db, id, change),

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

    commit: committer(db, writer),

    async lastSequence(sessionId) {
      const row = await db.selectFrom('sessions').select('lastSequence').where('id', '=', sessionId).executeTakeFirst()
      return row?.lastSequence ?? 0
    },

    async historyBytes(sessionIds) {
      const rows = await db
        .selectFrom('sessions')
        .select(['id', 'historyBytes'])
        .where('id', '=', anyOf(sessionIds))
        .execute()
      return new Map(rows.map((row) => [row.id, row.historyBytes]))
    },

    async expiredSessions(endedBefore, limit) {
      const rows = await db
        .selectFrom('sessions')
        .select('id')
        .where('status', '=', 'ended')
        .where('updatedAt', '<', endedBefore)
        // Implied by the other condition: the index has `created_at` alone.
        .where('createdAt', '<', endedBefore)
        .limit(limit)
        .execute()
      return rows.map(({ id }) => id)
    },

    deleteSessions: (ids) => deleteSessions(db, writer, ids),
  }
}

/** The limits alone: each call of a model reads them, and the other fields can be megabytes. */
const meteredConfig = sql<MeteredSession['agentConfig']>`jsonb_build_object(
  'model', config -> 'model', 'maxTokens', config -> 'maxTokens', 'maxCostUsd', config -> 'maxCostUsd'
)`.as('agentConfig')

type MeteredRow = HeadRow & Pick<MeteredSession, 'agentConfig'>

function meteredOf(row: MeteredRow | undefined): MeteredSession | undefined {
  if (row === undefined) return undefined
  const { agentConfig, ...rest } = row
  return { ...sessionOf(rest), agentConfig: present(agentConfig) as MeteredSession['agentConfig'] }
}
