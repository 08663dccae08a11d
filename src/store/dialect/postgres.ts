import { CompiledQuery, PostgresDialect, type Dialect } from 'kysely'
import pg from 'pg'
import type { Backend } from './index.ts'
import { DatabaseLock, type LockState } from './postgres-lock.ts'

const connectionsMax = 10
const connectTimeoutMs = 10_000
const statementTimeoutDefaultMs = 30_000
/** On top of the server's own timeout: reached only when the server or the network is gone. */
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

export interface PostgresOptions {
  lockChanged?: (state: LockState) => void
  statementTimeoutMs?: number
}

/** A bounded pool behind the lock of the database. Statements, idle transactions and connects have timeouts. */
export async function postgresBackend(
  databaseUrl: string,
  { lockChanged = () => undefined, statementTimeoutMs = statementTimeoutDefaultMs }: PostgresOptions = {},
): Promise<Backend> {
  const lock = await DatabaseLock.take(databaseUrl, lockChanged)
  const pool = poolOf({
    connectionString: databaseUrl,
    application_name: 'atoll',
    max: connectionsMax,
    statement_timeout: statementTimeoutMs,
    idle_in_transaction_session_timeout: statementTimeoutMs,
    query_timeout: statementTimeoutMs + answerGraceMs,
  })
  return {
    dialect: new PostgresDialect({ pool }),
    unlimited: () => unlimitedDialect(databaseUrl),
    check: () => lock.check(),
    stop: () => lock.release(),
  }
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

function poolOf(config: pg.PoolConfig): pg.Pool {
  const pool = new pg.Pool({
    ...config,
    connectionTimeoutMillis: connectTimeoutMs,
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
