import { type Release, Semaphore } from '../lib/async/semaphore.ts'

/**
 * Lets agents start a few at a time. Many that start at once would share the processors until none is ready in time, and
 * each would be killed and started again.
 */
export class AgentStartLimiter {
  readonly semaphore: Semaphore
  /** A start keeps its permit no longer than this. */
  readonly permitMs: number

  constructor({ atOnce, permitMs }: { atOnce: number; permitMs: number }) {
    this.semaphore = new Semaphore({ permits: atOnce })
    this.permitMs = permitMs
  }
}

/** The permit of one session: none ──acquire──► held ──release, or `permitMs` later──► none. */
export class StartPermit {
  readonly #limiter: AgentStartLimiter
  readonly #signal: AbortSignal
  #release: Release | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(limiter: AgentStartLimiter, signal: AbortSignal) {
    this.#limiter = limiter
    this.#signal = signal
  }

  get isHeld(): boolean {
    return this.#release !== undefined
  }

  /** Waits for a permit. Returns without one after `signal` has aborted. */
  async acquire(): Promise<void> {
    if (this.isHeld || this.#signal.aborted) return
    this.#release = await this.#limiter.semaphore.acquire({ signal: this.#signal }).catch(() => undefined)
    if (!this.isHeld) return
    // From here on, so that a sandbox that is slow to take the skills holds up no other session either.
    this.#timer = setTimeout(() => this.release(), this.#limiter.permitMs)
    this.#timer.unref()
  }

  release(): void {
    clearTimeout(this.#timer)
    this.#release?.()
    this.#release = undefined
  }
}
