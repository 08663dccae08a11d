import { sql, type Kysely, type RawBuilder, type Selectable, type Transaction, type UpdateQueryBuilder } from 'kysely'
import { whoActs, type EventLog, type LogEntry, type LogEvent, type LogFilter } from '../events/index.ts'
import { present } from './rows.ts'
import type { Database, EventTable, SandboxTable } from './schema.ts'
import { lenientJson } from './text.ts'

/** Rows that one page reads at most, also when the filter matches none. */
const lookedAtMax = 10_000
/** Rows per statement, so that other callers use the database in between. */
const purgedAtOnce = 1000
/** Characters of an error in the log, which is for people; the record has all of it. */
const messageLengthMax = 1000

/** Adds entries of a transaction to the log of an organisation. */
export type Note = (orgId: string, ...entries: readonly LogEntry[]) => void

/**
 * Writes the log. Numbers come from one row per organisation, which is locked until the commit. So a transaction gets a number only after
 * those with lower ones have committed or rolled back: readers see no gap, and nothing appears behind them. The last statement of a
 * transaction takes the lock, so that the lock is held for the commit alone and transactions cannot wait for each other in a circle.
 */
export class LogWriter {
  readonly #announce: (orgId: string) => void

  /** `announce` is called after each commit that has written for an organisation. It must not throw. */
  constructor(announce: (orgId: string) => void) {
    this.#announce = announce
  }

  /** Runs `work` in a transaction that ends with the entries that it has noted. */
  async transaction<Result>(
    db: Kysely<Database>,
    work: (transaction: Transaction<Database>, note: Note) => Promise<Result>,
  ): Promise<Result> {
    const noted = new Map<string, LogEntry[]>()
    const note: Note = (orgId, ...entries) => {
      if (entries.length > 0) noted.set(orgId, [...(noted.get(orgId) ?? []), ...entries])
    }
    const result = await db.transaction().execute(async (transaction) => {
      const worked = await work(transaction, note)
      // All transactions lock organisations in the same order.
      const byOrganisation = [...noted].toSorted(([one], [other]) => (one < other ? -1 : 1))
      for (const [orgId, entries] of byOrganisation) {
        await sql`with counted as (${counted(orgId, entries)}) ${logged(orgId, entries)}`.execute(transaction)
      }
      return worked
    })
    for (const orgId of noted.keys()) this.#announce(orgId)
    return result
  }

  /** Like `transaction`, in one statement, for a change of one sandbox whose entries are known before. Undefined when no row changes. */
  async statement(
    db: Kysely<Database>,
    change: UpdateQueryBuilder<Database, 'sandboxes', 'sandboxes', Selectable<SandboxTable>>,
    { orgId, entries }: { orgId: string; entries: readonly LogEntry[] },
  ): Promise<Selectable<SandboxTable> | undefined> {
    const row = await db
      .with('changed', () => change)
      .with('counted', () => sql<{ lastNumber: number }>`(${counted(orgId, entries, sql`from changed`)})`)
      .with('logged', () => sql<object>`(${logged(orgId, entries)})`)
      .selectFrom('changed')
      .selectAll()
      .executeTakeFirst()
    if (row !== undefined) this.#announce(orgId)
    return row
  }
}

/** Raises the number of an organisation, once for a row of `changed` if that is given. */
function counted(orgId: string, entries: readonly LogEntry[], changed: RawBuilder<unknown> = sql``) {
  return sql`
    insert into event_counters as counter (org_id, last_number)
    select ${orgId}::text, ${entries.length}::bigint ${changed}
    on conflict (org_id) do update set last_number = counter.last_number + excluded.last_number
    returning last_number`
}

/** Inserts the rows of a `counted`. */
function logged(orgId: string, entries: readonly LogEntry[]) {
  const { actor, cause } = whoActs()
  const rows = entries.map(({ type, subject, sandboxId, sessionId, data }) => ({
    type,
    subject,
    sandbox_id: sandboxId,
    session_id: sessionId,
    data: bounded(data),
  }))
  return sql`
    insert into events (org_id, number, ts, type, subject, sandbox_id, session_id, actor_type, actor_id, cause, tags, data)
    select ${orgId}::text, last_number - ${entries.length}::integer + index, clock_timestamp(), type, subject, sandbox_id, session_id,
      ${actor.type}::text, ${actor.id ?? null}::text, ${cause}::text,
      (select nullif(tags, '{}') from sandboxes where id = sandbox_id), data
    from counted, rows from (
      jsonb_to_recordset(${lenientJson(rows)}::jsonb)
        as (type text, subject text, sandbox_id text, session_id text, data jsonb)
    ) with ordinality as entry (type, subject, sandbox_id, session_id, data, index)`
}

function bounded(data: LogEntry['data']): LogEntry['data'] {
  if (!('message' in data) || data.message === undefined || data.message.length <= messageLengthMax) return data
  return { ...data, message: `${data.message.slice(0, messageLengthMax)}…` }
}

export function eventLog(db: Kysely<Database>): EventLog {
  return {
    async page(orgId, { after, limit, filter }) {
      // Read this first: the rows read below then have all numbers up to it.
      const { newest = 0, oldest } = (await ends(db, orgId)) ?? {}
      const lookedAt = Math.min(after + lookedAtMax, newest)
      const rows = await matching(db, orgId, filter)
        .where('number', '>', after)
        .where('number', '<=', Math.max(lookedAt, after))
        .orderBy('number')
        .limit(limit)
        .execute()
      const events = rows.map(toEvent)
      const next = rows.length === limit ? (rows.at(-1)?.number ?? after) : Math.max(lookedAt, after)
      return { events, next, newest, oldest: oldest ?? newest + 1 }
    },

    async purge(before, rowsMax) {
      const counters = await db.selectFrom('eventCounters').selectAll().orderBy('orgId').execute()
      let count = 0
      for (const { orgId, lastNumber } of counters) {
        for (;;) {
          const deleted = await deleteOldest(db, orgId, { before, upTo: lastNumber - rowsMax })
          count += deleted
          if (deleted < purgedAtOnce) break
        }
      }
      return count
    },
  }
}

async function ends(db: Kysely<Database>, orgId: string) {
  return await db
    .selectFrom('eventCounters')
    .select([
      'lastNumber as newest',
      (eb) =>
        eb
          .selectFrom('events')
          .select((select) => select.fn.min('number').as('oldest'))
          .where('events.orgId', '=', orgId)
          .as('oldest'),
    ])
    .where('orgId', '=', orgId)
    .executeTakeFirst()
}

function matching(db: Kysely<Database>, orgId: string, { types, sandboxId, sessionId, tag }: LogFilter) {
  let query = db.selectFrom('events').selectAll().where('orgId', '=', orgId)
  if (types !== undefined) query = query.where('type', 'in', types)
  if (sandboxId !== undefined) query = query.where('sandboxId', '=', sandboxId)
  if (sessionId !== undefined) query = query.where('sessionId', '=', sessionId)
  if (tag === undefined) return query
  const { key, value } = tag
  return query.where(
    value === undefined ? sql<boolean>`jsonb_exists(tags, ${key})` : sql<boolean>`tags ->> ${key} = ${value}`,
  )
}

/** Deletes the oldest rows of an organisation from the first on, so that the rest has no gap. */
async function deleteOldest(
  db: Kysely<Database>,
  orgId: string,
  { before, upTo }: { before: Date; upTo: number },
): Promise<number> {
  const { numAffectedRows = 0n } = await sql`
    with oldest as (
      select number, ts from events where org_id = ${orgId} order by number limit ${purgedAtOnce}
    )
    delete from events where org_id = ${orgId}
      and number <= (select max(number) from oldest where number <= ${upTo} or ts < ${before})`.execute(db)
  return Number(numAffectedRows)
}

export function toEvent(row: Selectable<EventTable>): LogEvent {
  const { actorType, actorId, tags: _tags, ...rest } = present(row)
  return { ...rest, actor: { type: actorType, ...(actorId === undefined ? {} : { id: actorId }) } }
}
