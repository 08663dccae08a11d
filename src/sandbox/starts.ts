import { freemem } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../errors.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { SandboxLimits } from './quota.ts'
import type { WarmPool } from './warm-pool.ts'

const mebibyte = 1024 ** 2
const lookIntervalMs = 100
const retryAfterSeconds = 5

export interface StartsOptions {
  /** Of transitions; keys are organisations. */
  permits: Semaphore
  warm: Pick<WarmPool, 'withRoom' | 'clear'>
  limits: Pick<SandboxLimits, 'startsWaitingMax' | 'startWaitMs' | 'startMemoryMb' | 'memoryReserveMb'>
  /** Starts of one organisation at a time, below what its permits allow. Dumps do not count: they are long, and starts must not wait for them. */
  startsAtOnce: () => number
  shareOf: (orgId: string) => number
  /** In bytes. Default: what the host can give without swapping. */
  freeMemory?: () => number
}

export interface Start {
  orgId: string
  /** The limit of the sandbox: the start is taken to need no more. 0: it needs no memory that it does not have. */
  memoryMb: number
  /** Ends the wait. */
  signal?: AbortSignal | undefined
}

/**
 * Lets machines start: when a permit of their organisation is free, and while the host has memory for them. What has to wait is in a queue for
 * each organisation; organisations are served in turn. A queue is bounded, and so is the time in it.
 *
 *     waits for a permit ──► waits for memory ──► starts
 *           └── `startWaitMs` are over ─┴──► `no_capacity`, with the time of the next attempt
 *
 * Limits of sandboxes are no promise of memory: together they may exceed the host's. Without this check the next start would make the kernel
 * end processes of sandboxes that run.
 */
export class Starts {
  readonly #options: Required<StartsOptions>
  readonly #begun: Semaphore
  /** Whoever has it is the next to get memory. */
  readonly #turn: Semaphore
  /** Of starts under way, which do not hold it yet. */
  #claimedBytes = 0

  constructor(options: StartsOptions) {
    this.#options = { freeMemory: freemem, ...options }
    this.#begun = new Semaphore({ permitsPerKey: options.startsAtOnce })
    this.#turn = new Semaphore({ permits: 1, shareOf: options.shareOf })
  }

  /** Throws `rate_limited` when the queue of the organisation is full, `no_capacity` when the wait takes too long. */
  async run<Result>(start: Start, work: () => Promise<Result>): Promise<Result> {
    this.#assertRoomIn(this.#begun, start.orgId)
    using held = new DisposableStack()
    for (const semaphore of [this.#begun, this.#options.permits]) {
      const acquire = (signal: AbortSignal) => semaphore.acquire({ key: start.orgId, signal })
      held.defer(await this.#wait(start, 'others of the organisation start', acquire))
    }
    return await this.runPermitted(start, work)
  }

  /** Likewise, for who has a permit. */
  async runPermitted<Result>(start: Start, work: () => Promise<Result>): Promise<Result> {
    const release = await this.#claimMemory(start)
    try {
      return await this.#options.warm.withRoom(work)
    } finally {
      release()
    }
  }

  async #claimMemory(start: Start): Promise<() => void> {
    const { limits, warm } = this.#options
    const bytes = Math.min(start.memoryMb, limits.startMemoryMb) * mebibyte
    if (bytes === 0 || (!this.#turn.isUsed && this.#fits(bytes))) return this.#take(bytes)
    this.#assertRoomIn(this.#turn, start.orgId)
    return await this.#wait(start, 'the host is short of memory', (signal) =>
      this.#turn.use(
        async () => {
          if (!this.#fits(bytes)) await warm.clear()
          while (!this.#fits(bytes)) await sleep(lookIntervalMs, undefined, { signal })
          return this.#take(bytes)
        },
        { key: start.orgId, signal },
      ),
    )
  }

  #fits(bytes: number): boolean {
    const { freeMemory, limits } = this.#options
    return freeMemory() - this.#claimedBytes - bytes >= limits.memoryReserveMb * mebibyte
  }

  #take(bytes: number): () => void {
    this.#claimedBytes += bytes
    return () => {
      this.#claimedBytes -= bytes
    }
  }

  #assertRoomIn(queue: Semaphore, orgId: string): void {
    const { startsWaitingMax: limit } = this.#options.limits
    const active = queue.users(orgId)
    if (active < limit) return
    const message = `${active} starts of the organisation are under way or wait, the most that may`
    throw new ServiceError('rate_limited', message, { details: { limit, active, retryAfterSeconds } })
  }

  async #wait<Result>(
    { signal: ended }: Start,
    why: string,
    wait: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    const { startWaitMs } = this.#options.limits
    const deadline = AbortSignal.timeout(startWaitMs)
    try {
      return await wait(ended === undefined ? deadline : AbortSignal.any([ended, deadline]))
    } catch (error) {
      ended?.throwIfAborted()
      if (!deadline.aborted) throw error
      const message = `no start within ${startWaitMs / 1000} s: ${why}; try again`
      throw new ServiceError('no_capacity', message, { details: { retryAfterSeconds } })
    }
  }
}
