import { sql, type Kysely, type Selectable, type Transaction } from 'kysely'
import {
  assertWithinQuota,
  type Attempt,
  type Message,
  type NewMessage,
  type SealedDestination,
  type WebhookStore,
} from '../webhook/index.ts'
import { type LogWriter, toEvent } from './event-log.ts'
import { recordMade } from './idempotency.ts'
import { cleared, present } from './rows.ts'
import type { Database, DestinationTable } from './schema.ts'
import { lenientJson, strict } from './text.ts'
import type { WebhookQueue } from './webhook-queue.ts'

/** How far back the log is looked through for what a new sandbox has done already. */
const lookedBackMax = 2000
const purgedAtOnce = 1000

export function webhookStore(db: Kysely<Database>, writer: LogWriter, queue: WebhookQueue): WebhookStore {
  return {
    prepare: () => queue.ready(),

    async insertDestinations(destinations, { destinationsMax, messagesOf, creation }) {
      const [first] = destinations
      if (first === undefined) return
      await queue.ready()
      await db.transaction().execute(async (transaction) => {
        // Nothing is handed over meanwhile: each event is before the cursor or behind it.
        const { number, newest } = await lockCursor(transaction, first.orgId)
        const { count } = await transaction
          .selectFrom('webhookDestinations')
          .select((select) => select.fn.countAll<number>().as('count'))
          .where('orgId', '=', first.orgId)
          // A repeat may have made these.
          .where(
            'id',
            'not in',
            destinations.map(({ id }) => id),
          )
          .executeTakeFirstOrThrow()
        assertWithinQuota(count, destinations.length, destinationsMax)
        await recordMade(transaction, creation, first.id)
        for (const destination of destinations) {
          const isPinned = destination.sandboxId !== undefined
          const row = { ...destination, afterNumber: isPinned ? 0 : newest }
          const inserted = await transaction
            .insertInto('webhookDestinations')
            .values({
              ...row,
              url: strict(row.url, 'url'),
              name: row.name === undefined ? null : strict(row.name, 'name'),
            })
            .onConflict((conflict) => conflict.column('id').doNothing())
            .returning('id')
            .executeTakeFirst()
          if (inserted === undefined || !isPinned) continue
          const events = await transaction
            .selectFrom('events')
            .selectAll()
            .where('orgId', '=', row.orgId)
            .where('sandboxId', '=', row.sandboxId ?? '')
            .where('number', '>', number - lookedBackMax)
            .where('number', '<=', number)
            .orderBy('number')
            .execute()
          await addMessages(
            transaction,
            queue,
            events.flatMap((event) => messagesOf(row, toEvent(event)) ?? []),
          )
        }
      })
    },

    async listDestinations(orgId) {
      const rows = await db
        .selectFrom('webhookDestinations')
        .selectAll()
        .where('orgId', '=', orgId)
        .orderBy('createdAt', 'desc')
        .orderBy('id', 'desc')
        .execute()
      return rows.map(toDestination)
    },

    async destination(orgId, id) {
      const row = await db
        .selectFrom('webhookDestinations')
        .selectAll()
        .where('orgId', '=', orgId)
        .where('id', '=', id)
        .executeTakeFirst()
      return row && toDestination(row)
    },

    async updateDestination(orgId, id, { url, name, ...rest }) {
      const set = {
        ...cleared(rest),
        ...(url === undefined ? {} : { url: strict(url, 'url') }),
        ...(name === undefined ? {} : { name: strict(name, 'name') }),
      }
      const row = await db
        .updateTable('webhookDestinations')
        .set(set)
        .where('orgId', '=', orgId)
        .where('id', '=', id)
        .returningAll()
        .executeTakeFirst()
      return row && toDestination(row)
    },

    async enable(orgId, id, { before, messagesMax }) {
      await queue.ready()
      return await writer.transaction(db, async (transaction, note) => {
        const row = await transaction
          .updateTable('webhookDestinations')
          .set({
            isEnabled: true,
            disabledReason: null,
            failures: 0,
            failingSince: null,
            circuitUntil: null,
            updatedAt: new Date(),
          })
          .where('orgId', '=', orgId)
          .where('id', '=', id)
          .returningAll()
          .executeTakeFirst()
        if (row === undefined) return undefined
        const count = await dropOld(transaction, id, { before, messagesMax })
        if (count > 0) note(orgId, { type: 'webhook.dropped', subject: id, data: { count } })
        const waiting = await transaction
          .selectFrom('webhookMessages')
          .select('id')
          .where('destinationId', '=', id)
          .where('state', '=', 'pending')
          .orderBy('createdAt')
          .execute()
        await queue.addJobs(
          transaction,
          waiting.map((message) => message.id),
        )
        return { ...toDestination(row), dropped: row.dropped + count }
      })
    },

    async deleteDestination(orgId, id) {
      const { numDeletedRows } = await db
        .deleteFrom('webhookDestinations')
        .where('orgId', '=', orgId)
        .where('id', '=', id)
        .executeTakeFirst()
      return numDeletedRows > 0n
    },

    async organisationsWithDestinations() {
      const rows = await db.selectFrom('webhookDestinations').select('orgId').distinct().execute()
      return rows.map(({ orgId }) => orgId)
    },

    async handOver(orgId, limit, messagesOf) {
      await queue.ready()
      return await db.transaction().execute(async (transaction) => {
        const { number, newest } = await lockCursor(transaction, orgId)
        if (number >= newest) return { count: 0, hasMore: false }
        const events = await transaction
          .selectFrom('events')
          .selectAll()
          .where('orgId', '=', orgId)
          .where('number', '>', number)
          .orderBy('number')
          .limit(limit)
          .execute()
        const destinations = (
          await transaction.selectFrom('webhookDestinations').selectAll().where('orgId', '=', orgId).execute()
        ).map(toDestination)
        const messages = events
          .map(toEvent)
          .flatMap((event) => destinations.flatMap((destination) => messagesOf(destination, event) ?? []))
        const enabled = new Set(destinations.filter(({ isEnabled }) => isEnabled).map(({ id }) => id))
        await addMessages(transaction, queue, messages, enabled)
        const next = events.at(-1)?.number ?? newest
        await transaction.updateTable('webhookCursors').set({ number: next }).where('orgId', '=', orgId).execute()
        return { count: messages.length, hasMore: next < newest }
      })
    },

    async addMessage(message) {
      await queue.ready()
      await db.transaction().execute((transaction) => addMessages(transaction, queue, [message]))
    },

    async listDeliveries(destinationId, limit) {
      const waiting = await db
        .selectFrom('webhookMessages')
        .selectAll()
        .where('destinationId', '=', destinationId)
        .where('attempts', '=', 0)
        .where('state', 'in', ['pending', 'dropped'])
        .orderBy('createdAt', 'desc')
        .limit(limit)
        .execute()
      const attempts = await db
        .selectFrom('webhookAttempts as attempt')
        .innerJoin('webhookMessages as message', 'message.id', 'attempt.messageId')
        .select([
          'message.id as ofMessage',
          'eventType',
          'eventId',
          'message.state as ofState',
          'createdAt',
          'nextAttemptAt',
        ])
        .selectAll('attempt')
        .where('attempt.destinationId', '=', destinationId)
        .orderBy('attempt.id', 'desc')
        .limit(limit)
        .execute()
      const deliveries = [
        ...waiting.map((row) => ({ message: present(row), at: row.createdAt })),
        ...attempts.map(({ ofMessage, ofState, eventType, eventId, createdAt, nextAttemptAt, ...attempt }) => ({
          message: present({ id: ofMessage, state: ofState, eventType, eventId, createdAt, nextAttemptAt }),
          attempt: present(attempt) as Attempt,
          at: attempt.startedAt,
        })),
      ]
      return deliveries
        .toSorted((one, other) => other.at.getTime() - one.at.getTime())
        .slice(0, limit)
        .map(({ at: _at, ...delivery }) => delivery)
    },

    async message(destinationId, id) {
      const row = await db
        .selectFrom('webhookMessages')
        .selectAll()
        .where('destinationId', '=', destinationId)
        .where('id', '=', id)
        .executeTakeFirst()
      if (row === undefined) return undefined
      const attempts = await db
        .selectFrom('webhookAttempts')
        .selectAll()
        .where('messageId', '=', id)
        .orderBy('id')
        .execute()
      return { message: present(row) as Message, attempts: attempts.map((attempt) => present(attempt) as Attempt) }
    },

    async redeliver(destinationId, id) {
      await queue.ready()
      await db.transaction().execute(async (transaction) => {
        await transaction
          .updateTable('webhookMessages')
          .set({ state: 'pending', attempts: 0, nextAttemptAt: null })
          .where('destinationId', '=', destinationId)
          .where('id', '=', id)
          .execute()
        await queue.addJobs(transaction, [id])
      })
    },

    async countMessages(destinationId, state) {
      const { count } = await db
        .selectFrom('webhookMessages')
        .select((select) => select.fn.countAll<number>().as('count'))
        .where('destinationId', '=', destinationId)
        .where('state', '=', state)
        .executeTakeFirstOrThrow()
      return count
    },

    async tellDisabled() {
      const untold = await db
        .selectFrom('webhookDestinations')
        .select(['id', 'orgId', 'disabledReason'])
        .where('isDisablingTold', '=', false)
        .execute()
      for (const { id, orgId, disabledReason } of untold) {
        await writer.transaction(db, async (transaction, note) => {
          const told = await transaction
            .updateTable('webhookDestinations')
            .set({ isDisablingTold: true })
            .where('id', '=', id)
            .where('isDisablingTold', '=', false)
            .executeTakeFirst()
          if (told.numUpdatedRows === 0n) return
          note(orgId, { type: 'webhook.disabled', subject: id, data: { reason: disabledReason ?? '' } })
        })
      }
      return untold.length
    },

    async purge(before, droppedBefore) {
      let count = 0
      const disabled = await db.selectFrom('webhookDestinations').select('id').where('isEnabled', '=', false).execute()
      for (const { id } of disabled) count += await dropOld(db, id, { before: droppedBefore, messagesMax: Infinity })
      for (;;) {
        const { numAffectedRows = 0n } = await sql`
          delete from webhook_messages where id in (
            select id from webhook_messages where created_at < ${before} order by created_at limit ${purgedAtOnce})`.execute(
          db,
        )
        count += Number(numAffectedRows)
        if (numAffectedRows < purgedAtOnce) return count
      }
    },

    async purgePinned() {
      const { numAffectedRows = 0n } = await sql`
        delete from webhook_destinations destination
        where sandbox_id is not null and not exists (select from sandboxes where sandboxes.id = destination.sandbox_id)`.execute(
        db,
      )
      return Number(numAffectedRows)
    },
  }
}

/** The cursor of an organisation, locked, and its newest event. The first destination begins with what comes. */
async function lockCursor(
  transaction: Transaction<Database>,
  orgId: string,
): Promise<{ number: number; newest: number }> {
  const counter = await transaction
    .selectFrom('eventCounters')
    .select('lastNumber')
    .where('orgId', '=', orgId)
    .executeTakeFirst()
  const { lastNumber: newest = 0 } = counter ?? {}
  await transaction
    .insertInto('webhookCursors')
    .values({ orgId, number: newest })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
  const { number } = await transaction
    .selectFrom('webhookCursors')
    .select('number')
    .where('orgId', '=', orgId)
    .forUpdate()
    .executeTakeFirstOrThrow()
  return { number, newest }
}

/** Adds messages, with a job for each of an enabled destination. Those that are there are left as they are. */
async function addMessages(
  transaction: Transaction<Database>,
  queue: WebhookQueue,
  messages: readonly NewMessage[],
  enabled?: ReadonlySet<string>,
): Promise<void> {
  if (messages.length === 0) return
  const rows = messages.map(({ id, orgId, destinationId, eventId, eventType, lane, body, state }) => ({
    ...{
      id,
      lane,
      body,
      state,
      org_id: orgId,
      destination_id: destinationId,
      event_id: eventId,
      event_type: eventType,
    },
  }))
  const { rows: added } = await sql<{ id: string; destinationId: string }>`
    insert into webhook_messages (id, org_id, destination_id, event_id, event_type, lane, body, state)
    select id, org_id, destination_id, event_id, event_type, lane, body, state
    from jsonb_to_recordset(${lenientJson(rows)}::jsonb) as message (
      id text, org_id text, destination_id text, event_id text, event_type text, lane integer, body text, state text)
    on conflict do nothing returning id, destination_id`.execute(transaction)
  const isAdded = new Set(added.filter(({ destinationId }) => enabled?.has(destinationId) ?? true).map(({ id }) => id))
  await queue.addJobs(
    transaction,
    messages.filter(({ id }) => isAdded.has(id)).map(({ id }) => id),
  )
}

/** Drops what a destination has waiting from before a time, and what is beyond the newest. */
async function dropOld(
  db: Kysely<Database>,
  id: string,
  { before, messagesMax }: { before: Date; messagesMax: number },
): Promise<number> {
  const { numAffectedRows = 0n } = await sql`
    update webhook_messages set state = 'dropped', body = '' where id in (
      select id from (
        select id, created_at, row_number() over (order by created_at desc) as place
        from webhook_messages where destination_id = ${id} and state = 'pending'
      ) as waiting where created_at < ${before} or place > ${Number.isFinite(messagesMax) ? messagesMax : null}::bigint)`.execute(
    db,
  )
  const count = Number(numAffectedRows)
  if (count > 0) {
    await db
      .updateTable('webhookDestinations')
      .set((eb) => ({ dropped: eb('dropped', '+', count) }))
      .where('id', '=', id)
      .execute()
  }
  return count
}

function toDestination(row: Selectable<DestinationTable>): SealedDestination {
  const { isDisablingTold: _told, ...rest } = row
  return present(rest)
}
