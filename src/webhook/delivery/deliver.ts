import type { Pool, PoolClient } from 'pg'
import { Webhook } from 'standardwebhooks'
import type { Sealer } from '../../lib/sealed.ts'
import { purposeOf } from '../destination.ts'
import { deliverTask, jobMaxAttempts, queueSchema } from '../queue.ts'
import { keyOf } from '../secret.ts'
import { attempt, type AttemptOptions, type AttemptResult } from './attempt.ts'
import { circuitPause, disabledAfterMs, pauseAfter } from './schedule.ts'

interface Row {
  id: string
  org_id: string
  destination_id: string
  lane: number
  body: string
  attempts: number
  url: string
  sealed_secret: string
  sealed_old_secret: string | null
  old_secret_until: Date | null
  sealed_headers: string | null
  is_enabled: boolean
  circuit_ms: number
}

export interface DeliverDeps {
  pool: Pool
  sealer: Sealer
  attempt: AttemptOptions
  userAgent: string
}

/**
 * Carries out one job: an attempt of a message, its row, and what follows from it, in one transaction. A message that is done, of a disabled
 * destination or gone is left alone. Throws when the database does not answer; the job is then tried again.
 */
export async function deliver(messageId: string, deps: DeliverDeps): Promise<void> {
  const row = await read(messageId, deps.pool)
  if (row === undefined || !row.is_enabled) return
  // While its receiver fails, messages wait: each comes back when the pause is over.
  if (row.circuit_ms > 0) {
    await inTransaction(deps.pool, (client) => addJob(client, row.id, row.circuit_ms))
    return
  }
  const startedAt = new Date()
  const begunMs = performance.now()
  const request = signed(row, deps, startedAt)
  const result = request === undefined ? unsealed : await attempt(row.url, request, deps.attempt)
  // The end of the process: the attempt does not count, and the job is taken up by the next one.
  deps.attempt.signal?.throwIfAborted()
  await inTransaction(deps.pool, (client) => finish(client, row, result, startedAt, performance.now() - begunMs))
}

const unsealed: AttemptResult = {
  isSuccess: false,
  error: 'the secret of the destination was sealed by another installation: set it anew',
}

async function read(messageId: string, pool: Pool): Promise<Row | undefined> {
  const { rows } = await pool.query<Row>(
    `select message.id, message.org_id, destination_id, lane, body, attempts, url, sealed_secret, sealed_old_secret, old_secret_until,
       sealed_headers, is_enabled, greatest(extract(epoch from circuit_until - clock_timestamp()) * 1000, 0)::float as circuit_ms
     from webhook_messages message join webhook_destinations destination on destination.id = destination_id
     where message.id = $1 and message.state = 'pending'`,
    [messageId],
  )
  return rows[0]
}

function signed(row: Row, { sealer, userAgent }: DeliverDeps, at: Date) {
  const sealing = { orgId: row.org_id, purpose: purposeOf({ id: row.destination_id }) }
  const isOldValid = row.old_secret_until !== null && row.old_secret_until > at
  const sealed = [row.sealed_secret, ...(isOldValid && row.sealed_old_secret !== null ? [row.sealed_old_secret] : [])]
  const secrets = sealed.map((text) => sealer.open(text, sealing))
  if (secrets[0] === undefined) return undefined
  const own = row.sealed_headers === null ? undefined : sealer.open(row.sealed_headers, sealing)
  const signature = secrets
    .flatMap((secret) =>
      secret === undefined ? [] : new Webhook(keyOf(secret), { format: 'raw' }).sign(row.id, at, row.body),
    )
    .join(' ')
  const timestamp = String(Math.floor(at.getTime() / 1000))
  return {
    body: row.body,
    headers: {
      ...(own === undefined ? {} : (JSON.parse(own) as Record<string, string>)),
      'content-type': 'application/json',
      'user-agent': userAgent,
      ...{ 'svix-id': row.id, 'svix-timestamp': timestamp, 'svix-signature': signature },
      ...{ 'webhook-id': row.id, 'webhook-timestamp': timestamp, 'webhook-signature': signature },
    },
  }
}

async function finish(
  client: PoolClient,
  row: Row,
  { isSuccess, statusCode, error }: AttemptResult,
  startedAt: Date,
  ms: number,
): Promise<void> {
  await client.query(
    `insert into webhook_attempts (message_id, destination_id, started_at, duration_ms, state, response_status_code, error)
     select $1, $2, $3, $4, $5, $6, $7 where exists (select from webhook_messages where id = $1)`,
    [
      row.id,
      row.destination_id,
      startedAt,
      Math.round(ms),
      isSuccess ? 'success' : 'failed',
      statusCode ?? null,
      error ?? null,
    ],
  )
  const attempts = row.attempts + 1
  const pauseMs = isSuccess ? undefined : pauseAfter(attempts)
  const state = isSuccess ? 'success' : pauseMs === undefined ? 'failed' : 'pending'
  await client.query(
    `update webhook_messages set attempts = $2, state = $3, next_attempt_at = clock_timestamp() + make_interval(secs => $4 / 1000.0)
     where id = $1 and state = 'pending'`,
    [row.id, attempts, state, pauseMs ?? null],
  )
  if (pauseMs !== undefined) await addJob(client, row.id, pauseMs)
  if (isSuccess) {
    await client.query(
      `update webhook_destinations set failures = 0, failing_since = null, circuit_until = null
       where id = $1 and (failures > 0 or failing_since is not null)`,
      [row.destination_id],
    )
    return
  }
  const { rows } = await client.query<{ failures: number; failing_ms: number }>(
    `update webhook_destinations set failures = failures + 1, failing_since = coalesce(failing_since, clock_timestamp())
     where id = $1 returning failures, (extract(epoch from clock_timestamp() - failing_since) * 1000)::float as failing_ms`,
    [row.destination_id],
  )
  const [{ failures, failing_ms: failingMs } = { failures: 0, failing_ms: 0 }] = rows
  await client.query(
    `update webhook_destinations set circuit_until = clock_timestamp() + make_interval(secs => $2 / 1000.0) where id = $1 and $2 > 0`,
    [row.destination_id, circuitPause(failures)],
  )
  if (failingMs < disabledAfterMs) return
  await client.query(
    `update webhook_destinations set is_enabled = false, is_disabling_told = false,
       disabled_reason = 'its receiver has failed for five days'
     where id = $1 and is_enabled`,
    [row.destination_id],
  )
}

async function addJob(client: PoolClient, id: string, pauseMs: number): Promise<void> {
  await client.query(
    `select ${queueSchema}.add_job($1::text, json_build_object('messageId', message.id), queue_name => destination_id || ':' || lane,
       run_at => clock_timestamp() + make_interval(secs => $3 / 1000.0), job_key => message.id, max_attempts => $4::integer)
     from webhook_messages message where id = $2`,
    [deliverTask, id, pauseMs, jobMaxAttempts],
  )
}

async function inTransaction<Result>(pool: Pool, work: (client: PoolClient) => Promise<Result>): Promise<Result> {
  const client = await pool.connect()
  let isBroken = true
  try {
    await client.query('begin')
    const result = await work(client)
    await client.query('commit')
    isBroken = false
    return result
  } finally {
    client.release(isBroken)
  }
}
