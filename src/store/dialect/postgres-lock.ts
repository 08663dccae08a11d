import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { ServiceError } from '../../errors.ts'
import { translated } from '../errors.ts'

/** Of the advisory lock, which is one for each database: any number that nobody else takes. */
export const databaseLockKey = 4_712_073_319

/** How long a start waits for a server that ends, or that was killed and whose connection PostgreSQL still clears up. */
const startWaitMs = 5000
const retryMs = 250
const connectTimeoutMs = 10_000
const answerTimeoutMs = 10_000
/** After silence of about half a minute PostgreSQL gives up a machine that has died; this side looks a little earlier. */
const keepAliveMs = 10_000
const keepAlive = 'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 4'
/** A setting that only newer versions have: the lock's connection is idle all its life. */
const idleForEver = `select set_config(name, '0', false) from pg_settings where name = 'idle_session_timeout'`

/** `gone`: another server has, or had, the database; this one must end without touching anything. */
export type LockState = 'held' | 'lost' | 'gone'

/**
 * The right to be the only server of a database: an advisory lock on a connection of its own, which PostgreSQL releases when
 * the connection ends, however it ends. Whoever takes it writes its name into `database_holder`, so that a server which takes
 * the lock again knows whether another one was there meanwhile.
 *
 *     held ── the connection ends ──► lost ── taken again, the name is ours ──► held
 *                                      └───── the name is another's ──────────► gone
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

  /** `changed` hears what happens after the lock was taken. Throws `unavailable`, also when another server has the database. */
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

  /** Connects and tries once. `lost`: another connection holds the lock, and it may still let it go. */
  async #attempt(time: 'first' | 'again'): Promise<LockState> {
    const client = new pg.Client({
      connectionString: this.#databaseUrl,
      application_name: 'atoll lock',
      connectionTimeoutMillis: connectTimeoutMs,
      query_timeout: answerTimeoutMs,
      keepAlive: true,
      keepAliveInitialDelayMillis: keepAliveMs,
    })
    // The end of the connection is what counts; without a listener the error would end the process.
    client.on('error', () => undefined)
    const ended = new Promise<void>((resolve) => client.once('end', resolve))
    let state: LockState = 'lost'
    try {
      await client.connect()
      await client.query(keepAlive)
      await client.query(idleForEver)
      const isOurs = await tryLock(client)
      if (time === 'first') {
        if (isOurs) await writeName(client, this.#serverId)
        state = isOurs ? 'held' : 'lost'
      } else if ((await readName(client)) === this.#serverId) {
        // Held by another connection it is our own old one, which PostgreSQL has not missed yet, or a server that is about to
        // write its name.
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
      // A database that does not answer is one more reason to look again.
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

async function writeName(client: pg.Client, serverId: string): Promise<void> {
  await client.query('create table if not exists database_holder (server_id text not null)')
  await client.query('with former as (delete from database_holder) insert into database_holder values ($1)', [serverId])
}

async function readName(client: pg.Client): Promise<string | undefined> {
  const { rows } = await client.query<{ serverId: string }>('select server_id as "serverId" from database_holder')
  return rows[0]?.serverId
}
