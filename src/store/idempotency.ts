import { sql } from 'kysely'
import type { Kysely } from 'kysely'
import { ServiceError } from '../errors.ts'
import { KeyedLock } from '../lib/keyed-lock.ts'
import type { Database } from './schema.ts'
import { lenientJson, strict } from './text.ts'

/** For this long a key replays its response (docs/api.md § Conventions). */
const doneMs = 24 * 60 * 60 * 1000
/** In one statement, so that others use the database meanwhile. */
const purgedAtOnce = 200
/** How often `begin` looks again when the entry it collided with goes away under it. */
const attemptsMax = 5

/** Where PostgreSQL has a row: its key has two columns. */
const row = sql<string>`ctid`

export interface StoredResponse {
  statusCode: number
  body: string
  headers?: Record<string, string>
}

export type IdempotencyState =
  /** The caller runs the request and ends it with `finish` or `abandon`. */
  | { state: 'new' }
  /** The first request with this key still runs. */
  | { state: 'running' }
  | ({ state: 'done' } & StoredResponse)
  /** The key was used with another request. */
  | { state: 'conflict' }

/**
 * Responses by `Idempotency-Key`, apart for each organisation. Of callers that begin at the same time one gets `new`.
 * A request that was never finished, because the server died or the database was away, may have been done or not: nobody
 * knows, so its key is refused until it expires, and nothing is ever done twice.
 */
export interface IdempotencyStore {
  /**
   * `requestHash` names method, path and body. Throws `invalid_request` for a key with NUL characters, and `conflict` for
   * one whose first request was never finished.
   */
  begin(orgId: string, key: string, requestHash: string, now: Date): Promise<IdempotencyState>
  /** Keeps the response of the request that began; without a beginning it does nothing. */
  finish(orgId: string, key: string, response: StoredResponse): Promise<void>
  /** Gives the key back after a failure that must not be replayed. A finished entry stays. */
  abandon(orgId: string, key: string): Promise<void>
  /** Forgets all entries begun before the moment. Returns how many. */
  purge(before: Date): Promise<number>
}

export function idempotencyStore(db: Kysely<Database>): IdempotencyStore {
  /** Inserts the entry, or takes over one that has expired. */
  const claim = async (orgId: string, key: string, requestHash: string, now: Date): Promise<boolean> => {
    const claimed = await db
      .insertInto('idempotencyKeys')
      .values({ orgId, key: strict(key, 'Idempotency-Key'), requestHash, createdAt: now })
      .onConflict((conflict) =>
        conflict
          .columns(['orgId', 'key'])
          .doUpdateSet({ requestHash, statusCode: null, body: null, headers: null, createdAt: now })
          .where('idempotencyKeys.createdAt', '<', new Date(now.getTime() - doneMs)),
      )
      .returning('key')
      .executeTakeFirst()
    return claimed !== undefined
  }

  // A database has one server, so what does not run here does not run.
  const running = new Set<string>()
  const beginning = new KeyedLock()
  const nameOf = (orgId: string, key: string) => `${orgId} ${key}`

  return {
    begin: (orgId, key, requestHash, now) =>
      beginning.run(nameOf(orgId, key), async () => {
        for (let attempt = 0; attempt < attemptsMax; attempt++) {
          // Asked before the entry is read: a request that ends meanwhile then counts as one that still ran.
          const isRunning = running.has(nameOf(orgId, key))
          if (!isRunning && (await claim(orgId, key, requestHash, now))) {
            running.add(nameOf(orgId, key))
            return { state: 'new' }
          }
          const entry = await db
            .selectFrom('idempotencyKeys')
            .select(['requestHash', 'statusCode', 'body', 'headers'])
            .where('orgId', '=', orgId)
            .where('key', '=', key)
            .executeTakeFirst()
          if (entry === undefined) continue
          if (entry.requestHash !== requestHash) return { state: 'conflict' }
          const { statusCode, body, headers } = entry
          if (statusCode === null && !isRunning) throw unfinished()
          if (statusCode === null) return { state: 'running' }
          return {
            state: 'done',
            statusCode,
            body: body ?? '',
            ...(headers === null ? {} : { headers }),
          }
        }
        return { state: 'running' }
      }),

    async finish(orgId, key, { statusCode, body, headers }) {
      try {
        await db
          .updateTable('idempotencyKeys')
          .set({ statusCode, body, headers: headers === undefined ? null : lenientJson(headers) })
          .where('orgId', '=', orgId)
          .where('key', '=', key)
          .execute()
      } finally {
        running.delete(nameOf(orgId, key))
      }
    },

    async abandon(orgId, key) {
      try {
        await db
          .deleteFrom('idempotencyKeys')
          .where('orgId', '=', orgId)
          .where('key', '=', key)
          .where('statusCode', 'is', null)
          .execute()
      } finally {
        running.delete(nameOf(orgId, key))
      }
    },

    async purge(before) {
      const old = db.selectFrom('idempotencyKeys').where('createdAt', '<', before).limit(purgedAtOnce)
      for (let count = 0; ;) {
        const { numDeletedRows } = await db
          .deleteFrom('idempotencyKeys')
          .where(row, 'in', old.select(row.as('row')))
          .executeTakeFirstOrThrow()
        if (numDeletedRows === 0n) return count
        count += Number(numDeletedRows)
      }
    },
  }
}

function unfinished(): ServiceError {
  return new ServiceError(
    'conflict',
    'the first request with this Idempotency-Key was interrupted; look whether it was done, and take a new key to repeat it',
  )
}
