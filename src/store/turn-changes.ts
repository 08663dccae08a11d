import { sql, type Insertable, type Transaction } from 'kysely'
import { batches } from '../lib/batches.ts'
import type { SessionChange, TurnChange } from '../session/store.ts'
import type { Counters } from '../session/turn.ts'
import type { CommittedRow } from './commit.ts'
import { anyOf } from './rows.ts'
import type { Database, TurnTable } from './schema.ts'
import { lenientJson } from './text.ts'

/** Well below PostgreSQL's 65 535 parameters per statement. */
const insertRowsMax = 1000

interface TurnWrites {
  turns: readonly TurnChange[]
  addPoint: SessionChange['addPoint'] | undefined
  rewind: SessionChange['rewind'] | undefined
  /** How many stream events the commit has added. */
  streamLength: number
  createdAt: Date
}

/** Writes what a commit says of turns, points and rewinds. `row` is that of the session, which the commit has updated and so locked. */
export async function writeTurns(
  transaction: Transaction<Database>,
  row: CommittedRow,
  { turns, addPoint, rewind, streamLength, createdAt }: TurnWrites,
): Promise<void> {
  const { id: sessionId, lastSequence } = row
  if (turns.length > 0) {
    const numbered = { sessionId, before: lastSequence - streamLength, createdAt, usageBefore: countersOf(row) }
    await changeTurns(transaction, turns, numbered)
  }
  if (addPoint !== undefined) {
    const { project, ...point } = addPoint
    await transaction
      .insertInto('sessionPoints')
      .values({ ...point, sessionId, project: lenientJson(project) })
      .execute()
  }
  if (rewind === undefined) return
  // The number of its `rewound`, the last event of the change.
  const event = lastSequence
  await transaction
    .insertInto('sessionRewinds')
    .values({ ...rewind, sessionId, event })
    .execute()
  if (rewind.what !== 'machine') await switchBranch(transaction, { sessionId, turnId: rewind.turnId, event })
}

/** `before`: the number of the newest stream event before the commit. */
async function changeTurns(
  transaction: Transaction<Database>,
  changes: readonly TurnChange[],
  {
    sessionId,
    before,
    createdAt,
    usageBefore,
  }: { sessionId: string; before: number; createdAt: Date; usageBefore: Counters },
): Promise<void> {
  const begun = new Map<string, Insertable<TurnTable>>()
  for (const change of changes) {
    const { messageId, eventsBefore } = change
    if (change.type === 'begun') {
      const { parentId = null } = change
      const numbers = { firstEvent: before + eventsBefore + 1, startedAt: createdAt }
      begun.set(messageId, { sessionId, messageId, parentId, ...numbers, usageBefore: lenientJson(usageBefore) })
      continue
    }
    const { subtype, preview } = change
    const end = { subtype, preview, lastEvent: before + eventsBefore, endedAt: createdAt }
    const isNew = begun.get(messageId)
    if (isNew !== undefined) Object.assign(isNew, end)
    // A turn that an older server began has no row.
    else await turnOf(transaction, sessionId, messageId).set(end).execute()
  }
  if (begun.size === 0) return
  for (const rows of batches([...begun.values()], () => 0, { sizeMax: 1, countMax: insertRowsMax }))
    await transaction.insertInto('sessionTurns').values(rows).execute()
  await transaction
    .updateTable('messages')
    .set((eb) => ({ turnId: eb.ref('id') }))
    .where('sessionId', '=', sessionId)
    .where('id', '=', anyOf([...begun.keys()]))
    .execute()
}

function turnOf(transaction: Transaction<Database>, sessionId: string, messageId: string) {
  return transaction.updateTable('sessionTurns').where('sessionId', '=', sessionId).where('messageId', '=', messageId)
}

/** Makes the turns up to this one those in force. Turns that earlier rewinds have left, and this one does not take up, keep their number. */
async function switchBranch(
  transaction: Transaction<Database>,
  { sessionId, turnId, event }: { sessionId: string; turnId: string | undefined; event: number },
): Promise<void> {
  const isInForce = sql<boolean>`message_id in (select message_id from branch)`
  await sql`
    with recursive branch (message_id, parent_id) as (
      select message_id, parent_id from session_turns where session_id = ${sessionId} and message_id = ${turnId ?? null}::text
      union all
      select parent.message_id, parent.parent_id from branch
      join session_turns parent on parent.session_id = ${sessionId} and parent.message_id = branch.parent_id
    )
    update session_turns set left_event = case when ${isInForce} then null else ${event}::integer end
    where session_id = ${sessionId} and (left_event is null) <> (${isInForce})`.execute(transaction)
  // Not by the branch: a message that came with a fork names a turn of its source, which no rewind of the fork leaves.
  await sql`
    update messages set is_left = (turn.left_event is not null) from session_turns turn
    where messages.session_id = ${sessionId} and turn.session_id = ${sessionId} and turn.message_id = messages.turn_id
      and messages.is_left <> (turn.left_event is not null)`.execute(transaction)
}

function countersOf({
  inputTokens,
  cacheReadTokens,
  cacheWriteTokens,
  outputTokens,
  costNanoUsd,
}: CommittedRow): Counters {
  const tokens = { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens }
  return costNanoUsd === null ? tokens : { ...tokens, costNanoUsd }
}
