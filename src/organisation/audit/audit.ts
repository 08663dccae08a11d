import type { Acting } from '../../events/index.ts'
import type { AuditFacts, ChainedEntry } from '../../protocol/audit.ts'
import type { Log } from '../../lib/log.ts'

/** An entry before the store adds its number and its place in the chain. */
export type NewAuditEntry = Omit<AuditFacts, 'number' | 'ts'> & { ts: Date }

export interface AuditHead {
  number: number
  hash: string
  /** The newest entry that was deleted because of its age, and its hash: the chain goes on from it. */
  prunedNumber: number
  prunedHash: string
}

export interface AuditQuery {
  actorId?: string
  operation?: string
  /** An id or name that the subject has. */
  subject?: string
  from?: Date
  to?: Date
  /** Refused and failed calls of this status; `ok`: those that were let in. */
  status?: number | 'ok'
}

/**
 * The port to the audit. Each organisation has a chain, the operator another one (its id is empty). Numbers have no gaps, and a reader that sees
 * one sees all below.
 */
export interface AuditStore {
  /** Adds entries, in order, in one transaction. */
  append(entries: readonly NewAuditEntry[]): Promise<void>
  /** Newest first. */
  list(orgId: string, query: AuditQuery & { before?: number; limit: number }): Promise<ChainedEntry[]>
  /** Oldest first, above `after`. */
  page(orgId: string, after: number, limit: number): Promise<ChainedEntry[]>
  head(orgId: string): Promise<AuditHead>
  /** Writes the head into the log of the organisation, if it has grown since the last time or `always`. */
  tellHead(orgId: string, always?: boolean): Promise<AuditHead>
  organisations(): Promise<string[]>
  /** Deletes entries from before `before` and beyond the newest `rowsMax`, the oldest first; the rest stays verifiable. */
  purge(before: Date, rowsMax: number): Promise<number>
}

/** Bounds of the audit (`ATOLL_LIMITS`). */
export interface AuditLimits {
  days: number
  /** Of one organisation. */
  rowsMax: number
}

export const defaultAuditLimits: AuditLimits = { days: 365, rowsMax: 1_000_000 }

/** Entries that wait for the transaction under way. */
const waitingMax = 10_000
const entriesAtOnce = 500
const visitMs = 3_600_000
const visitsMax = 10_000

interface Waiting {
  entries: readonly NewAuditEntry[]
  done: PromiseWithResolvers<void>
}

/**
 * Writes the audit: all that wait share the next transaction, so that many calls cost one commit.
 *
 *     idle ── entry ──► writing ── none waits ──► idle
 */
export class Audit {
  readonly #store: AuditStore
  readonly #log: Log
  #waiting: Waiting[] = []
  #writing: Promise<void> | undefined
  /** When a visitor of a preview was written last. */
  readonly #visits = new Map<string, number>()

  constructor(store: AuditStore, log: Log) {
    this.#store = store
    this.#log = log
  }

  /** Returns when the entries are written; a change that is committed after them reaches the disk after them. Throws what the store throws, and then nothing of them is written. */
  async record(...entries: readonly NewAuditEntry[]): Promise<void> {
    if (entries.length === 0) return
    const done = Promise.withResolvers<void>()
    this.#waiting.push({ entries, done })
    this.#writing ??= this.#writeAll()
    await done.promise
  }

  /** In the background, for what cannot be refused any more. */
  note(...entries: readonly NewAuditEntry[]): void {
    if (this.#waiting.length >= waitingMax) return
    this.record(...entries).catch((error: unknown) => {
      this.#log.warn({ err: error }, 'an entry of the audit could not be written')
    })
  }

  /** Notes once an hour that somebody opens a preview. */
  visited(key: string, entry: NewAuditEntry): void {
    const now = performance.now()
    const last = this.#visits.get(key)
    if (last !== undefined && now - last < visitMs) return
    if (this.#visits.size >= visitsMax) this.#visits.clear()
    this.#visits.set(key, now)
    this.note(entry)
  }

  /** Writes what waits. */
  async close(): Promise<void> {
    await this.#writing
  }

  async #writeAll(): Promise<void> {
    // One turn of the event loop, so that calls that come together are written together.
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      const batch: Waiting[] = []
      for (let count = 0; count < entriesAtOnce;) {
        const next = this.#waiting.shift()
        if (next === undefined) break
        batch.push(next)
        count += next.entries.length
      }
      try {
        await this.#store.append(batch.flatMap(({ entries }) => entries))
        for (const { done } of batch) done.resolve()
      } catch (error) {
        for (const { done } of batch) done.reject(error)
      }
    }
    this.#writing = undefined
  }
}

/** Who acts, as the audit names it. */
export function actorOf({ actor }: Acting): Pick<AuditFacts, 'actorType' | 'actorId'> {
  return { actorType: actor.type, actorId: actor.id ?? null }
}
