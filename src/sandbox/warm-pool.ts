import { freemem, totalmem } from 'node:os'
import { isServiceError } from '../errors.ts'
import { newId } from '../lib/id.ts'
import type { Log } from '../lib/log.ts'
import type { RuntimeDriver, SandboxSpec } from './ports/runtime-driver.ts'
import { WarmShares } from './warm-shares.ts'

/** A warm sandbox is removed after this time: only its uptime, which stays below ten minutes, tells it from one of a cold start. */
const recycledAfterMs = 8 * 60_000
/** A reserved sandbox that nobody creates within this time is removed. */
const reservedMs = 60_000
const tendIntervalMs = 250
const recycleIntervalMs = 2_000
/** Shares of the machine's memory that must be available to add a warm sandbox, and to keep them. */
const freeShareToAdd = 0.1
const freeShareToKeep = 0.05
/** Creates of the last minutes decide what is kept warm. */
const demandMs = 10 * 60_000
const demandsMax = 256
/** A checkpoint gets a warm sandbox after this many creates. */
const oftenMin = 3
const failurePauseMs = 1_000
const failurePauseMsMax = 60_000
/** No warm sandbox is added for this long after work of a client found no room. */
const shortagePauseMs = 10_000

/** What a sandbox is made from, and its sizes. A create with other sizes changes those of a warm one. */
export type WarmStart = Omit<SandboxSpec, 'id'>

export interface WarmPoolOptions {
  driver: Pick<RuntimeDriver, 'prepare' | 'isPrepared' | 'delete'>
  /** Most warm sandboxes; 0: none. */
  size: number
  /** What is kept warm before any demand is known. */
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
 * A warm sandbox has its final id, which a create takes over. So with its owner only its limits change. It has no row; the driver has its
 * record (`RuntimeDriver.prepare`), and removes it at the next start after a crash.
 *
 * One is added at a time, and while clients wait for starts none, or one if several organisations create (`WarmShares`). Full checkpoints get none: their processes would run before anybody wants
 * them to.
 */
export class WarmPool {
  readonly #options: WarmPoolOptions
  readonly #warm = new Map<string, WarmSandbox>()
  readonly #shares = new WarmShares()
  #demands: { start: WarmStart; at: number }[] = []
  /** Absent until `open`. */
  #closing: AbortController | undefined
  #timer: NodeJS.Timeout | undefined
  #filling: Promise<void> | undefined
  /** Aborts the start under way. */
  #starting: AbortController | undefined
  /** Removals under way, by id, unless somebody has taken the id meanwhile. */
  readonly #removing = new Map<string, Promise<void>>()
  #removals = 0
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

  /** Removes all warm sandboxes. */
  async close(): Promise<void> {
    clearInterval(this.#timer)
    this.#closing?.abort()
    this.#closing = undefined
    await Promise.all([this.#filling, this.#recycling])
    await this.clear()
  }

  /** Numbers of warm sandboxes, by their image or checkpoint. */
  countReady(): Record<string, number> {
    const counts: Record<string, number> = {}
    for (const { start } of this.#listReady()) counts[keyOf(start)] = (counts[keyOf(start)] ?? 0) + 1
    return counts
  }

  /** Reserves a warm sandbox that suits for the next minute and returns its id. The last one may be kept for another organisation. */
  reserve(start: WarmStart, orgId: string): string | undefined {
    if (this.#closing === undefined) return undefined
    if (this.#demands.push({ start, at: Date.now() }) > demandsMax) this.#demands.shift()
    const mayTakeLast = this.#shares.mayTakeLast(orgId)
    const [found, next] = this.#listReady().filter((warm) => keyOf(warm.start) === keyOf(start))
    const reserved = next !== undefined || mayTakeLast ? found : undefined
    if (reserved !== undefined) {
      reserved.reservedAt = Date.now()
      this.#shares.noteTaken(orgId)
    }
    this.#fill()
    return reserved?.id
  }

  /** Ends a reservation whose id nobody uses. */
  release(id: string): void {
    const warm = this.#warm.get(id)
    if (warm !== undefined) delete warm.reservedAt
  }

  /** Passes a warm sandbox to the caller, who owns it and its id from here on. Returns whether `id` is one. */
  take(id: string): boolean {
    this.#removing.delete(id)
    return this.#warm.delete(id)
  }

  /** To be called when a sandbox has ended by itself. Returns whether it was warm; it is removed then. */
  removeLost(id: string): boolean {
    const warm = this.#warm.get(id)
    if (warm !== undefined) void this.#remove(warm)
    return warm !== undefined
  }

  /**
   * Runs work of a client that needs addresses, disk and memory. Warm sandboxes take some of each, so work that finds no room runs again after
   * they are removed.
   */
  async withRoom<Result>(work: () => Promise<Result>): Promise<Result> {
    const removals = this.#removals
    try {
      return await work()
    } catch (error) {
      if (!isServiceError(error, 'no_capacity')) throw error
      const isCleared = await this.clear()
      // Another caller may have removed warm sandboxes since this one found no room.
      if (!isCleared && this.#removals === removals) throw error
    }
    return await work()
  }

  /** Removes all that are not reserved, and the one that is starting. Returns whether there were any. */
  async clear(): Promise<boolean> {
    this.#pausedUntil = Math.max(this.#pausedUntil, Date.now() + shortagePauseMs)
    const filling = this.#filling
    this.#starting?.abort()
    await filling
    for (const warm of this.#closing === undefined ? this.#warm.values() : this.#listReady()) void this.#remove(warm)
    const removing = [...this.#removing.values()]
    await Promise.all(removing)
    return filling !== undefined || removing.length > 0
  }

  /** Adds missing warm sandboxes and removes old ones. */
  #tend(): void {
    if (this.#recycling === undefined && Date.now() - this.#recycledAt >= recycleIntervalMs) {
      this.#recycledAt = Date.now()
      this.#recycling = this.#recycle().finally(() => (this.#recycling = undefined))
    }
    this.#fill()
  }

  #listReady(): WarmSandbox[] {
    return [...this.#warm.values()].filter(({ reservedAt }) => reservedAt === undefined)
  }

  #fill(): void {
    if (this.#filling !== undefined) return
    const add = async (closing: AbortController) => {
      for (let next = this.#chooseNext(); next !== undefined && !closing.signal.aborted; next = this.#chooseNext()) {
        await this.#add(next, closing.signal)
      }
    }
    if (this.#closing === undefined || this.#chooseNext() === undefined) return
    this.#filling = add(this.#closing).finally(() => (this.#filling = undefined))
  }

  async #add(start: WarmStart, closing: AbortSignal): Promise<void> {
    const id = newId('sb-')
    const starting = new AbortController()
    const signal = AbortSignal.any([closing, starting.signal])
    this.#starting = starting
    try {
      await this.#options.driver.prepare({ ...start, id }, signal)
      this.#warm.set(id, { id, start, startedAt: Date.now() })
      this.#failures = 0
    } catch (error) {
      if (!signal.aborted) this.#noteFailure(start, error)
    } finally {
      this.#starting = undefined
    }
  }

  #noteFailure(start: WarmStart, error: unknown): void {
    const { log, first } = this.#options
    if (keyOf(start) !== keyOf(first) && !isServiceError(error, 'no_capacity')) {
      // Any client can ask for an image or a checkpoint that does not exist; that must not keep others from being added.
      log.debug({ err: error, from: keyOf(start) }, 'no sandbox is kept warm of this')
      this.#demands = this.#demands.filter((demand) => keyOf(demand.start) !== keyOf(start))
      return
    }
    if (this.#failures === 0) log.warn({ err: error }, 'no sandbox can be kept warm now')
    this.#pausedUntil = Date.now() + Math.min(failurePauseMs * 2 ** this.#failures, failurePauseMsMax)
    this.#failures += 1
  }

  /** What to add next. */
  #chooseNext(): WarmStart | undefined {
    if (Date.now() < this.#pausedUntil) return undefined
    // Clients that wait for starts are those of one organisation perhaps: one is kept for the others.
    const isBusy = this.#options.isBusy()
    if (isBusy && !this.#shares.isShared) return undefined
    if (this.#warm.size >= this.#options.size || !this.#hasMemory(freeShareToAdd)) return undefined
    const counts = this.countReady()
    const isMissing = ({ start, target }: { start: WarmStart; target: number }) =>
      (counts[keyOf(start)] ?? 0) < (isBusy ? 1 : target)
    return this.#rankTargets().find(isMissing)?.start
  }

  /** How many of each to keep warm, by their shares of the latest creates; the most wanted first. */
  #rankTargets(): { start: WarmStart; target: number }[] {
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
    const { driver } = this.#options
    const now = Date.now()
    for (const warm of this.#warm.values()) {
      const { startedAt, reservedAt } = warm
      const isForgotten = reservedAt !== undefined && now - reservedAt > reservedMs
      const isOld = reservedAt === undefined && now - startedAt > recycledAfterMs
      if (isForgotten || isOld) await this.#remove(warm)
    }
    const targets = new Map(this.#rankTargets().map(({ start, target }) => [keyOf(start), target]))
    /** Images and checkpoints whose oldest warm sandbox fits: then the later ones do as well. */
    const current = new Set<string>()
    for (const warm of this.#listReady()) {
      const key = keyOf(warm.start)
      if (!current.has(key) && (await driver.isPrepared({ ...warm.start, id: warm.id }))) current.add(key)
      const isUnwanted = (this.countReady()[key] ?? 0) > (targets.get(key) ?? 0)
      // It may have been reserved meanwhile.
      if (warm.reservedAt !== undefined) continue
      if (!current.has(key) || isUnwanted || !this.#hasMemory(freeShareToKeep)) await this.#remove(warm)
    }
  }

  /** Removes a warm sandbox. A failure is tried again later, unless the id has an owner by then. */
  async #remove(warm: WarmSandbox): Promise<void> {
    const { id } = warm
    if (!this.#warm.delete(id)) return
    const { driver, log } = this.#options
    const removal = driver.delete(id).catch((error: unknown) => {
      log.warn({ err: error, sandboxId: id }, 'a warm sandbox cannot be removed now')
      const isOwned = this.#removing.get(id) !== removal
      if (!isOwned && this.#closing !== undefined) this.#warm.set(id, { ...warm, reservedAt: Date.now() })
    })
    this.#removing.set(id, removal)
    await removal
    this.#removals += 1
    if (this.#removing.get(id) === removal) this.#removing.delete(id)
  }

  #hasMemory(share: number): boolean {
    const { free, total } = this.#options.memory?.() ?? { free: freemem(), total: totalmem() }
    return free >= total * share
  }
}

function keyOf({ image, from }: WarmStart): string {
  return from?.checkpointId ?? image
}
