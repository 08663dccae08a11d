import { sql, type Kysely, type Transaction, type Updateable } from 'kysely'
import { batches } from '../lib/batches.ts'
import { ServiceError } from '../errors.ts'
import { sessionEntry } from '../session/log-entries.ts'
import type { Message, SessionActivity, SessionEvent } from '../session/session.ts'
import type { SessionChange, SessionStore } from '../session/store.ts'
import type { LogWriter } from './event-log.ts'
import { recordMade } from './idempotency.ts'
import { cleared } from './rows.ts'
import type { Database, SessionTable } from './schema.ts'
import { headColumns, sessionOf, type HeadRow } from './session-rows.ts'
import { lenient, lenientJson, strict } from './text.ts'
import { writeTurns } from './turn-changes.ts'

/** Well below PostgreSQL's 65 535 parameters per statement. */
const insertRowsMax = 1000
/** Bound of a statement in characters, as building one blocks the server's thread. */
const insertTextMax = 512 * 1024

export type CommittedRow = HeadRow & { lastSequence: number }

/**
 * The hot path of the event stream: one statement for what an agent says, otherwise a transaction with one insert per kind of row. Either
 * begins with the lock of the session's row, which serialises the commits of a session: sequence numbers are dense and positions grow in
 * commit order.
 */
export function committer(db: Kysely<Database>, writer: LogWriter): SessionStore['commit'] {
  return async (sessionId, change) => {
    const createdAt = new Date()
    const stream = (change.addStream ?? []).map(lenientJson)
    const [first = [], ...more] = insertBatches(stream, (text) => text.length)
    const { made, addMessages = [], setMessages = [], addEvents = [], turns = [], addPoint, rewind } = change
    const update = { ...change, set: { ...columns(change.session), updatedAt: createdAt }, stream }
    const activity = change.session?.activity
    const isOneStatement =
      made === undefined &&
      activity === undefined &&
      addPoint === undefined &&
      rewind === undefined &&
      [more, addMessages, setMessages, addEvents, turns].every(({ length }) => length === 0)
    if (isOneStatement) return committed(await updateAndAppend(db, sessionId, update, first))
    return await writer.transaction(db, async (transaction, note) => {
      const before = activity === undefined ? undefined : await activityOf(transaction, sessionId)
      const row = await updateAndAppend(transaction, sessionId, update, first)
      if (row === undefined) return undefined
      if (made !== undefined) await recordMade(transaction, made.creation, made.id)
      await insertMessages(transaction, sessionId, addMessages)
      await setMessageStates(transaction, sessionId, setMessages)
      await insertSessionEvents(transaction, sessionId, addEvents)
      await writeTurns(transaction, row, { turns, addPoint, rewind, streamLength: stream.length, createdAt })
      let sequence = row.lastSequence - stream.length + first.length
      for (const batch of more) {
        const events = batch.map((data) => ({ sessionId, sequence: (sequence += 1), data, createdAt }))
        await transaction.insertInto('streamEvents').values(events).execute()
      }
      if (activity !== undefined && activity !== before) note(row.orgId, sessionEntry(activity, row))
      return committed(row)
    })
  }
}

/** Reads the activity of a session under the lock of its row, which the commit takes now. */
async function activityOf(transaction: Transaction<Database>, sessionId: string): Promise<SessionActivity | undefined> {
  const query = transaction.selectFrom('sessions').select('activity').where('id', '=', sessionId).forUpdate()
  return (await query.executeTakeFirst())?.activity
}

function committed(row: CommittedRow | undefined) {
  if (row === undefined) return undefined
  const { lastSequence, ...session } = row
  return { session: sessionOf(session), lastSequence }
}

type Update = SessionChange & { set: Updateable<SessionTable>; stream: readonly string[] }

/** Updates the row of a session and appends `events`, the first of its new ones. Returns the updated row. */
async function updateAndAppend(
  db: Kysely<Database>,
  sessionId: string,
  update: Update,
  events: readonly string[],
): Promise<CommittedRow | undefined> {
  const updated = updateOf(db, sessionId, update)
  if (events.length === 0) return await updated.executeTakeFirst()
  const before = sql<number>`last_sequence - ${sql.lit(update.stream.length)}`
  const lines = sql<{ data: string; index: number }>`unnest(${sql.val(events)}::text[]) with ordinality`
  return await db
    .with('updated', () => updated)
    .with('appended', (query) =>
      query
        .insertInto('streamEvents')
        .columns(['sessionId', 'sequence', 'data', 'createdAt'])
        .expression(
          query
            .selectFrom(['updated', lines.as<'line'>(sql`line (data, index)`)])
            .select([
              'id',
              sql<number>`${before} + line.index`.as('sequence'),
              sql<string>`line.data::json`.as('data'),
              'updatedAt',
            ]),
        ),
    )
    .selectFrom('updated')
    .selectAll()
    .executeTakeFirst()
}

function updateOf(
  db: Kysely<Database>,
  sessionId: string,
  { when, usage, addMessages = [], addEvents = [], set, stream }: Update,
) {
  let query = db.updateTable('sessions').set(set).where('id', '=', sessionId)
  if (when !== undefined) query = query.where('status', '=', when)
  if (stream.length > 0) {
    const bytes = stream.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
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
  return query.returning([...headColumns, 'lastSequence'])
}

function columns(change: SessionChange['session'] = {}): Updateable<SessionTable> {
  const { artifacts, title, framework, pendingRewind, ...rest } = change
  const set: Updateable<SessionTable> = cleared(rest)
  // These come from the sandbox, so they are stored leniently.
  if ('artifacts' in change) set.artifacts = lenientJson(artifacts ?? [])
  if ('title' in change) set.title = lenient(title ?? '')
  if ('framework' in change) set.framework = lenient(framework ?? '')
  if ('pendingRewind' in change) set.pendingRewind = pendingRewind === undefined ? null : lenientJson(pendingRewind)
  return set
}

export async function insertMessages(
  transaction: Transaction<Database>,
  sessionId: string,
  messages: readonly Message[],
): Promise<void> {
  for (const batch of insertBatches(messages, ({ content }) => content.length)) {
    await transaction
      .insertInto('messages')
      .values(
        batch.map(({ content, ...message }) => ({
          ...message,
          sessionId,
          content: message.role === 'user' ? strict(content, 'message') : lenient(content),
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
  for (const batch of insertBatches(events, ({ message }) => message.length)) {
    await transaction
      .insertInto('sessionEvents')
      .values(batch.map((event) => ({ ...event, sessionId, message: lenient(event.message) })))
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

/** The bytes of messages and events as `SessionStore.historyBytes` counts them. */
export function bytesOf(history: readonly (Message | SessionEvent)[]): number {
  return history.reduce((sum, one) => sum + Buffer.byteLength(JSON.stringify(one)), 0)
}

function insertBatches<Row>(rows: readonly Row[], textOf: (row: Row) => number): Generator<Row[]> {
  return batches(rows, textOf, { sizeMax: insertTextMax, countMax: insertRowsMax })
}
