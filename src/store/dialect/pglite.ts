import { createHash } from 'node:crypto'
import { cpSync, existsSync } from 'node:fs'
import { mkdir, readdir, readFile, realpath, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import {
  AbortedTransactionError,
  PGliteAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type QueryResult,
} from 'kysely'
import type { Backend } from './index.ts'
import { PgliteThread } from './pglite-thread.ts'

interface PgliteOptions {
  /** Called before a new database is created. An error that it throws prevents the creation. */
  beforeCreate: () => void
  /** Called when the database has died. */
  died: (error: Error) => void
}

/**
 * PostgreSQL compiled to WebAssembly, in a thread of this process, with one connection.
 *
 * A write has reached the kernel when its promise resolves, so a killed process loses nothing. A power failure can lose writes,
 * because PGlite does not sync to the disk; use a server where that matters.
 *
 * A new database is a copy of the empty one in `imageDir`, if setup has created it by the same {@link databaseRecipe}.
 */
export async function pgliteBackend(
  dataDir: string,
  imageDir: string | undefined,
  { beforeCreate, died }: PgliteOptions,
): Promise<Backend> {
  const folder = join(dataDir, 'db')
  if (!existsSync(join(folder, 'PG_VERSION'))) {
    beforeCreate()
    await initialise(folder, imageDir)
  }
  const thread = await PgliteThread.open(folder, { died })
  return {
    dialect: pgliteDialect(thread),
    unlimited: () => pgliteDialect(thread),
    check: () => thread.check(),
    stop: () => thread.close(),
  }
}

/** Creates the database under another name and renames it, so a killed process leaves nothing that looks like a database. */
async function initialise(folder: string, imageDir: string | undefined): Promise<void> {
  const unfinished = `${folder}.unfinished`
  await rm(unfinished, { recursive: true, force: true })
  await mkdir(unfinished, { recursive: true, mode: 0o700 })
  const prepared = imageDir === undefined ? undefined : await preparedDatabase(imageDir)
  if (prepared !== undefined) {
    // A thousand small files: ten times as fast as the asynchronous copy, and nothing is served yet.
    cpSync(prepared, unfinished, { recursive: true })
  } else {
    const made = await PgliteThread.open(unfinished)
    await made.close()
  }
  await rename(unfinished, folder)
}

/** The folder of the empty database in the images, if it is of this version of PGlite and of this schema. */
async function preparedDatabase(imageDir: string): Promise<string | undefined> {
  const image = await realpath(join(imageDir, 'database')).catch(() => '')
  const recipe = await readFile(join(image, 'recipe'), 'utf8').catch(() => '')
  return recipe.trim() === (await databaseRecipe()) ? join(image, 'db') : undefined
}

/** What an empty database is made of: the version of PGlite and the hash of the migrations. */
export async function databaseRecipe(): Promise<string> {
  const packageFile = new URL('../package.json', import.meta.resolve('@electric-sql/pglite'))
  const { version } = JSON.parse(await readFile(packageFile, 'utf8')) as { version: string }
  const migrations = join(import.meta.dirname, '../migrations')
  const schema = createHash('sha256')
  for (const name of (await readdir(migrations)).toSorted()) schema.update(await readFile(join(migrations, name)))
  return `pglite ${version}, schema ${schema.digest('hex').slice(0, 16)}`
}

/** SQLSTATE `in_failed_sql_transaction`: the commit of a transaction that an earlier error has aborted. */
const failedTransaction = '25P02'

/** One connection. Kysely gives it to one caller at a time, so transactions do not interleave. */
export function pgliteDialect(thread: PgliteThread): Dialect {
  return {
    createAdapter: () => new PGliteAdapter(),
    createDriver: () => new ThreadDriver(thread),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  }
}

/** Does not close the thread: its opener does. */
class ThreadDriver implements Driver {
  readonly #thread: PgliteThread
  readonly #connection: DatabaseConnection

  constructor(thread: PgliteThread) {
    this.#thread = thread
    this.#connection = connectionOf(thread)
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

function connectionOf(thread: PgliteThread): DatabaseConnection {
  return {
    async executeQuery<Row>({ sql, parameters }: CompiledQuery): Promise<QueryResult<Row>> {
      const { rows, affectedRows } = await thread.call({ kind: 'query', sql, parameters })
      return { rows: rows as Row[], numAffectedRows: BigInt(affectedRows) }
    },
    streamQuery() {
      throw new Error('the embedded database does not stream')
    },
  }
}
