import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { databaseLockKey } from '../../src/store/dialect/postgres-lock.ts'

/** A database of its own on the server of `TEST_DATABASE_URL`, which must be removed by `drop`. */
export async function freshDatabase(): Promise<{ url: string; drop: () => Promise<void> }> {
  const name = `atoll_test_${randomBytes(6).toString('hex')}`
  const server = serverUrl()
  await execute(server, `create database ${name}`)
  const own = new URL(server)
  own.pathname = `/${name}`
  return { url: own.href, drop: () => execute(server, `drop database if exists ${name} with (force)`) }
}

export async function execute(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}

/** Ends connections from the server's side, by the name that they gave. */
export async function cutConnections(url: string, applicationName: string): Promise<void> {
  const name = pg.escapeLiteral(applicationName)
  const named = `select pid from pg_stat_activity where datname = current_database() and application_name = ${name}`
  await execute(url, `select pg_terminate_backend(pid) from (${named}) as named`)
}

/** A connection that waits for the lock of the database in PostgreSQL's queue, before all who only try. */
export async function queueForLock(url: string): Promise<{ locked: Promise<unknown>; end: () => Promise<void> }> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  const locked = client.query('select pg_advisory_lock($1)', [databaseLockKey])
  const waiting = `select 1 from pg_locks where pid = ${rows[0]?.pid} and locktype = 'advisory' and not granted`
  const watcher = new pg.Client({ connectionString: url })
  await watcher.connect()
  while ((await watcher.query(waiting)).rowCount === 0) await sleep(5)
  await watcher.end()
  return { locked, end: () => client.end() }
}

function serverUrl(): string {
  const url = process.env['TEST_DATABASE_URL']
  if (url !== undefined && url !== '') return url
  throw new Error(
    'TEST_DATABASE_URL is not set. `npm test` starts a PostgreSQL server and sets it; by hand, name one whose user may ' +
      'create databases: TEST_DATABASE_URL=postgres://postgres@127.0.0.1:5432/postgres',
  )
}
