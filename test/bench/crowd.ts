import { Agent } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { databaseUrl } from '../../src/postgres/address.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { AtollServer } from '../e2e/server.ts'
import { operatorKey, Tenant } from '../e2e/tenant.ts'
import { ask } from './http.ts'
import { type Comparison, compare, summary, timed } from './measure.ts'

const organisations = 100
const recordsOfEach = 1000
const rounds = 60
const startRounds = 6
/** Reads take about a millisecond: one round is so many. */
const readsPerRound = 20
const pageLength = 20
const eventsPerSecond = 10_000 / 60
const createRounds = 200
/** After which tables that have grown are analysed. */
const settleMs = 70_000
const against = 'one organisation with 20 records'

/**
 * A server with a hundred organisations, each with a thousand ended sandboxes, their events and what they used, against one with a single
 * organisation; then a create beside an organisation whose log grows fast. Sandboxes are started cold: warm ones would hide what a start costs.
 */
export async function crowdBench(): Promise<Comparison[]> {
  const env = { ATOLL_OPERATOR_KEY: operatorKey, ATOLL_LOG_LEVEL: 'warn', ATOLL_REQUESTS_PER_SECOND: '0' }
  await using many = await AtollServer.start({ env })
  await using one = await AtollServer.start({ env })
  const members: Tenant[] = []
  for (let index = 0; index < organisations; index += 1) members.push(await Tenant.make(many, `member-${index}`))
  await using member = members[0]!
  await using single = await Tenant.make(one, 'single')
  for (const { orgId } of members) await insertRecords(many, orgId, recordsOfEach)
  await insertRecords(one, single.orgId, pageLength)
  await sleep(settleMs)

  const agent = new Agent({ keepAlive: true })
  const reads = async ({ server, key }: Tenant, path: string) => {
    for (let read = 0; read < readsPerRound; read += 1) {
      const status = await ask(agent, { port: server.port, path, headers: { 'X-API-Key': key } })
      if (status !== 200) throw new Error(`GET ${path} answered ${status}`)
    }
  }
  const createAndDelete = async (tenant: Tenant) => tenant.delete(await tenant.sandbox())
  const pair = (what: string, count: number, work: (tenant: Tenant) => Promise<unknown>) =>
    compare(what, against, count, { atoll: () => work(member), other: () => work(single) })
  const rows = [
    await pair(`list ${pageLength} sandboxes, ${readsPerRound} times`, rounds, (tenant) =>
      reads(tenant, `/api/sandboxes?status=stopped&limit=${pageLength}`),
    ),
    await pair(`list ${pageLength} events, ${readsPerRound} times`, rounds, (tenant) =>
      reads(tenant, `/api/events?follow=false&limit=${pageLength}`),
    ),
    await pair(`list ${pageLength} entries of the audit, ${readsPerRound} times`, rounds, (tenant) =>
      reads(tenant, `/api/audit?limit=${pageLength}`),
    ),
    await pair('create and delete a sandbox, cold', rounds, createAndDelete),
    await pair('start the server', startRounds, async ({ server }) => {
      await server.stop()
      await server.restart()
    }),
    ...(await besideEvents(member, members[1]!)),
  ]
  agent.destroy()
  return rows
}

/** The 95th percentiles of the report are the 99th here. */
async function besideEvents(tenant: Tenant, busy: Tenant): Promise<Comparison[]> {
  const creates = async (): Promise<number[]> => {
    const all: number[] = []
    for (let round = 0; round < createRounds; round += 1) {
      const made: string[] = []
      all.push(await timed(async () => made.push(await tenant.sandbox())))
      await Promise.all(made.map((id) => tenant.delete(id)))
    }
    return all
  }
  const before = await creates()
  const ending = new AbortController()
  const appended = appendEvents(busy, ending.signal)
  const beside = await creates()
  ending.abort()
  const count = await appended
  const after = await creates()
  const other = [...before, ...after]
  console.error(`bench: ${count} events were appended`)
  const what = 'create a sandbox beside 10 000 events a minute, 99th percentile'
  const p99 = (values: readonly number[]) => ({
    ...summary(values),
    p95: values.toSorted((a, b) => a - b)[Math.ceil(values.length * 0.99) - 1] ?? Number.NaN,
  })
  return [{ what, against: 'no events', rounds: beside.length, atoll: p99(beside), other: p99(other) }]
}

/** As the server does: a transaction for each, which counts and inserts. Returns how many. */
async function appendEvents({ server, orgId }: Tenant, signal: AbortSignal): Promise<number> {
  return await onDatabase(server, async (client) => {
    const begun = performance.now()
    let count = 0
    while (!signal.aborted) {
      for (; count < ((performance.now() - begun) / 1000) * eventsPerSecond; count += 1) {
        await client.query(
          `with counted as (
             insert into event_counters as counter (org_id, last_number) values ($1, 1)
             on conflict (org_id) do update set last_number = counter.last_number + 1 returning last_number)
           insert into events (org_id, number, ts, type, subject, actor_type, cause, data)
           select $1, last_number, now(), 'key.created', 'bench', 'server', 'server', '{}' from counted`,
          [orgId],
        )
      }
      await sleep(5)
    }
    return count
  })
}

/** Ended sandboxes, each with the events and the entries of the audit that it would have. */
async function insertRecords(server: AtollServer, orgId: string, count: number): Promise<void> {
  await onDatabase(server, async (client) => {
    await client.query(
      `insert into sandboxes (id, org_id, status, image, cpu_count, memory_mb, disk_mb, timeout_seconds, envs, metadata, tags,
         created_at, started_at, active_at, stopped_at)
       select 'sb-' || md5($1 || n), $1, 'stopped', 'base', 1, 1024, 10240, 300, '{}', '{}', '{"team": "bench"}',
         now() - n * interval '1 second', now() - n * interval '1 second', now(), now()
       from generate_series(1, $2) as n`,
      [orgId, count],
    )
    await client.query(
      `insert into events (org_id, number, ts, type, subject, sandbox_id, actor_type, cause, data)
       select $1, 1000000 + row_number() over (), now(), kind, id, id, 'api_key', 'request', '{}'
       from sandboxes, unnest(array['sandbox.created', 'sandbox.ready', 'sandbox.stopped']) as kind where org_id = $1`,
      [orgId],
    )
    await client.query(
      `insert into event_counters (org_id, last_number) values ($1, 2000000)
       on conflict (org_id) do update set last_number = 2000000`,
      [orgId],
    )
    await client.query(
      `insert into usage_spans (org_id, sandbox_id, started_at, ended_at, memory_mb, cpu_count, disk_mb)
       select org_id, id, started_at, stopped_at, memory_mb, cpu_count, disk_mb from sandboxes where org_id = $1`,
      [orgId],
    )
  })
}

async function onDatabase<Result>(server: AtollServer, work: (client: pg.Client) => Promise<Result>): Promise<Result> {
  const client = new pg.Client({ connectionString: databaseUrl(new HostNames(server.dataDir).databaseDir) })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
