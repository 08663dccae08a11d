import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { ServiceError } from '../../errors.ts'
import { translated } from '../errors.ts'

/** The key of the advisory lock, one per database: any number that no other program uses. */
export const databaseLockKey = 4_712_073_319

/** How long a start waits for a server that is stopping, or for PostgreSQL to close the connection of a killed one. */
const startWaitMs = 5000
const retryMs = 250
const connectTimeoutMs = 10_000
const answerTimeoutMs = 10_000
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
  readonly #serverId = randomUUID()
  readonly #released = new AbortController()
  /** The connection that holds the lock. */
  #holder: pg.Client | undefined
  #retaking: Promise<void> = Promise.resolve()

  private constructor(databaseUrl: string, changed: (state: LockState) => void) {
    this.#databaseUrl = databaseUrl
    this.#changed = changed
  }

  /** `changed` is called for every later change of state. Throws `unavailable`, also when another server has the database. */
  static async take(databaseUrl: string, changed: (state: LockState) => void): Promise<DatabaseLock> {
    const lock = new DatabaseLock(databaseUrl, changed)
    const deadlineMs = performance.now() + startWaitMs
    while ((await lock.#attempt('first')) !== 'held') {
      if (performance.now() > deadlineMs) {
        const rule = 'give each server a database of its own'
        throw new ServiceError('unavailable', `another server uses the database of DATABASE_URL: ${rule}`)
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
    await holder?.end()
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

async function tryLock(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ locked: boolean }>('select pg_try_advisory_lock($1) as locked', [
    databaseLockKey,
  ])
  return rows[0]?.locked === true
}

async function writeHolder(client: pg.Client, serverId: string): Promise<void> {
  await client.query('create table if not exists database_holder (server_id text not null)')
  await client.query('with former as (delete from database_holder) insert into database_holder values ($1)', [serverId])
}

async function readHolder(client: pg.Client): Promise<string | undefined> {
  const { rows } = await client.query<{ serverId: string }>('select server_id as "serverId" from database_holder')
  return rows[0]?.serverId
}
