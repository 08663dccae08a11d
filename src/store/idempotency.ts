import type { Kysely } from 'kysely'
import type { Database } from './schema.ts'
import { lenientJson, strict } from './text.ts'

/** A request that was running when the server died gives its key back after this time. */
const runningMs = 10 * 60 * 1000
/** For this long a key replays its response (contract.md § Conventions). */
const doneMs = 24 * 60 * 60 * 1000
/** How often `begin` looks again when the entry it collided with goes away under it. */
const attemptsMax = 5

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

/** Responses by `Idempotency-Key`, apart for each organisation. Of callers that begin at the same time one gets `new`. */
export interface IdempotencyStore {
  /** `requestHash` names method, path and body. Throws `invalid_request` for a key with NUL characters. */
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
          .where((eb) =>
            eb.or([
              eb('idempotencyKeys.createdAt', '<', new Date(now.getTime() - doneMs)),
              eb.and([
                eb('idempotencyKeys.statusCode', 'is', null),
                eb('idempotencyKeys.createdAt', '<', new Date(now.getTime() - runningMs)),
              ]),
            ]),
          ),
      )
      .returning('key')
      .executeTakeFirst()
    return claimed !== undefined
  }

  return {
    async begin(orgId, key, requestHash, now) {
      for (let attempt = 0; attempt < attemptsMax; attempt++) {
        if (await claim(orgId, key, requestHash, now)) return { state: 'new' }
        const entry = await db
          .selectFrom('idempotencyKeys')
          .select(['requestHash', 'statusCode', 'body', 'headers'])
          .where('orgId', '=', orgId)
          .where('key', '=', key)
          .executeTakeFirst()
        if (entry === undefined) continue
        if (entry.requestHash !== requestHash) return { state: 'conflict' }
        const { statusCode, body, headers } = entry
        if (statusCode === null) return { state: 'running' }
        return {
          state: 'done',
          statusCode,
          body: body ?? '',
          ...(headers === null ? {} : { headers }),
        }
      }
      return { state: 'running' }
    },

    async finish(orgId, key, { statusCode, body, headers }) {
      await db
        .updateTable('idempotencyKeys')
        .set({ statusCode, body, headers: headers === undefined ? null : lenientJson(headers) })
        .where('orgId', '=', orgId)
        .where('key', '=', key)
        .execute()
    },

    async abandon(orgId, key) {
      await db
        .deleteFrom('idempotencyKeys')
        .where('orgId', '=', orgId)
        .where('key', '=', key)
        .where('statusCode', 'is', null)
        .execute()
    },

    async purge(before) {
      const { numDeletedRows } = await db
        .deleteFrom('idempotencyKeys')
        .where('createdAt', '<', before)
        .executeTakeFirstOrThrow()
      return Number(numDeletedRows)
    },
  }
}
