/** Databases for tests: on the server of `TEST_DATABASE_URL`, or on a private cluster of the calling process. */
import { randomBytes } from 'node:crypto'
import { existsSync, rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import pg from 'pg'
import { silentLog } from '../../src/lib/log.ts'
import { type ClusterOptions, PrivateCluster } from '../../src/postgres/index.ts'
import { logGuard } from './log-guard.ts'
import { openStore, type Store, type StoreOptions } from '../../src/store/index.ts'

export interface TestDatabase {
  url: string
  drop(): Promise<void>
}

let found: Promise<string> | undefined

/** The address of a role that may create databases. */
function serverUrl(): Promise<string> {
  return (found ??= findServer())
}

/** A new database without a schema on a server; the caller removes it with `drop`. */
export async function freshDatabase(at?: string): Promise<TestDatabase> {
  const server = at ?? (await serverUrl())
  const name = `atoll_test_${randomBytes(6).toString('hex')}`
  await execute(server, `create database ${name}`)
  const own = new URL(server)
  own.pathname = `/${name}`
  return { url: own.href, drop: () => execute(server, `drop database if exists ${name} with (force)`) }
}

/** A store on a database of its own, which its end removes. */
export async function openFreshStore(
  at?: string,
  options: StoreOptions = {},
): Promise<Store & { databaseUrl: string }> {
  const { url, drop } = await freshDatabase(at)
  const store = await openStore(url, options)
  await execute(url, logGuard)
  const close = async () => {
    await store.close()
    await drop()
  }
  return { ...store, databaseUrl: url, close, [Symbol.asyncDispose]: close }
}

/** A private cluster in a folder; its socket is in `/run`, where its user may pass. */
export async function startTestCluster(
  dataDir: string,
  options: Partial<ClusterOptions> = {},
): Promise<PrivateCluster> {
  const socketDir = `/run/${basename(dataDir)}-db`
  return await PrivateCluster.start({
    dataDir,
    socketDir,
    hiddenDir: '/run/nothing',
    connectionsMax: 10,
    log: silentLog,
    ...options,
  })
}

async function findServer(): Promise<string> {
  const given = process.env['TEST_DATABASE_URL']
  if (given !== undefined && given !== '') return given
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-test-db-'))
  const cluster = await startTestCluster(dataDir)
  process.once('exit', () => {
    cluster.kill()
    // The folder of the database is the place of a mount until the server has ended, and an exit waits for nothing else.
    for (let looks = 0; looks < 100 && existsSync(dataDir); looks += 1) {
      if (looks > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20)
      for (const left of [dataDir, `/run/${basename(dataDir)}-db`]) rmSync(left, { recursive: true, force: true })
    }
  })
  return cluster.adminUrl
}

export async function execute(url: string, statement: string): Promise<void> {
  await valuesOf(url, statement)
}

/** The values of all rows of a statement, over a connection of its own. */
export async function valuesOf(url: string, statement: string, parameters?: unknown[]): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url })
  // A server that ends meanwhile fails the statement.
  client.on('error', () => undefined)
  await client.connect()
  try {
    // Several statements have several results; without parameters they may come together.
    const result: pg.QueryArrayResult | pg.QueryArrayResult[] = await client.query({
      text: statement,
      rowMode: 'array',
      ...(parameters === undefined ? {} : { values: parameters }),
    })
    return [result].flat().flatMap(({ rows }) => rows.flat())
  } finally {
    await client.end()
  }
}
