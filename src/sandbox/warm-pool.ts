import { freemem, totalmem } from 'node:os'
import { newId } from '../lib/id.ts'
import type { Log } from '../lib/log.ts'
import type { RuntimeDriver, SandboxSpec } from './ports/runtime-driver.ts'

/** Recycled before its uptime, the one thing that tells it from a sandbox of a cold start, reaches ten minutes. */
const recycledAfterMs = 8 * 60_000
/** A reserved one that nobody creates meanwhile is removed. */
const reservedMs = 60_000
const tendIntervalMs = 250
const recycleIntervalMs = 2_000
/** Shares of the machine's memory that must be available to add one, and to keep all. */
const freeShareToAdd = 0.1
const freeShareToKeep = 0.05
/** Creates of the last minutes decide what is kept warm. */
const demandMs = 10 * 60_000
const demandsMax = 256
/** So many creates from a checkpoint make it worth a warm sandbox. */
const oftenMin = 3
const failurePauseMs = 1_000
const failurePauseMsMax = 60_000

/** What a sandbox is made from, and its sizes. A create with other sizes changes those of a warm one. */
export type WarmStart = Omit<SandboxSpec, 'id'>

export interface WarmPoolOptions {
  driver: Pick<RuntimeDriver, 'prepare' | 'delete'>
  /** Most sandboxes that wait; 0: none. */
  size: number
  /** Kept warm from the start on, before any demand is known. */
  first: WarmStart
  /** Whether clients wait for starts. */
  isBusy: () => boolean
  log: Log
  /** In bytes. Default: that of this machine. */
  memory?: () => { free: number; total: number }
}

interface WarmSandbox {
  id: string
  start: WarmStart
  startedAt: number
  reservedAt?: number
}

/**
 * Started sandboxes without an owner, in which no one has ever run anything. `create` takes one over instead of a start:
 *
 *     (none) ── add ──► ready ── reserve ──► reserved ── take ──► (a sandbox like any other)
 *                         └── removed: old, lost, too many, memory short, image gone ──┘
 *
 * A warm sandbox has its final id: who creates a sandbox takes the id of one that suits. So nothing in it changes with its owner but
 * limits. No row knows it; the driver does (`RuntimeDriver.prepare`), and removes it at the next start after a crash.
 *
 * One is added at a time, and none while clients wait for starts. From full checkpoints none is made: their processes would run
 * before anybody wants them to.
 */
export class WarmPool {
  readonly #options: WarmPoolOptions
  readonly #warm = new Map<string, WarmSandbox>()
  readonly #demands: { start: WarmStart; at: number }[] = []
  /** Absent until `open`. */
  #closing: AbortController | undefined
  #timer: NodeJS.Timeout | undefined
  #filling: Promise<void> | undefined
  #recycling: Promise<void> | undefined
  #recycledAt = 0
  #failures = 0
  #pausedUntil = 0

  constructor(options: WarmPoolOptions) {
    this.#options = options
  }

  open(): void {
    if (this.#options.size === 0) return
    this.#closing = new AbortController()
    this.#timer = setInterval(() => this.#tend(), tendIntervalMs).unref()
  }

  /** Removes all. */
  async close(): Promise<void> {
    clearInterval(this.#timer)
    this.#closing?.abort()
    this.#closing = undefined
    await Promise.all([this.#filling, this.#recycling])
    await this.clear()
  }

  /** How many wait, by the image or checkpoint that they come from. */
  counts(): Record<string, number> {
    const counts: Record<string, number> = {}
    for (const { start } of this.#ready()) counts[keyOf(start)] = (counts[keyOf(start)] ?? 0) + 1
    return counts
  }

  /** Reserves one that suits for the next minute and returns its id. */
  reserve(start: WarmStart): string | undefined {
    if (this.#closing === undefined) return undefined
    if (this.#demands.push({ start, at: Date.now() }) > demandsMax) this.#demands.shift()
    const found = this.#ready().find((warm) => keyOf(warm.start) === keyOf(start))
    if (found !== undefined) found.reservedAt = Date.now()
    this.#fill()
    return found?.id
  }

  /** Passes a warm sandbox to the caller, who owns it from here on. Returns whether `id` is one. */
  take(id: string): boolean {
    return this.#warm.delete(id)
  }

  /** To be called when a sandbox has ended by itself. Returns whether it was warm; it is removed then. */
  lost(id: string): boolean {
    const warm = this.#warm.get(id)
    if (warm !== undefined) void this.#remove(warm)
    return warm !== undefined
  }

  /** Removes all that are not reserved, for a start that found no room. Returns whether there were any. */
  async clear(): Promise<boolean> {
    const left = this.#closing === undefined ? [...this.#warm.values()] : this.#ready()
    await Promise.all(left.map((warm) => this.#remove(warm)))
    return left.length > 0
  }

  /** Adds what is missing and removes what has had its time. */
  #tend(): void {
    if (this.#recycling === undefined && Date.now() - this.#recycledAt >= recycleIntervalMs) {
      this.#recycledAt = Date.now()
      this.#recycling = this.#recycle().finally(() => (this.#recycling = undefined))
    }
    this.#fill()
  }

  #ready(): WarmSandbox[] {
    return [...this.#warm.values()].filter(({ reservedAt }) => reservedAt === undefined)
  }

  #fill(): void {
    if (this.#filling !== undefined) return
    const add = async (closing: AbortController) => {
      for (let next = this.#missing(); next !== undefined && !closing.signal.aborted; next = this.#missing()) {
        await this.#add(next, closing.signal)
      }
    }
    if (this.#closing === undefined || this.#missing() === undefined) return
    this.#filling = add(this.#closing).finally(() => (this.#filling = undefined))
  }

  async #add(start: WarmStart, signal: AbortSignal): Promise<void> {
    const id = newId('sb-')
    try {
      await this.#options.driver.prepare({ ...start, id }, signal)
      this.#warm.set(id, { id, start, startedAt: Date.now() })
      this.#failures = 0
    } catch (error) {
      if (signal.aborted) return
      if (this.#failures === 0) this.#options.log.warn({ err: error }, 'no sandbox can be kept warm now')
      this.#pausedUntil = Date.now() + Math.min(failurePauseMs * 2 ** this.#failures, failurePauseMsMax)
      this.#failures += 1
    }
  }

  /** What to add next. */
  #missing(): WarmStart | undefined {
    if (this.#options.isBusy() || Date.now() < this.#pausedUntil) return undefined
    if (this.#warm.size >= this.#options.size || !this.#hasMemory(freeShareToAdd)) return undefined
    const counts = this.counts()
    return this.#targets().find(({ start, target }) => (counts[keyOf(start)] ?? 0) < target)?.start
  }

  /** How many of each are to wait, the most wanted first: their shares of the latest creates. */
  #targets(): { start: WarmStart; target: number }[] {
    const { size, first } = this.#options
    const since = Date.now() - demandMs
    const wanted = new Map([[keyOf(first), { start: first, count: 1 }]])
    for (const { start, at } of this.#demands) {
      if (at < since) continue
      // The latest sizes are the most likely ones.
      wanted.set(keyOf(start), { start, count: (wanted.get(keyOf(start))?.count ?? 0) + 1 })
    }
    const often = [...wanted.values()]
      .filter(({ start, count }) => start.from === undefined || count >= oftenMin)
      .toSorted((one, other) => other.count - one.count)
    const total = often.reduce((sum, { count }) => sum + count, 0)
    return often.map(({ start, count }) => ({ start, target: Math.max(1, Math.round((size * count) / total)) }))
  }

  async #recycle(): Promise<void> {
    const now = Date.now()
    for (const warm of this.#warm.values()) {
      const { startedAt, reservedAt } = warm
      const isForgotten = reservedAt !== undefined && now - reservedAt > reservedMs
      const isOld = reservedAt === undefined && now - startedAt > recycledAfterMs
      if (isForgotten || isOld) await this.#remove(warm)
    }
    const targets = new Map(this.#targets().map(({ start, target }) => [keyOf(start), target]))
    for (const warm of this.#ready()) {
      const isUnwanted = (this.counts()[keyOf(warm.start)] ?? 0) > (targets.get(keyOf(warm.start)) ?? 0)
      if (isUnwanted || !this.#hasMemory(freeShareToKeep)) await this.#remove(warm)
    }
  }

  /** One that cannot be removed now is tried again later. */
  async #remove(warm: WarmSandbox): Promise<void> {
    if (!this.take(warm.id)) return
    await this.#options.driver.delete(warm.id).catch((error: unknown) => {
      this.#options.log.warn({ err: error, sandboxId: warm.id }, 'a warm sandbox cannot be removed now')
      if (this.#closing !== undefined) this.#warm.set(warm.id, { ...warm, reservedAt: Date.now() })
    })
  }

  #hasMemory(share: number): boolean {
    const { free, total } = this.#options.memory?.() ?? { free: freemem(), total: totalmem() }
    return free >= total * share
  }
}

function keyOf({ image, from }: WarmStart): string {
  return from?.checkpointId ?? image
}
