import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { ServiceError } from '../errors.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import { translated } from './errors.ts'

/** The key of the advisory lock, one per database: any number that no other program uses. */
export const databaseLockKey = 4_712_073_319

/** How long a start waits for a server that is stopping, or for PostgreSQL to close the connection of a killed one. */
const startWaitMs = 5000
const retryMs = 250
const endPollMs = 25
/** How long a start waits for statements that it has cancelled. PostgreSQL ends one within milliseconds, unless it or the disk hangs. */
const endWaitMsDefault = 10_000
/** `application_name` of a store's connections but the one of the lock. */
export const applicationName = 'atoll'
const connectTimeoutMs = 10_000
const answerTimeoutMs = 10_000
/** How long PostgreSQL may take to close connections that nobody uses any more. */
export const closeTimeoutMs = 5_000
/** PostgreSQL closes the connection of a dead machine after about 30 s of silence; this side detects it a little earlier. */
const keepAliveMs = 10_000
const keepAlive = 'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 4'
/** The connection of the lock is always idle. Only newer versions have this setting. */
const noIdleTimeout = `select set_config(name, '0', false) from pg_settings where name = 'idle_session_timeout'`

/** `gone`: another server has, or had, the database, so this one must end without touching anything. */
export type LockState = 'held' | 'lost' | 'gone'

/**
 * Makes this process the only server of a database: an advisory lock on a separate connection, which PostgreSQL releases when the
 * connection ends for any reason. The holder writes its id into `database_holder`, so that a server which takes the lock again knows
 * whether another server held it meanwhile.
 *
 *     held ── the connection ends ──► lost ── taken again, the id is ours ──► held
 *                                      └───── the id is another's ──────────► gone
 */
export class DatabaseLock {
  readonly #databaseUrl: string
  readonly #changed: (state: LockState) => void
  readonly #endWaitMs: number
  readonly #serverId = randomUUID()
  readonly #released = new AbortController()
  /** The connection that holds the lock. */
  #holder: pg.Client | undefined
  #retaking: Promise<void> = Promise.resolve()

  private constructor(databaseUrl: string, changed: (state: LockState) => void, endWaitMs: number) {
    this.#databaseUrl = databaseUrl
    this.#changed = changed
    this.#endWaitMs = endWaitMs
  }

  /**
   * `changed` is called for every later change of state. Throws `unavailable`, also when another server has the database, and when a statement
   * of an earlier server still runs `endWaitMs` after it was cancelled.
   */
  static async take(
    databaseUrl: string,
    changed: (state: LockState) => void,
    endWaitMs = endWaitMsDefault,
  ): Promise<DatabaseLock> {
    const lock = new DatabaseLock(databaseUrl, changed, endWaitMs)
    const deadlineMs = performance.now() + startWaitMs
    while ((await lock.#attempt('first')) !== 'held') {
      if (performance.now() > deadlineMs) {
        const rule = 'give each server a database of its own'
        throw new ServiceError('unavailable', `another server uses this database: ${rule}`)
      }
      await sleep(retryMs)
    }
    return lock
  }

  /** Throws `unavailable` unless the lock is held. */
  check(): void {
    if (this.#holder !== undefined) return
    throw new ServiceError('unavailable', 'the connection that keeps other servers from the database is lost')
  }

  async release(): Promise<void> {
    this.#released.abort()
    await this.#retaking
    const holder = this.#holder
    this.#holder = undefined
    // A PostgreSQL that hangs closes nothing; the end of the process does.
    if (holder !== undefined) await withTimeout(closeTimeoutMs, holder.end())
  }

  /** Connects and tries once. `lost`: another connection holds the lock and may still release it. */
  async #attempt(time: 'first' | 'again'): Promise<LockState> {
    const client = new pg.Client({
      connectionString: this.#databaseUrl,
      application_name: 'atoll lock',
      connectionTimeoutMillis: connectTimeoutMs,
      query_timeout: answerTimeoutMs,
      keepAlive: true,
      keepAliveInitialDelayMillis: keepAliveMs,
    })
    // `end` follows every error; without a listener the error would end the process.
    client.on('error', () => undefined)
    const ended = new Promise<void>((resolve) => client.once('end', resolve))
    let state: LockState = 'lost'
    try {
      await client.connect()
      await client.query(keepAlive)
      await client.query(noIdleTimeout)
      const isOurs = await tryLock(client)
      if (time === 'first') {
        if (isOurs) await endOthers(client, this.#endWaitMs)
        if (isOurs) await writeHolder(client, this.#serverId)
        state = isOurs ? 'held' : 'lost'
      } else if ((await readHolder(client)) === this.#serverId) {
        // If another connection holds the lock, it is our own dead one that PostgreSQL has not closed yet, or a server that is about
        // to write its id.
        state = isOurs ? 'held' : 'lost'
      } else state = 'gone'
    } catch (error) {
      throw translated(error)
    } finally {
      if (state !== 'held') await client.end().catch(() => undefined)
    }
    if (state === 'held') {
      this.#holder = client
      // The connection waits for ever and must not keep the process alive.
      withUnref(client).unref()
      void ended.then(() => this.#lose(client))
    }
    return state
  }

  #lose(client: pg.Client): void {
    if (this.#holder !== client) return
    this.#holder = undefined
    this.#changed('lost')
    this.#retaking = this.#retake()
  }

  async #retake(): Promise<void> {
    const { signal } = this.#released
    while (!signal.aborted) {
      // Retry a database that does not answer.
      const state = await this.#attempt('again').catch((): LockState => 'lost')
      if (state !== 'lost') {
        this.#changed(state)
        return
      }
      await sleep(retryMs, undefined, { signal }).catch(() => undefined)
    }
  }
}

/** The types of `pg` lack this method. */
function withUnref(client: pg.Client): pg.Client & { unref(): void } {
  return client as pg.Client & { unref(): void }
}

async function tryLock(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ locked: boolean }>('select pg_try_advisory_lock($1) as locked', [
    databaseLockKey,
  ])
  return rows[0]?.locked === true
}

/**
 * Ends statements of a killed server, with which PostgreSQL goes on although the client is gone: none may take effect while this server
 * runs.
 */
async function endOthers(client: pg.Client, waitMs: number): Promise<void> {
  const others = `from pg_stat_activity where datname = current_database() and application_name = $1 and usename = current_user`
  await client.query(`select pg_terminate_backend(pid) ${others}`, [applicationName])
  const deadlineMs = performance.now() + waitMs
  for (;;) {
    const { rows } = await client.query<{ pid: number }>(`select pid ${others}`, [applicationName])
    if (rows.length === 0) return
    if (performance.now() > deadlineMs) {
      const pids = rows.map(({ pid }) => pid).join(', ')
      throw new ServiceError(
        'unavailable',
        `statements of an earlier server do not end in the database (processes ${pids} of PostgreSQL): its disk hangs, or it must be restarted`,
      )
    }
    await sleep(endPollMs)
  }
}

async function writeHolder(client: pg.Client, serverId: string): Promise<void> {
  await client.query('create table if not exists database_holder (server_id text not null)')
  await client.query('with former as (delete from database_holder) insert into database_holder values ($1)', [serverId])
}

async function readHolder(client: pg.Client): Promise<string | undefined> {
  const { rows } = await client.query<{ serverId: string }>('select server_id as "serverId" from database_holder')
  return rows[0]?.serverId
}
