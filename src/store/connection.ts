import { CompiledQuery, PostgresDialect, type Dialect, type PostgresPool } from 'kysely'
import pg from 'pg'
import { ServiceError } from '../errors.ts'
import { whoActs } from '../events/index.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import { defined } from '../lib/defined.ts'
import { applicationName, DatabaseLock, type LockState } from './lock.ts'

const connectTimeoutMs = 10_000
/** Added to the server's own timeout, so only reached when the server or the network is gone. */
const answerGraceMs = 5_000
/** After this silence the kernel probes the connection and closes a dead one. */
const keepAliveMs = 10_000

/**
 * Overrides the server's configuration, as far as its version has these settings. PostgreSQL checks the client connection every ten
 * seconds: the statement of a killed server ends and releases its table locks.
 */
const noTimeouts = `select set_config(name, case name when 'client_connection_check_interval' then '10s' else '0' end, false)
  from pg_settings where name in ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout',
    'idle_in_transaction_session_timeout', 'client_connection_check_interval')`

/** A snapshot of the database at one moment, for programs that read it by its id. */
export interface ExportedSnapshot extends AsyncDisposable {
  databaseUrl: string
  /** For `pg_dump --snapshot`; valid until it is disposed of. */
  id: string
  /** The major version of the server. */
  major: number
}

/** The database behind its lock. */
export interface Backend {
  dialect: Dialect
  /** For migrations: a connection without timeouts for statements and transactions. */
  unlimited(): Dialect
  exportSnapshot(): Promise<ExportedSnapshot>
  /** Throws `unavailable` while another server might use the database. */
  check(): void
  /** Releases the lock. Called once, before the dialect's driver is destroyed. */
  stop(): Promise<void>
}

/** What a store asks of its server. */
export const defaultStoreLimits = {
  /** Connections of the pool. One more has the lock, and one more runs the migrations of a start. */
  connectionsMax: 10,
  /** Calls that may wait for a connection, half of them of one organisation; further ones are refused at once. */
  waitingMax: 1000,
  /** A statement, and a transaction that does nothing, are ended after this time. */
  statementMs: 30_000,
  /** Statements that take at least this long are logged. */
  slowStatementMs: 1000,
}

export type StoreLimits = typeof defaultStoreLimits

export interface PostgresOptions {
  lockChanged?: (state: LockState) => void
  limits?: Partial<StoreLimits>
  /** The weight of an organisation among those whose calls wait. */
  shareOf?: ((orgId: string) => number) | undefined
}

/** A bounded pool behind the lock of the database. Statements, idle transactions and connects have timeouts. */
export async function postgresBackend(
  databaseUrl: string,
  { lockChanged = () => undefined, limits = {}, shareOf }: PostgresOptions = {},
): Promise<Backend> {
  const { connectionsMax, waitingMax, statementMs } = { ...defaultStoreLimits, ...limits }
  const lock = await DatabaseLock.take(databaseUrl, lockChanged)
  const pool = poolOf({
    connectionString: databaseUrl,
    application_name: applicationName,
    max: connectionsMax,
    statement_timeout: statementMs,
    idle_in_transaction_session_timeout: statementMs,
    query_timeout: statementMs + answerGraceMs,
  })
  return {
    dialect: new PostgresDialect({ pool: fairPool(pool, { connectionsMax, waitingMax, shareOf }) }),
    unlimited: () => unlimitedDialect(databaseUrl),
    exportSnapshot: () => exportSnapshot(databaseUrl),
    check: () => lock.check(),
    stop: () => lock.release(),
  }
}

/** The server's own work counts for an organisation of no name. */
const ownWork = ''
/** One organisation leaves a fifth of the connections to others. */
const partForOthers = 1 / 5

interface FairPoolOptions extends Pick<StoreLimits, 'connectionsMax' | 'waitingMax'> {
  shareOf: ((orgId: string) => number) | undefined
}

/**
 * A pool that serves organisations by their shares. It refuses callers when `waitingMax` others wait, and those of one organisation when half as
 * many of it do. Transactions of one organisation wait for each other, such as for the number of its next event, and hold connections meanwhile,
 * so that it never has all.
 */
function fairPool(pool: pg.Pool, { connectionsMax, waitingMax, shareOf }: FairPoolOptions): PostgresPool {
  const permitsPerKey = connectionsMax - Math.floor(connectionsMax * partForOthers)
  const permits = new Semaphore({ permits: connectionsMax, permitsPerKey, ...defined({ shareOf }) })
  const waitingOfOneMax = Math.ceil(waitingMax / 2)
  const waiting = new Map<string, number>()
  let waitingOfAll = 0
  const wait = async (key: string) => {
    const ofOne = waiting.get(key) ?? 0
    if (waitingOfAll >= waitingMax) {
      throw new ServiceError('unavailable', `the database is busy: ${waitingMax} calls wait for a connection`)
    }
    if (key !== ownWork && ofOne >= waitingOfOneMax) {
      const details = { limit: waitingOfOneMax, retryAfterSeconds: 1 }
      throw new ServiceError('rate_limited', `${ofOne} calls of the organisation wait for the database`, { details })
    }
    waiting.set(key, ofOne + 1)
    waitingOfAll += 1
    try {
      return await permits.acquire({ key, signal: AbortSignal.timeout(connectTimeoutMs) })
    } catch (error) {
      throw new ServiceError('unavailable', 'the database is busy', { cause: error })
    } finally {
      waitingOfAll -= 1
      const left = (waiting.get(key) ?? 0) - 1
      if (left > 0) waiting.set(key, left)
      else waiting.delete(key)
    }
  }
  return {
    async connect() {
      const key = whoActs().orgId ?? ownWork
      const release = permits.tryAcquire({ key }) ?? (await wait(key))
      try {
        const client = prepared(await pool.connect())
        // The pool gives a client another `release` each time.
        const give = client.release.bind(client)
        client.release = (error) => {
          release()
          give(error)
        }
        return client
      } catch (error) {
        release()
        throw error
      }
    },
    end: () => pool.end(),
    options: pool.options,
  }
}

const preparedName = /^\s*\/\* prepared (\w+) \*\//
const preparing = new WeakSet<pg.PoolClient>()

/**
 * A statement that begins with a comment `prepared NAME` is planned once for each connection. It is for those that calls wait for and whose plan
 * costs more than the rest of them.
 */
function prepared(client: pg.PoolClient): pg.PoolClient {
  if (preparing.has(client)) return client
  preparing.add(client)
  const query = client.query.bind(client) as (config: pg.QueryConfig | string, values?: unknown[]) => Promise<never>
  client.query = ((text: string, values?: unknown[]) => {
    const name = typeof text === 'string' ? preparedName.exec(text)?.[1] : undefined
    return name === undefined ? query(text, values) : query({ name, text, values: values ?? [] })
  }) as typeof client.query
  return client
}

function unlimitedDialect(databaseUrl: string): Dialect {
  const pool = poolOf({
    connectionString: databaseUrl,
    application_name: 'atoll migration',
    max: 1,
    keepAlive: true,
    keepAliveInitialDelayMillis: keepAliveMs,
  })
  return new PostgresDialect({
    pool,
    onCreateConnection: async (connection) => {
      await connection.executeQuery(CompiledQuery.raw(noTimeouts))
    },
  })
}

/** Exports a snapshot. A separate connection without timeouts holds it, as the dump may take long. */
async function exportSnapshot(databaseUrl: string): Promise<ExportedSnapshot> {
  const client = new pg.Client({
    connectionString: databaseUrl,
    application_name: 'atoll backup',
    connectionTimeoutMillis: connectTimeoutMs,
    // Changes of sandboxes wait for the caller.
    query_timeout: connectTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: keepAliveMs,
  })
  // The next statement reports the failure, and a dump the end of the snapshot.
  client.on('error', () => undefined)
  const end = async () => await client.end().catch(() => undefined)
  try {
    await client.connect()
    await client.query(noTimeouts)
    await client.query('begin isolation level repeatable read read only')
    const { rows } = await client.query<{ id: string; version: string }>(
      `select pg_export_snapshot() as id, current_setting('server_version_num') as version`,
    )
    const [row] = rows
    if (row === undefined) throw new Error('the database told no snapshot')
    return { databaseUrl, id: row.id, major: Math.floor(Number(row.version) / 10_000), [Symbol.asyncDispose]: end }
  } catch (error) {
    await end()
    throw new ServiceError('unavailable', 'the database does not answer', { cause: error })
  }
}

function poolOf(config: pg.PoolConfig): pg.Pool {
  const pool = new pg.Pool({
    ...config,
    connectionTimeoutMillis: connectTimeoutMs,
    // An open store keeps the process alive only for its calls.
    allowExitOnIdle: true,
    types: {
      getTypeParser: (oid, format) => (oid === pg.types.builtins.INT8 ? Number : parserOf(oid, format)),
    },
  })
  // The next statement on a dead connection reports the failure. Without listeners these events would end the process.
  pool.on('error', () => undefined)
  pool.on('connect', (client) => client.on('error', () => undefined))
  return pool
}

function parserOf(oid: number, format: 'text' | 'binary' | undefined): (value: string) => unknown {
  return pg.types.getTypeParser(oid, format) as (value: string) => unknown
}
