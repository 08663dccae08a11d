/**
 * The process that sends webhooks. The server starts it, tells it over IPC what it needs, and starts it again when it ends. It touches the tables
 * of webhooks and of its queue alone, and ends with the server, however that ends.
 */
import tls from 'node:tls'
import { Logger, type Runner, run } from 'graphile-worker'
import pg from 'pg'
import { Sealer } from '../../lib/sealed.ts'
import { type DeliverPayload, deliverTask, queueSchema } from '../queue.ts'
import { noTargets, readTargets } from '../target.ts'
import { deliver } from './deliver.ts'
import type { DeliveryOrders, DeliveryReport } from './orders.ts'

const jobsAtOnce = 32
const connectionsMax = 10
/** NOTIFY starts a job at once; this finds those whose time has come. */
const pollMs = 500
/** Of this process. Its number is that of the lock of one that delivers, in the namespace of the database. */
const lockKey = 0x61_74_6f_6c
const applicationName = 'atoll webhooks'

const ended = new AbortController()
let runner: Runner | undefined

process.on('disconnect', () => process.exit(0))
process.on('message', (message) => {
  const orders = message as DeliveryOrders
  if (orders.type === 'start') void start(orders).catch(fail)
  if (orders.type === 'stop') void stop(orders.graceMs)
})
report({ type: 'waiting' })

async function start({
  user,
  databaseUrl,
  secret,
  targets,
  userAgent,
}: Extract<DeliveryOrders, { type: 'start' }>): Promise<void> {
  become(user)
  const pool = new pg.Pool({ connectionString: databaseUrl, application_name: applicationName, max: connectionsMax })
  pool.on('error', (error) => report({ type: 'trouble', message: error.message }))
  pool.on('connect', (client) => client.on('error', () => undefined))
  await holdLock(databaseUrl)
  await unlockJobs(pool)
  const sealer = new Sealer(secret)
  const attempt = { allowed: readTargets(targets) ?? noTargets, signal: ended.signal }
  runner = await run({
    pgPool: pool,
    schema: queueSchema,
    concurrency: jobsAtOnce,
    pollInterval: pollMs,
    noHandleSignals: true,
    parsedCronItems: [],
    logger: new Logger(() => (level, message) => {
      if (level === 'error') report({ type: 'trouble', message: message.slice(0, 500) })
    }),
    taskList: {
      [deliverTask]: async (payload) => {
        await deliver((payload as DeliverPayload).messageId, { pool, sealer, attempt, userAgent })
      },
    },
  })
  report({ type: 'delivering' })
  await runner.promise
  fail(new Error('the queue has ended'))
}

/**
 * Gives up root, and with it all capabilities. Not before: nobody else may be able to read the folder of the program, nor the certificates of
 * `NODE_EXTRA_CA_CERTS`.
 */
function become({ uid, gid }: { uid: number; gid: number }): void {
  tls.setDefaultCACertificates([...tls.getCACertificates('default')])
  process.setgroups?.([])
  process.setgid?.(gid)
  process.setuid?.(uid)
  if (process.getuid?.() !== uid || process.geteuid?.() !== uid) throw new Error('the process is root still')
}

async function stop(graceMs: number): Promise<void> {
  setTimeout(() => process.exit(0), graceMs)
  await runner?.stop().catch(() => undefined)
  process.exit(0)
}

/** Waits until no other process delivers for this database: one that is not dead yet ends when it sees that its server is gone. */
async function holdLock(connectionString: string): Promise<void> {
  const client = new pg.Client({ connectionString, application_name: applicationName, keepAlive: true })
  client.on('error', fail)
  client.on('end', () => fail(new Error('the connection that holds the lock was closed')))
  await client.connect()
  await client.query('select pg_advisory_lock($1, 2)', [lockKey])
}

/** What a killed process had locked: nobody else delivers now. */
async function unlockJobs(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ id: string }>(
    `select distinct locked_by as id from ${queueSchema}._private_jobs where locked_by is not null
     union select locked_by from ${queueSchema}._private_job_queues where locked_by is not null`,
  )
  const ids = rows.map(({ id }) => id)
  if (ids.length > 0) await pool.query(`select ${queueSchema}.force_unlock_workers($1::text[])`, [ids])
}

function fail(error: unknown): void {
  report({ type: 'trouble', message: error instanceof Error ? error.message : String(error) })
  process.exit(1)
}

function report(message: DeliveryReport): void {
  process.send?.(message)
}
