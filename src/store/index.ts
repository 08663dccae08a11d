/**
 * Everything that Atoll knows, in PostgreSQL: embedded as PGlite in the data directory, or a server. One dialect, one set
 * of migrations; `dialect/` holds what differs. One file a noun; `schema.ts` names the columns.
 */
import { CamelCasePlugin, Kysely, sql, type Dialect } from 'kysely'
import { ServiceError } from '../errors.ts'
import type { Log } from '../lib/log.ts'
import type { OrganisationStore } from '../organisation/index.ts'
import type { SandboxStore } from '../sandbox/ports/sandbox-store.ts'
import type { SessionStore } from '../session/store.ts'
import type { Backend } from './dialect/index.ts'
import { pgliteBackend } from './dialect/pglite.ts'
import type { LockState } from './dialect/postgres-lock.ts'
import { postgresBackend } from './dialect/postgres.ts'
import { rethrowTranslated, translating } from './errors.ts'
import { idempotencyStore, type IdempotencyStore } from './idempotency.ts'
import { migrate } from './migrations/index.ts'
import { organisationStore } from './organisations.ts'
import { sandboxStore } from './sandboxes.ts'
import type { Database } from './schema.ts'
import { sessionStore } from './sessions.ts'

export { cachedSandboxStore } from './cached-sandboxes.ts'
export type { IdempotencyState, IdempotencyStore, StoredResponse } from './idempotency.ts'

export interface Store {
  sandboxes: SandboxStore
  sessions: SessionStore
  organisations: OrganisationStore
  idempotency: IdempotencyStore
  /** The installation that the database belongs to, once one has joined it. */
  installation(): Promise<string | undefined>
  /** Joins the database to an installation. It keeps the one that it has. */
  joinInstallation(id: string): Promise<void>
  /** Throws `unavailable` when the database does not answer. */
  ping(): Promise<void>
  /** Waits for the calls that run; later ones throw `unavailable`. A repeat is harmless. */
  close(): Promise<void>
}

/**
 * `dataDir` is this server's alone: its embedded database takes no second process. Without `imageDir` the first opening
 * takes some seconds more.
 */
type StoreLocation = { dataDir: string; imageDir?: string } | { databaseUrl: string }

export interface StoreOptions {
  /** Hears when a PostgreSQL server loses the connection that keeps others out. */
  lockChanged?: (state: LockState) => void
  /** Hears, once, that the embedded database has ended by itself. All calls throw `unavailable` from then on. */
  died?: (error: Error) => void
  /**
   * Hears which installation the database belongs to before anything is written to it, also before an embedded one is made.
   * What it throws, the opening throws.
   */
  admit?: (installation: string | undefined) => void
  /** Hears how the migration of a database goes on. */
  log?: Log
}

/**
 * Opens the database, of which this process is the only server until it closes the store, and brings its schema up to date.
 * Throws `unavailable`, also when another server has the database.
 */
export async function openStore(
  location: StoreLocation,
  { lockChanged = () => undefined, died = () => undefined, admit = () => undefined, log }: StoreOptions = {},
): Promise<Store> {
  const backend =
    'databaseUrl' in location
      ? await postgresBackend(location.databaseUrl, { lockChanged })
      : await pgliteBackend(location.dataDir, location.imageDir, { beforeMaking: () => admit(undefined), died })
  const db = kyselyOn<Database>(backend.dialect)
  const store = storeOn(db, backend)
  try {
    admit(await readInstallation(db).catch(rethrowTranslated))
    await bringUpToDate(backend, log)
  } catch (error) {
    await store.close()
    throw error
  }
  return store
}

function kyselyOn<Tables>(dialect: Dialect): Kysely<Tables> {
  return new Kysely<Tables>({ dialect, plugins: [new CamelCasePlugin({ maintainNestedObjectKeys: true })] })
}

async function bringUpToDate(backend: Backend, log: Log | undefined): Promise<void> {
  const db = kyselyOn<unknown>(backend.unlimited())
  try {
    await migrate(db, { check: () => backend.check(), ...(log === undefined ? {} : { log }) })
  } finally {
    await db.destroy()
  }
}

function storeOn(db: Kysely<Database>, backend: Backend): Store {
  const calls = new Calls(() => backend.check())
  let closed: Promise<void> | undefined
  return {
    sandboxes: translating(sandboxStore(db), calls),
    sessions: translating(sessionStore(db), calls),
    organisations: translating(organisationStore(db), calls),
    idempotency: translating(idempotencyStore(db), calls),
    installation: () => calls.run(() => readInstallation(db)).catch(rethrowTranslated),
    joinInstallation: (id) => calls.run(() => insertInstallation(db, id)).catch(rethrowTranslated),
    async ping() {
      try {
        await calls.run(() => sql`select 1`.execute(db))
      } catch (error) {
        throw new ServiceError('unavailable', 'the database does not answer', { cause: error })
      }
    },
    close() {
      closed ??= calls
        .end()
        .then(() => backend.stop())
        .then(() => db.destroy())
      return closed
    },
  }
}

/**
 * The calls of a store: taken until `end`, which waits for those that run. Without it a transaction that begins while the
 * embedded database closes would never settle.
 */
export class Calls {
  readonly #check: () => void
  #running = 0
  #ending: PromiseWithResolvers<void> | undefined

  /** `check` throws while no call may begin. */
  constructor(check: () => void) {
    this.#check = check
  }

  /** Throws `unavailable` after the end has begun, and what `check` throws. */
  async run<Result>(call: () => Promise<Result>): Promise<Result> {
    if (this.#ending !== undefined) throw new ServiceError('unavailable', 'the database is closed')
    this.#check()
    this.#running++
    try {
      return await call()
    } finally {
      this.#running--
      this.#resolveWhenIdle()
    }
  }

  async end(): Promise<void> {
    this.#ending ??= Promise.withResolvers()
    this.#resolveWhenIdle()
    await this.#ending.promise
  }

  #resolveWhenIdle(): void {
    if (this.#running === 0) this.#ending?.resolve()
  }
}

/** The installation that a database belongs to; it may be empty, or of a version that knew none. */
async function readInstallation(db: Kysely<Database>): Promise<string | undefined> {
  const { rows } = await sql<{ there: boolean }>`select to_regclass('installation') is not null as there`.execute(db)
  if (rows[0]?.there !== true) return undefined
  return (await db.selectFrom('installation').select('id').executeTakeFirst())?.id
}

/** Harmless when the database has one already, which stays. */
async function insertInstallation(db: Kysely<Database>, id: string): Promise<void> {
  await db
    .insertInto('installation')
    .values({ id })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}
