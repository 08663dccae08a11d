import type { Kysely, Selectable, Transaction, Updateable } from 'kysely'
import { ServiceError } from '../errors.ts'
import type { Message, Session, SessionEvent, StreamEvent } from '../session/session.ts'
import type { SessionChange, SessionStore } from '../session/store.ts'
import type { AgentConfigs } from './agent-configs.ts'
import { recordMade } from './creations.ts'
import { cleared, present } from './rows.ts'
import type { Database, SessionTable } from './schema.ts'
import { lenient, lenientJson, strict } from './text.ts'

/** Rows per insert, well below PostgreSQL's 65 535 parameters. */
const rowsPerInsert = 1000

/**
 * The hot path of the event stream: one update, one insert per kind of row. The update comes first, and its lock on the
 * session's row makes commits of one session follow each other: that makes sequence numbers dense and orders positions.
 */
export function committer(db: Kysely<Database>, configs: AgentConfigs): SessionStore['commit'] {
  return async (sessionId, change) => {
    const now = new Date()
    const stream = (change.addStream ?? []).map(storedData)
    return await db.transaction().execute(async (transaction) => {
      const set = await columns(transaction, configs, change.session)
      const row = await lockAndUpdate(transaction, sessionId, change, { ...set, updatedAt: now }, stream)
      if (row === undefined) return undefined
      if (change.made !== undefined) await recordMade(transaction, change.made.creation, change.made.id)
      await insertMessages(transaction, sessionId, change.addMessages ?? [])
      await setMessageStates(transaction, sessionId, change.setMessages ?? [])
      await insertSessionEvents(transaction, sessionId, change.addEvents ?? [])
      const first = row.lastSequence - stream.length + 1
      const events = stream.map(({ text, data }, index) => ({
        sequence: first + index,
        text,
        data,
      }))
      for (const some of chunks(events)) {
        await transaction
          .insertInto('streamEvents')
          .values(some.map(({ sequence, text }) => ({ sessionId, sequence, data: text, createdAt: now })))
          .execute()
      }
      return {
        session: sessionOf(row),
        stream: events.map(({ sequence, data }): StreamEvent => ({
          sequence,
          data,
          createdAt: now,
        })),
      }
    })
  }
}

async function lockAndUpdate(
  transaction: Transaction<Database>,
  sessionId: string,
  { when, usage, addMessages = [], addEvents = [] }: SessionChange,
  set: Updateable<SessionTable>,
  stream: readonly { text: string }[],
): Promise<Selectable<SessionTable> | undefined> {
  let query = transaction.updateTable('sessions').set(set).where('id', '=', sessionId)
  if (when !== undefined) query = query.where('status', '=', when)
  if (stream.length > 0) {
    const bytes = stream.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0)
    query = query.set((eb) => ({
      lastSequence: eb('lastSequence', '+', stream.length),
      streamBytes: eb('streamBytes', '+', bytes),
    }))
  }
  const historyBytes = bytesOf([...addMessages, ...addEvents])
  if (historyBytes > 0) query = query.set((eb) => ({ historyBytes: eb('historyBytes', '+', historyBytes) }))
  if (usage !== undefined) {
    query = query.set((eb) => ({
      inputTokens: eb('inputTokens', '+', usage.inputTokens),
      cacheReadTokens: eb('cacheReadTokens', '+', usage.cacheReadTokens),
      cacheWriteTokens: eb('cacheWriteTokens', '+', usage.cacheWriteTokens),
      outputTokens: eb('outputTokens', '+', usage.outputTokens),
      costNanoUsd: usage.costNanoUsd === undefined ? null : eb('costNanoUsd', '+', usage.costNanoUsd),
    }))
  }
  return await query.returningAll().executeTakeFirst()
}

async function columns(
  db: Kysely<Database>,
  configs: AgentConfigs,
  change: SessionChange['session'] = {},
): Promise<Updateable<SessionTable>> {
  const { agentConfig, artifacts, title, framework, ...rest } = change
  const set: Updateable<SessionTable> = cleared(rest)
  // What a turn produced comes from the sandbox.
  if ('artifacts' in change) set.artifacts = lenientJson(artifacts ?? [])
  if ('title' in change) set.title = lenient(title ?? '')
  if ('framework' in change) set.framework = lenient(framework ?? '')
  if (agentConfig !== undefined) set.agentConfigHash = await configs.put(db, agentConfig)
  return set
}

export async function insertMessages(
  transaction: Transaction<Database>,
  sessionId: string,
  messages: readonly Message[],
): Promise<void> {
  for (const some of chunks(messages)) {
    await transaction
      .insertInto('messages')
      .values(
        some.map(({ id, role, content, state, createdAt }) => ({
          id,
          sessionId,
          role,
          content: role === 'user' ? strict(content, 'message') : lenient(content),
          state: state ?? null,
          createdAt,
        })),
      )
      .execute()
  }
}

export async function insertSessionEvents(
  transaction: Transaction<Database>,
  sessionId: string,
  events: readonly SessionEvent[],
): Promise<void> {
  for (const some of chunks(events)) {
    await transaction
      .insertInto('sessionEvents')
      .values(
        some.map(({ id, type, level, message, createdAt }) => ({
          id,
          sessionId,
          type,
          level,
          message: lenient(message),
          createdAt,
        })),
      )
      .execute()
  }
}

async function setMessageStates(
  transaction: Transaction<Database>,
  sessionId: string,
  changes: NonNullable<SessionChange['setMessages']>,
): Promise<void> {
  for (const { id, state } of changes) {
    const { numUpdatedRows } = await transaction
      .updateTable('messages')
      .set({ state })
      .where('sessionId', '=', sessionId)
      .where('id', '=', id)
      .executeTakeFirstOrThrow()
    if (numUpdatedRows === 0n) throw new ServiceError('not_found', `message ${id} does not exist in this session`)
  }
}

/** What is kept of a stream event, as text and as the object that a reader of the table gets. */
function storedData(data: StreamEvent['data']): { text: string; data: StreamEvent['data'] } {
  const text = lenientJson(data)
  return { text, data: JSON.parse(text) as StreamEvent['data'] }
}

export function toSession(row: Selectable<SessionTable>, agentConfig: Session['agentConfig']): Session {
  return { ...sessionOf(row), agentConfig }
}

function sessionOf(row: Selectable<SessionTable>): Omit<Session, 'agentConfig'> {
  const { agentConfigHash: _hash, lastSequence: _sequence, streamBytes: _bytes, historyBytes: _history, ...rest } = row
  return present(rest)
}

/** Of messages and events, as `SessionStore.historyBytes` counts them. */
export function bytesOf(history: readonly (Message | SessionEvent)[]): number {
  return history.reduce((sum, one) => sum + Buffer.byteLength(JSON.stringify(one)), 0)
}

function* chunks<Item>(items: readonly Item[]): Generator<readonly Item[]> {
  for (let start = 0; start < items.length; start += rowsPerInsert) yield items.slice(start, start + rowsPerInsert)
}
