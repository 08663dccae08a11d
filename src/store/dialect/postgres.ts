import { PostgresDialect } from 'kysely'
import pg from 'pg'
import type { Backend } from './index.ts'
import { DatabaseLock, type LockState } from './postgres-lock.ts'

const connectionsMax = 10
const connectTimeoutMs = 10_000
const statementTimeoutMs = 30_000
/** Beyond the server's own limit: reached only when the server or the network is gone. */
const answerTimeoutMs = statementTimeoutMs + 5_000

/** A bounded pool behind the lock of the database; no statement, idle transaction or connect waits for ever. */
export async function postgresBackend(databaseUrl: string, lockChanged: (state: LockState) => void): Promise<Backend> {
  const lock = await DatabaseLock.take(databaseUrl, lockChanged)
  const pool = new pg.Pool({
    connectionString: databaseUrl,
    application_name: 'atoll',
    max: connectionsMax,
    connectionTimeoutMillis: connectTimeoutMs,
    statement_timeout: statementTimeoutMs,
    idle_in_transaction_session_timeout: statementTimeoutMs,
    query_timeout: answerTimeoutMs,
    types: {
      getTypeParser: (oid, format) => (oid === pg.types.builtins.INT8 ? Number : parserOf(oid, format)),
    },
  })
  // A connection that dies, idle in the pool or between two statements of a transaction, is told to the next statement
  // that wants it. Without listeners these events would end the process.
  pool.on('error', () => undefined)
  pool.on('connect', (client) => client.on('error', () => undefined))
  return { dialect: new PostgresDialect({ pool }), check: () => lock.check(), stop: () => lock.release() }
}

function parserOf(oid: number, format: 'text' | 'binary' | undefined): (value: string) => unknown {
  return pg.types.getTypeParser(oid, format) as (value: string) => unknown
}
