import { Semaphore } from '../lib/async/semaphore.ts'

/**
 * Lets agents start a few at a time. Many that start at once would share the processors until none is ready in time, and
 * each would be killed and started again.
 */
export class Starts {
  readonly gate: Semaphore
  /** A start keeps its place no longer than this. */
  readonly turnMs: number

  constructor({ atOnce, turnMs }: { atOnce: number; turnMs: number }) {
    this.gate = new Semaphore({ permits: atOnce })
    this.turnMs = turnMs
  }
}

/** One session's place among them: free ──enter──► held ──leave, or `turnMs` later──► free. */
export class StartSlot {
  readonly #starts: Starts
  readonly #signal: AbortSignal
  #leave: (() => void) | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(starts: Starts, signal: AbortSignal) {
    this.#starts = starts
    this.#signal = signal
  }

  get isHeld(): boolean {
    return this.#leave !== undefined
  }

  /** Waits for a place, which is kept until `leave`, and not for long. Without one after `signal` has aborted. */
  async enter(): Promise<void> {
    if (this.isHeld || this.#signal.aborted) return
    this.#leave = await this.#starts.gate.acquire({ signal: this.#signal }).catch(() => undefined)
    if (!this.isHeld) return
    // From here on, so that a sandbox that is slow to take the skills holds up nobody either.
    this.#timer = setTimeout(() => this.leave(), this.#starts.turnMs)
    this.#timer.unref()
  }

  leave(): void {
    clearTimeout(this.#timer)
    this.#leave?.()
    this.#leave = undefined
  }
}
