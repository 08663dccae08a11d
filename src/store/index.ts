/**
 * The state of Atoll in PostgreSQL: embedded as PGlite in the data directory, or on a server. Both share one SQL dialect and one
 * set of migrations; `dialect/` holds the differences. Each noun has a file; `schema.ts` lists tables and columns.
 */
import { CamelCasePlugin, Kysely, sql, type Dialect } from 'kysely'
import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import type { Log } from '../lib/log.ts'
import type { ImageStore } from '../image/index.ts'
import type { OrganisationStore } from '../organisation/index.ts'
import type { SandboxStore } from '../sandbox/ports/sandbox-store.ts'
import type { SessionStore } from '../session/store.ts'
import type { Backend } from './dialect/index.ts'
import { pgliteBackend } from './dialect/pglite.ts'
import type { LockState } from './dialect/postgres-lock.ts'
import { postgresBackend } from './dialect/postgres.ts'
import { rethrowTranslated, translated } from './errors.ts'
import { idempotencyStore, type IdempotencyStore } from './idempotency.ts'
import { imageStore } from './images.ts'
import { insertInstallation, readInstallation } from './installation.ts'
import { migrate } from './migrations/index.ts'
import { organisationStore } from './organisations.ts'
import { sandboxStore } from './sandboxes.ts'
import type { Database } from './schema.ts'
import { sessionStore } from './sessions.ts'

export { cachedSandboxStore } from './cached-sandboxes.ts'
export type { IdempotencyStore } from './idempotency.ts'

export interface Store extends AsyncDisposable {
  sandboxes: SandboxStore
  sessions: SessionStore
  images: ImageStore
  organisations: OrganisationStore
  idempotency: IdempotencyStore
  /** The installation that the database belongs to; undefined before the first `joinInstallation`. */
  installation(): Promise<string | undefined>
  /** Assigns the database to an installation. Does nothing when it already belongs to one. */
  joinInstallation(id: string): Promise<void>
  /** Throws `unavailable` when the database does not answer. */
  ping(): Promise<void>
  /** Waits for the calls in flight; later calls throw `unavailable`. A repeat is harmless. */
  close(): Promise<void>
}

/**
 * The caller must hold the lock of `dataDir`: the embedded database does not support a second process. Without `imageDir` the first
 * opening takes some seconds longer.
 */
type StoreLocation = { dataDir: string; imageDir?: string } | { databaseUrl: string }

export interface StoreOptions {
  /** Called when the connection that holds the lock of a PostgreSQL database is lost or back. */
  lockChanged?: (state: LockState) => void
  /** Called once, when the embedded database has died. All calls throw `unavailable` from then on. */
  died?: (error: Error) => void
  /**
   * Called with the installation that the database belongs to, before the first write and before an embedded database is created.
   * An error that it throws ends the opening and reaches the caller.
   */
  admit?: (installation: string | undefined) => void
  /** Logs the progress of migrations. */
  log?: Log
}

/**
 * Opens the database and migrates its schema. This process is the only server of the database until it closes the store. Throws
 * `unavailable`, also when another server uses the database.
 */
export async function openStore(
  location: StoreLocation,
  { lockChanged = () => undefined, died = () => undefined, admit = () => undefined, log }: StoreOptions = {},
): Promise<Store> {
  const backend =
    'databaseUrl' in location
      ? await postgresBackend(location.databaseUrl, { lockChanged })
      : await pgliteBackend(location.dataDir, location.imageDir, { beforeCreate: () => admit(undefined), died })
  const db = kyselyOn<Database>(backend.dialect)
  const store = storeOn(db, backend)
  try {
    admit(await readInstallation(db).catch(rethrowTranslated))
    await using unlimited = kyselyOn<unknown>(backend.unlimited())
    await migrate(unlimited, { check: () => backend.check(), ...defined({ log }) })
  } catch (error) {
    await store.close()
    throw error
  }
  return store
}

function kyselyOn<Tables>(dialect: Dialect): Kysely<Tables> {
  return new Kysely<Tables>({ dialect, plugins: [new CamelCasePlugin({ maintainNestedObjectKeys: true })] })
}

function storeOn(db: Kysely<Database>, backend: Backend): Store {
  const calls = new Calls(() => backend.check())
  let closed: Promise<void> | undefined
  const close = () =>
    (closed ??= calls
      .drain()
      .then(() => backend.stop())
      .then(() => db.destroy()))
  return {
    close,
    [Symbol.asyncDispose]: close,
    sandboxes: calls.guard(sandboxStore(db)),
    sessions: calls.guard(sessionStore(db)),
    images: calls.guard(imageStore(db)),
    organisations: calls.guard(organisationStore(db)),
    idempotency: calls.guard(idempotencyStore(db)),
    installation: () => calls.run(() => readInstallation(db)),
    joinInstallation: (id) => calls.run(() => insertInstallation(db, id)),
    async ping() {
      try {
        await calls.run(() => sql`select 1`.execute(db))
      } catch (error) {
        throw new ServiceError('unavailable', 'the database does not answer', { cause: error })
      }
    },
  }
}

/**
 * The calls in flight of a store. `drain` refuses new calls and waits for these: a transaction that begins while the embedded
 * database closes would never settle.
 */
class Calls {
  readonly #check: () => void
  #inFlight = 0
  #drained: PromiseWithResolvers<void> | undefined

  /** `check` throws while no call may begin. */
  constructor(check: () => void) {
    this.#check = check
  }

  /** Throws what `check` throws, {@link translated} errors of the database, and `unavailable` once `drain` was called. */
  async run<Result>(call: () => Promise<Result>): Promise<Result> {
    if (this.#drained !== undefined) throw new ServiceError('unavailable', 'the database is closed')
    this.#check()
    this.#inFlight++
    try {
      return await call()
    } catch (error) {
      throw translated(error)
    } finally {
      this.#inFlight--
      this.#resolveWhenIdle()
    }
  }

  /** The same object with every method behind `run`. */
  guard<Port extends object>(port: Port): Port {
    return new Proxy(port, {
      get: (target, key, receiver): unknown => {
        const value: unknown = Reflect.get(target, key, receiver)
        if (typeof value !== 'function') return value
        return (...parameters: unknown[]) =>
          this.run(() => Reflect.apply(value, target, parameters) as Promise<unknown>)
      },
    })
  }

  async drain(): Promise<void> {
    this.#drained ??= Promise.withResolvers()
    this.#resolveWhenIdle()
    await this.#drained.promise
  }

  #resolveWhenIdle(): void {
    if (this.#inFlight === 0) this.#drained?.resolve()
  }
}
