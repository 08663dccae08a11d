import { sql, type Kysely, type RawBuilder } from 'kysely'
import type {
  MeasuredMinute,
  ModelTotals,
  Reading,
  SandboxUsageItem,
  SessionUsageItem,
  Span,
  UsageStore,
  UsageTotals,
} from '../organisation/usage/index.ts'
import type { LogWriter } from './event-log.ts'
import { anyOf, present } from './rows.ts'
import type { Database } from './schema.ts'

/** The part of a sandbox's disk that costs nothing beside its memory. */
const freeDiskMb = 20_480
const purgedAtOnce = 5000

export function usageStore(db: Kysely<Database>, writer: LogWriter): UsageStore {
  return {
    async countReadings(readings) {
      if (readings.length === 0) return
      await db.transaction().execute(async (transaction) => {
        const given = sql`
          select * from jsonb_to_recordset(${JSON.stringify(readings.map(rowOf))}::jsonb) as given (
            sandbox_id text, org_id text, epoch timestamptz, read_at timestamptz, cpu_us bigint, sent_bytes bigint,
            received_bytes bigint, memory_mb double precision)`
        // Two statements: one that changes a row does not see it as it was in all of its parts.
        await sql`
          insert into usage_minutes as known (sandbox_id, minute, org_id, memory_mb_seconds, measured_seconds, memory_peak_mb, cpu_us,
              sent_bytes, received_bytes)
            select sandbox_id, minute, org_id, memory_mb * seconds, seconds, memory_mb, cpu_us, sent_bytes, received_bytes from (
              select given.sandbox_id, given.org_id, date_trunc('minute', given.read_at) as minute,
                ${risen('cpu_us')} as cpu_us, ${risen('sent_bytes')} as sent_bytes, ${risen('received_bytes')} as received_bytes,
                ceil(given.memory_mb)::integer as memory_mb,
                least(greatest(extract(epoch from given.read_at - coalesce(before.read_at, given.epoch)), 0), 60) as seconds
              from (${given}) given left join usage_readings before on before.sandbox_id = given.sandbox_id
              where before.read_at is null or given.read_at > before.read_at
            ) as risen
            on conflict (sandbox_id, minute) do update set
              memory_mb_seconds = known.memory_mb_seconds + excluded.memory_mb_seconds,
              measured_seconds = known.measured_seconds + excluded.measured_seconds,
              memory_peak_mb = greatest(known.memory_peak_mb, excluded.memory_peak_mb),
              cpu_us = known.cpu_us + excluded.cpu_us,
              sent_bytes = known.sent_bytes + excluded.sent_bytes,
              received_bytes = known.received_bytes + excluded.received_bytes`.execute(transaction)
        await sql`
          insert into usage_readings as known (sandbox_id, epoch, read_at, cpu_us, sent_bytes, received_bytes)
            select sandbox_id, epoch, read_at, cpu_us, sent_bytes, received_bytes from (${given}) given
            on conflict (sandbox_id) do update set epoch = excluded.epoch, read_at = excluded.read_at, cpu_us = excluded.cpu_us,
              sent_bytes = excluded.sent_bytes, received_bytes = excluded.received_bytes
              where excluded.read_at > known.read_at`.execute(transaction)
      })
    },

    async sandboxUsage(orgId, { from, to }, tags) {
      const conditions = [...tags].map(([key, values]) =>
        values.length === 0
          ? sql<boolean>`not jsonb_exists(known.tags, ${key})`
          : sql<boolean>`known.tags ->> ${key} = ${anyOf(values)}`,
      )
      const { rows } = await sql<Row>`
        select known.sandbox_id, name, status, tags, tags_updated_at, key_id, ${spanTotals}, ${measured}
        from usage_sandboxes known
        join (${spansWithin(from, to, sql`and span.org_id = ${orgId}`)}) span on span.sandbox_id = known.sandbox_id
        left join (
          select sandbox_id, sum(cpu_us) as cpu_us, sum(sent_bytes) as sent_bytes, sum(received_bytes) as received_bytes
          from usage_minutes where org_id = ${orgId} and minute >= ${from} and minute < ${to} group by sandbox_id
        ) minutes on minutes.sandbox_id = known.sandbox_id
        where known.org_id = ${orgId} ${conditions.length === 0 ? sql`` : sql`and ${sql.join(conditions, sql` and `)}`}
        group by known.sandbox_id`.execute(db)
      return rows.map((row) => present(row) as unknown as SandboxUsageItem)
    },

    async sessionUsage(orgId, { from, to }) {
      const { rows } = await sql<SessionUsageItem>`
        select session_id, max(model) as model, max(key_id) as key_id, ${modelTotals}
        from usage_models where org_id = ${orgId} and hour >= ${from} and hour < ${to}
        group by session_id`.execute(db)
      return rows.map((row) => present(row) as unknown as SessionUsageItem)
    },

    async sandbox(orgId, sandboxId) {
      const { rows } = await sql<{ name: string | null }>`
        select name from usage_sandboxes where sandbox_id = ${sandboxId} and org_id = ${orgId}`.execute(db)
      const [row] = rows
      return row && (row.name === null ? {} : { name: row.name })
    },

    async spans(sandboxId, { from, to }) {
      const { rows } = await sql<{ startedAt: Date; endedAt: Date | null; memoryMb: number }>`
        select started_at, ended_at, memory_mb from usage_spans
        where sandbox_id = ${sandboxId} and started_at < ${to} and (ended_at is null or ended_at > ${from})
        order by started_at`.execute(db)
      return rows.map((row) => present(row) as Span)
    },

    async minutes(sandboxId, { from, to }) {
      const { rows } = await sql<MeasuredMinute>`
        select minute, memory_mb_seconds, measured_seconds, memory_peak_mb from usage_minutes
        where sandbox_id = ${sandboxId} and minute >= date_trunc('minute', ${from}::timestamptz) and minute < ${to}
        order by minute`.execute(db)
      return rows
    },

    async organisationUsage({ from, to }, orgIds) {
      const some = (column: string) => (orgIds === undefined ? sql`true` : sql`${sql.ref(column)} = ${anyOf(orgIds)}`)
      const { rows } = await sql<UsageTotals & ModelTotals & { orgId: string }>`
        select organisations.id as org_id, ${spanTotals}, ${measured},
          coalesce(max(models.input_tokens), 0) as input_tokens, coalesce(max(models.output_tokens), 0) as output_tokens,
          coalesce(max(models.cache_read_tokens), 0) as cache_read_tokens,
          coalesce(max(models.cache_write_tokens), 0) as cache_write_tokens,
          coalesce(max(models.model_usd), 0) as model_usd, coalesce(bool_and(models.is_cost_known), true) as is_cost_known
        from organisations
        left join (${spansWithin(from, to, sql`and ${some('span.org_id')}`)}) span on span.org_id = organisations.id
        left join (
          select org_id, sum(cpu_us) as cpu_us, sum(sent_bytes) as sent_bytes, sum(received_bytes) as received_bytes
          from usage_minutes where minute >= ${from} and minute < ${to} and ${some('org_id')} group by org_id
        ) minutes on minutes.org_id = organisations.id
        left join (
          select org_id, ${modelTotals} from usage_models where hour >= ${from} and hour < ${to} and ${some('org_id')} group by org_id
        ) models on models.org_id = organisations.id
        where ${some('organisations.id')}
        group by organisations.id`.execute(db)
      return rows
    },

    async closeLost(sandboxId) {
      await sql`
        update usage_spans span set ended_at = greatest(started_at, least(ended_at, coalesce(
          (select read_at from usage_readings where sandbox_id = span.sandbox_id and read_at > span.started_at), started_at)))
        where id = (select id from usage_spans where sandbox_id = ${sandboxId} and ended_at is not null order by ended_at desc limit 1)`.execute(
        db,
      )
    },

    async tellBudget(orgId, month, share, usd) {
      return await writer.transaction(db, async (transaction, note) => {
        const { numAffectedRows = 0n } = await sql`
          insert into usage_budgets as known (org_id, month, told) values (${orgId}, ${month}::date, ${share})
          on conflict (org_id, month) do update set told = excluded.told where known.told < excluded.told`.execute(
          transaction,
        )
        if (numAffectedRows === 0n) return false
        const type = share === 80 ? 'usage.budget_warning' : 'usage.budget_exceeded'
        note(orgId, { type, subject: orgId, data: usd })
        return true
      })
    },

    async purge(minutesBefore, spansBefore) {
      let count = await deleted(db, sql`usage_minutes`, sql`minute < ${minutesBefore}`)
      count += await deleted(db, sql`usage_models`, sql`hour < ${spansBefore}`)
      count += await deleted(db, sql`usage_spans`, sql`ended_at < ${spansBefore}`)
      const noSpan = sql`not exists (select from usage_spans where usage_spans.sandbox_id = usage_sandboxes.sandbox_id)`
      count += await deleted(
        db,
        sql`usage_sandboxes`,
        sql`status = 'stopped' and created_at < ${spansBefore} and ${noSpan}`,
      )
      const noRecord = sql`not exists (select from sandboxes where sandboxes.id = usage_readings.sandbox_id)`
      return count + (await deleted(db, sql`usage_readings`, noRecord))
    },
  }
}

interface Row extends Omit<SandboxUsageItem, 'name' | 'tagsUpdatedAt' | 'keyId'> {
  name: string | null
  tagsUpdatedAt: Date | null
  keyId: string | null
}

/** Spans cut to the window, with their seconds. Sums of a sandbox are joined to sums of others, so it has one row for each. */
function spansWithin(from: Date, to: Date, condition: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`
    select org_id, sandbox_id, started_at, memory_mb * seconds as memory, disk_mb * seconds as disk, cpu_count * seconds as cpu,
      greatest(disk_mb - ${freeDiskMb}::integer, 0) * seconds as overage
    from (
      select *, extract(epoch from least(coalesce(ended_at, clock_timestamp()), ${to}) - greatest(started_at, ${from}))::double precision as seconds
      from usage_spans span
      where started_at < ${to} and (ended_at is null or ended_at > ${from}) ${condition}
    ) as cut where seconds > 0`
}

const spanTotals = sql`
  coalesce(sum(span.memory), 0) / 1024 as memory_gb_seconds, coalesce(sum(span.overage), 0) / 1024 as disk_overage_gb_seconds,
  coalesce(sum(span.disk), 0) / 1024 as disk_gb_seconds, coalesce(sum(span.cpu), 0) as cpu_allocated_seconds`
/** Each group has one row of minutes, which its spans repeat. */
const measured = sql`
  coalesce(max(minutes.cpu_us), 0)::double precision / 1000000 as cpu_used_seconds,
  coalesce(max(minutes.sent_bytes), 0)::bigint as egress_bytes, coalesce(max(minutes.received_bytes), 0)::bigint as ingress_bytes`
const modelTotals = sql`
  sum(input_tokens)::bigint as input_tokens, sum(output_tokens)::bigint as output_tokens,
  sum(cache_read_tokens)::bigint as cache_read_tokens, sum(cache_write_tokens)::bigint as cache_write_tokens,
  sum(cost_nano_usd)::double precision / 1000000000 as model_usd, bool_and(is_cost_known) as is_cost_known`

/** A counter of another start, and one that is lower, began anew. */
function risen(column: string): RawBuilder<unknown> {
  const [now, then] = [sql.raw(`given.${column}`), sql.raw(`before.${column}`)]
  return sql`case when before.epoch = given.epoch and ${now} >= ${then} then ${now} - ${then} else ${now} end`
}

function rowOf({ sandboxId, orgId, epoch, readAt, cpuUs, sentBytes, receivedBytes, memoryBytes }: Reading) {
  return {
    ...{ sandbox_id: sandboxId, org_id: orgId, epoch, read_at: readAt, cpu_us: cpuUs, sent_bytes: sentBytes },
    ...{ received_bytes: receivedBytes, memory_mb: memoryBytes / 1024 ** 2 },
  }
}

async function deleted(
  db: Kysely<Database>,
  table: RawBuilder<unknown>,
  condition: RawBuilder<unknown>,
): Promise<number> {
  let count = 0
  for (;;) {
    const { numAffectedRows = 0n } = await sql`
      delete from ${table} where ctid = any(array(select ctid from ${table} where ${condition} limit ${purgedAtOnce}))`.execute(
      db,
    )
    count += Number(numAffectedRows)
    if (numAffectedRows < purgedAtOnce) return count
  }
}
