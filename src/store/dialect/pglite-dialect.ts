import { AbortedTransactionError, PGliteAdapter, PostgresIntrospector, PostgresQueryCompiler } from 'kysely'
import type { CompiledQuery, DatabaseConnection, Dialect, Driver, QueryResult } from 'kysely'
import type { PgliteThread } from './pglite-thread.ts'

/** PostgreSQL's state `in_failed_sql_transaction`: a commit rolled back what an error had ended before. */
const failedTransaction = '25P02'

/** One connection, which Kysely hands to one caller at a time: so transactions do not interleave. */
export function pgliteDialect(thread: PgliteThread): Dialect {
  return {
    createAdapter: () => new PGliteAdapter(),
    createDriver: () => new ThreadDriver(thread),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  }
}

/** Whoever opened the thread closes it. */
class ThreadDriver implements Driver {
  readonly #thread: PgliteThread
  readonly #connection: DatabaseConnection

  constructor(thread: PgliteThread) {
    this.#thread = thread
    this.#connection = new ThreadConnection(thread)
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#connection
  }

  async beginTransaction(): Promise<void> {
    await this.#thread.call({ kind: 'begin' })
  }

  async commitTransaction(): Promise<void> {
    try {
      await this.#thread.call({ kind: 'commit' })
    } catch (error) {
      if ((error as { code?: unknown }).code === failedTransaction) throw new AbortedTransactionError({ cause: error })
      throw error
    }
  }

  async rollbackTransaction(): Promise<void> {
    await this.#thread.call({ kind: 'rollback' })
  }

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {}
}

class ThreadConnection implements DatabaseConnection {
  readonly #thread: PgliteThread

  constructor(thread: PgliteThread) {
    this.#thread = thread
  }

  async executeQuery<Row>({ sql, parameters }: CompiledQuery): Promise<QueryResult<Row>> {
    const { rows, affectedRows } = await this.#thread.call({ kind: 'query', sql, parameters })
    return { rows: rows as Row[], numAffectedRows: BigInt(affectedRows) }
  }

  // oxlint-disable-next-line require-yield
  async *streamQuery(): AsyncIterableIterator<never> {
    throw new Error('the embedded database does not stream')
  }
}
