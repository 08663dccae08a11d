/**
 * The state of Atoll in PostgreSQL. The store does not know whether that is the private cluster of the data directory (`src/postgres/`) or a
 * server of yours. Each noun has a file; `schema.ts` lists tables and columns.
 */
import { CamelCasePlugin, Kysely, sql, type Dialect, type LogEvent } from 'kysely'
import { ServiceError } from '../errors.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import { defined } from '../lib/defined.ts'
import { type Log, silentLog } from '../lib/log.ts'
import type { EventLog } from '../events/index.ts'
import type { ImageStore, RegistryCredentialStore } from '../image/index.ts'
import type { OrganisationStore } from '../organisation/index.ts'
import type { EgressStore } from '../sandbox/ports/egress-store.ts'
import type { SandboxStore } from '../sandbox/ports/sandbox-store.ts'
import type { AuditStore } from '../organisation/audit/index.ts'
import type { UsageStore } from '../organisation/usage/index.ts'
import type { SecretStorePort } from '../secret/index.ts'
import type { WebhookStore } from '../webhook/index.ts'
import type { CapsuleStore } from '../session/capsule-store.ts'
import type { SessionStore } from '../session/store.ts'
import { capsuleStore } from './capsules.ts'
import { closeTimeoutMs, type LockState } from './lock.ts'
import { callName, Calls } from './calls.ts'
import {
  type Backend,
  defaultStoreLimits,
  type ExportedSnapshot,
  postgresBackend,
  type StoreLimits,
} from './connection.ts'
import { isDamage, rethrowTranslated } from './errors.ts'
import { egressStore } from './egress.ts'
import { eventLog, LogWriter } from './event-log.ts'
import { idempotencyStore, type IdempotencyStore } from './idempotency.ts'
import { imageStore } from './images.ts'
import { insertInstallation, readInstallation } from './installation.ts'
import { migrate } from './migrations/index.ts'
import { organisationStore } from './organisations.ts'
import { registryCredentialStore } from './registry-credentials.ts'
import { sandboxStore } from './sandboxes.ts'
import type { Database } from './schema.ts'
import { secretStorePort } from './secrets.ts'
import { sessionStore } from './sessions.ts'
import { auditStore } from './audit.ts'
import { usageStore } from './usage.ts'
import { WebhookQueue } from './webhook-queue.ts'
import { webhookStore } from './webhooks.ts'

export { cachedSandboxStore } from './cached-sandboxes.ts'
export { defaultStoreLimits, type ExportedSnapshot, type StoreLimits } from './connection.ts'
export type { IdempotencyStore } from './idempotency.ts'

/** Characters of a slow statement that are logged. */
const loggedSqlMax = 500

export interface Store extends AsyncDisposable {
  sandboxes: SandboxStore
  sessions: SessionStore
  capsules: CapsuleStore
  images: ImageStore
  registryCredentials: RegistryCredentialStore
  organisations: OrganisationStore
  egress: EgressStore
  secrets: SecretStorePort
  webhooks: WebhookStore
  usage: UsageStore
  audit: AuditStore
  idempotency: IdempotencyStore
  events: EventLog
  /** Where the process that sends webhooks connects. */
  webhookUrl: string
  /** The installation that the database belongs to; undefined before the first `joinInstallation`. */
  installation(): Promise<string | undefined>
  /** Assigns the database to an installation. Does nothing when it already belongs to one. */
  joinInstallation(id: string): Promise<void>
  /** Exports all that is committed now, for a backup. The caller disposes of the snapshot. Throws `unavailable`. */
  exportSnapshot(): Promise<ExportedSnapshot>
  /** Throws `unavailable` when the database does not answer. */
  ping(): Promise<void>
  /** Waits for the calls in flight; later calls throw `unavailable`. A repeat is harmless. */
  close(): Promise<void>
}

interface WebhookAccess {
  databaseUrl: string
  /** Gets what the process needs, and nothing else. Absent: it has the rights of this process. */
  role?: string
}

export interface StoreOptions {
  /** Called when the connection that holds the lock of the database is lost or back. */
  lockChanged?: (state: LockState) => void
  /**
   * Called with the installation that the database belongs to, before the first write. An error that it throws ends the opening and reaches
   * the caller.
   */
  admit?: (installation: string | undefined) => void
  /** Called after each commit that has written to the log of an organisation. It must not throw. */
  logGrew?: (orgId: string) => void
  /** Logs the progress of migrations, and slow statements with the calls that they belong to. */
  log?: Log
  limits?: Partial<StoreLimits>
  /** Of the process that sends webhooks. Default: that of this process. */
  webhookAccess?: WebhookAccess
  /** The weight of an organisation among those whose calls wait for a connection. */
  shareOf?: (orgId: string) => number
}

/**
 * Opens the database and migrates its schema. This process is the only server of the database until it closes the store. Throws
 * `unavailable`, also when another server uses the database.
 */
export async function openStore(
  databaseUrl: string,
  {
    webhookAccess = { databaseUrl },
    lockChanged = () => undefined,
    admit = () => undefined,
    logGrew = () => undefined,
    log,
    limits: given = {},
    shareOf,
  }: StoreOptions = {},
): Promise<Store> {
  const limits = { ...defaultStoreLimits, ...given }
  const backend = await postgresBackend(databaseUrl, { lockChanged, limits, shareOf })
  const db = kyselyOn<Database>(backend.dialect, statementLog(limits.slowStatementMs, log))
  const store = storeOn(db, backend, new LogWriter(logGrew), { databaseUrl, webhookAccess })
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

function kyselyOn<Tables>(dialect: Dialect, log?: (event: LogEvent) => void): Kysely<Tables> {
  const plugins = [new CamelCasePlugin({ maintainNestedObjectKeys: true })]
  return new Kysely<Tables>({ dialect, plugins, ...defined({ log }) })
}

/** Logs slow statements, and errors of a damaged database. Values are parameters, so the text of a statement holds none of a client. */
function statementLog(slowMs: number, log = silentLog): (event: LogEvent) => void {
  return (event) => {
    const { queryDurationMillis: ms, query, level } = event
    const facts = { call: callName(), ms: Math.round(ms), sql: query.sql.slice(0, loggedSqlMax) }
    if (level === 'error' && isDamage(event.error)) {
      log.error({ ...facts, err: event.error }, 'a file of the database is damaged: restore a backup')
    } else if (ms >= slowMs) log.warn(facts, 'a statement of the database was slow')
  }
}

function storeOn(
  db: Kysely<Database>,
  backend: Backend,
  writer: LogWriter,
  { databaseUrl, webhookAccess }: { databaseUrl: string; webhookAccess: WebhookAccess },
): Store {
  const queue = new WebhookQueue(databaseUrl, webhookAccess.role)
  const calls = new Calls(() => backend.check())
  let closed: Promise<void> | undefined
  const end = async () => {
    // The connections do not keep the process alive, which must not end before they do.
    const alive = setInterval(() => undefined, 1000)
    try {
      await calls.drain()
      await backend.stop()
      await withTimeout(closeTimeoutMs, db.destroy())
    } finally {
      clearInterval(alive)
    }
  }
  const close = () => (closed ??= end())
  return {
    close,
    [Symbol.asyncDispose]: close,
    webhookUrl: webhookAccess.databaseUrl,
    sandboxes: calls.guard('sandboxes', sandboxStore(db, writer)),
    sessions: calls.guard('sessions', sessionStore(db, writer)),
    capsules: calls.guard('capsules', capsuleStore(db)),
    images: calls.guard('images', imageStore(db, writer)),
    registryCredentials: calls.guard('registryCredentials', registryCredentialStore(db)),
    organisations: calls.guard('organisations', organisationStore(db, writer)),
    audit: calls.guard('audit', auditStore(db, writer)),
    usage: calls.guard('usage', usageStore(db, writer)),
    egress: calls.guard('egress', egressStore(db, writer)),
    secrets: calls.guard('secrets', secretStorePort(db)),
    webhooks: calls.guard('webhooks', webhookStore(db, writer, queue)),
    idempotency: calls.guard('idempotency', idempotencyStore(db)),
    events: calls.guard('events', eventLog(db)),
    installation: () => calls.run('installation', () => readInstallation(db)),
    joinInstallation: (id) => calls.run('joinInstallation', () => insertInstallation(db, id)),
    exportSnapshot: () => calls.run('exportSnapshot', () => backend.exportSnapshot()),
    async ping() {
      try {
        await calls.run('ping', () => sql`select 1`.execute(db))
      } catch (error) {
        throw new ServiceError('unavailable', 'the database does not answer', { cause: error })
      }
    },
  }
}
