import { EventEmitter } from 'node:events'
import { ServiceError } from '../../errors.ts'
import { actingAsServer } from '../../events/index.ts'
import type { Log } from '../../lib/log.ts'
import type { EgressEntriesDropped, EgressEntry } from '../ports/egress.ts'
import type { EgressStore, EntryQuery, LoggedEntry } from '../ports/egress-store.ts'
import type { SandboxStore } from '../ports/sandbox-store.ts'

export interface EgressLogOptions {
  store: Pick<SandboxStore, 'sandbox'>
  egressStore: EgressStore
  log: Log
  limits?: Partial<typeof defaultEgressLogLimits>
}

export const defaultEgressLogLimits = {
  /** Entries that are kept of one sandbox. */
  entriesMax: 10_000,
  /** Entries that wait to be written; those beyond are counted as dropped. */
  waitingMax: 20_000,
  /** Events of refusals of one sandbox, host and port. */
  toldEveryMs: 60_000,
  /** Refusals that are remembered as told. */
  toldMax: 10_000,
  /** Time in which entries are gathered for one write. */
  gatherMs: 200,
}

/** Entries are trimmed each time that so many were added. */
const trimEvery = 500
const batchMax = 1000
const followersMax = 100

type Added = LoggedEntry & { orgId: string; isTold: boolean }

/**
 * The log of what sandboxes have asked for outside. Entries come from the process of a host, which cannot be made to wait: they are gathered,
 * numbered and written in batches, and those that come too fast are counted instead.
 *
 *     open ── add ──► gathering ── gatherMs ──► writing ──► open          close writes what waits
 */
export class EgressLog {
  readonly #options: EgressLogOptions
  readonly #limits: typeof defaultEgressLogLimits
  readonly #news = new EventEmitter().setMaxListeners(followersMax)
  /** By sandbox; its last number, once it is known. */
  readonly #numbers = new Map<string, { orgId: string; number: number }>()
  /** When a refusal was last told, by sandbox, host and port; the oldest first. */
  readonly #told = new Map<string, number>()
  #waiting: EgressEntry[] = []
  #dropped = 0
  #timer: NodeJS.Timeout | undefined
  #writing: Promise<void> = Promise.resolve()
  #isClosed = false

  constructor(options: EgressLogOptions) {
    this.#options = options
    this.#limits = { ...defaultEgressLogLimits, ...options.limits }
  }

  /** Never throws and never waits. */
  add(entry: EgressEntry): void {
    if (this.#isClosed || this.#waiting.length >= this.#limits.waitingMax) {
      this.#dropped += 1
      return
    }
    this.#waiting.push(entry)
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      this.#writing = this.#writing.then(() => actingAsServer('server', () => this.#write()))
    }, this.#limits.gatherMs).unref()
  }

  /** Entries that the process of the host has counted alone become one that says so. */
  addDropped({ sandbox, count, sent, received }: EgressEntriesDropped): void {
    const reason = `${count} entries came too fast to be kept`
    this.add({ sandbox, time: Date.now(), decision: 'failed', protocol: 'tcp', port: 0, reason, sent, received, ms: 0 })
  }

  /** Writes what has come so far. */
  async flush(): Promise<void> {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#writing = this.#writing.then(() => actingAsServer('server', () => this.#write()))
    await this.#writing
  }

  async close(): Promise<void> {
    await this.flush()
    this.#isClosed = true
    this.#news.removeAllListeners()
  }

  async read(sandboxId: string, query: EntryQuery): Promise<LoggedEntry[]> {
    return await this.#options.egressStore.entries(sandboxId, query)
  }

  /** Calls `listener` when there is news of a sandbox, until the result is called. Throws `quota_exceeded` beyond the followers of one sandbox. */
  onNews(sandboxId: string, listener: () => void): () => void {
    if (this.#news.listenerCount(sandboxId) >= followersMax)
      throw new ServiceError(
        'quota_exceeded',
        `the egress log of ${sandboxId} has ${followersMax} followers, the most there may be`,
      )
    this.#news.on(sandboxId, listener)
    return () => this.#news.off(sandboxId, listener)
  }

  async #write(): Promise<void> {
    const { log, egressStore } = this.#options
    if (this.#dropped > 0) {
      log.warn({ count: this.#dropped }, 'entries of the egress log came too fast to be kept')
      this.#dropped = 0
    }
    while (this.#waiting.length > 0) {
      const entries = this.#waiting.splice(0, batchMax)
      try {
        const added = await this.#numbered(entries)
        await egressStore.append(added)
        for (const sandboxId of new Set(added.map(({ entry }) => entry.sandbox))) this.#news.emit(sandboxId)
        await this.#trim(added)
      } catch (error) {
        // Numbers of what was not written are read anew.
        this.#numbers.clear()
        log.error({ err: error, count: entries.length }, 'entries of the egress log could not be written')
      }
    }
  }

  async #numbered(entries: readonly EgressEntry[]): Promise<Added[]> {
    const added: Added[] = []
    for (const entry of entries) {
      const last = this.#numbers.get(entry.sandbox) ?? (await this.#last(entry.sandbox))
      if (last === undefined) continue
      last.number += 1
      this.#numbers.set(entry.sandbox, last)
      added.push({ number: last.number, orgId: last.orgId, entry, isTold: this.#isTold(entry) })
    }
    return added
  }

  /** Undefined for a sandbox without a record. */
  async #last(sandboxId: string): Promise<{ orgId: string; number: number } | undefined> {
    const { store, egressStore } = this.#options
    const sandbox = await store.sandbox(sandboxId)
    if (sandbox === undefined) return undefined
    if (this.#numbers.size >= this.#limits.toldMax) this.#numbers.clear()
    return { orgId: sandbox.orgId, number: await egressStore.lastNumber(sandboxId) }
  }

  /** Whether a refusal becomes an event: the first of its kind in a while does. */
  #isTold({ decision, sandbox, host, address, port }: EgressEntry): boolean {
    if (decision !== 'denied') return false
    const key = `${sandbox} ${host ?? address ?? ''} ${port}`
    const now = Date.now()
    const before = this.#told.get(key)
    if (before !== undefined && now - before < this.#limits.toldEveryMs) return false
    this.#told.delete(key)
    this.#told.set(key, now)
    if (this.#told.size > this.#limits.toldMax) this.#told.delete(this.#told.keys().next().value!)
    return true
  }

  async #trim(added: readonly Added[]): Promise<void> {
    const { entriesMax } = this.#limits
    const newest = new Map(added.map(({ entry, number }) => [entry.sandbox, number]))
    const firsts = new Map(added.toReversed().map(({ entry, number }) => [entry.sandbox, number]))
    for (const [sandboxId, number] of newest) {
      const isDue = Math.floor(number / trimEvery) !== Math.floor(((firsts.get(sandboxId) ?? number) - 1) / trimEvery)
      if (isDue && number > entriesMax) await this.#options.egressStore.trim(sandboxId, number - entriesMax)
    }
  }
}
