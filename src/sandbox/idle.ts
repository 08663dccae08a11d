const timerMsMax = 2 ** 31 - 1

interface Clock {
  /** 0 means never. */
  timeoutMs: number
  activeAtMs: number
  holds: number
  timer: NodeJS.Timeout | undefined
}

/**
 * The rolling idle timeouts of running sandboxes (docs/ARCHITECTURE.md § The life of a sandbox). A clock exists while its
 * sandbox runs:
 *
 *     start ──► ticking ⇄ held          stop ends it from either
 *
 * `touch` restarts it, `hold` stops it until released, and `onIdle` is called once when it runs out; whoever answers that
 * call stops the clock, touches it or postpones it. Clocks live in memory: a restart of the server restarts them all.
 */
export class IdleClocks {
  readonly #clocks = new Map<string, Clock>()
  readonly #holds = new Map<string, number>()
  readonly #onIdle: (sandboxId: string) => void

  constructor(onIdle: (sandboxId: string) => void) {
    this.#onIdle = onIdle
  }

  start(sandboxId: string, timeoutSeconds: number): void {
    this.stop(sandboxId)
    const holds = this.#holds.get(sandboxId) ?? 0
    const clock = { timeoutMs: timeoutSeconds * 1000, activeAtMs: Date.now(), holds, timer: undefined }
    this.#clocks.set(sandboxId, clock)
    this.#arm(sandboxId, clock)
  }

  stop(sandboxId: string): void {
    clearTimeout(this.#clocks.get(sandboxId)?.timer)
    this.#clocks.delete(sandboxId)
  }

  stopAll(): void {
    for (const sandboxId of [...this.#clocks.keys()]) this.stop(sandboxId)
  }

  /** Restarts the clock. */
  touch(sandboxId: string): void {
    const clock = this.#clocks.get(sandboxId)
    if (!clock) return
    clock.activeAtMs = Date.now()
    if (!clock.timer) this.#arm(sandboxId, clock)
  }

  /** Restarts the clock as of an earlier moment; whether it runs on from there. */
  touchAt(sandboxId: string, atMs: number): boolean {
    const clock = this.#clocks.get(sandboxId)
    if (!clock || atMs <= clock.activeAtMs || atMs + clock.timeoutMs <= Date.now()) return false
    clock.activeAtMs = atMs
    this.#arm(sandboxId, clock)
    return true
  }

  /** Lets the clock run out again in `delayMs` at the earliest, for a caller that could not act on it. */
  postpone(sandboxId: string, delayMs: number): void {
    const clock = this.#clocks.get(sandboxId)
    if (!clock) return
    clock.activeAtMs = Date.now() + Math.max(0, delayMs - clock.timeoutMs)
    this.#arm(sandboxId, clock)
  }

  /** Keeps the sandbox from idling, also across its clock's restarts. Call the result once; more often is harmless. */
  hold(sandboxId: string): () => void {
    this.#count(sandboxId, 1)
    let released = false
    return () => {
      if (released) return
      released = true
      this.#count(sandboxId, -1)
    }
  }

  /** Whether it has run out and nobody holds it. Where that is not so any more, it runs on. */
  isOver(sandboxId: string): boolean {
    const clock = this.#clocks.get(sandboxId)
    if (!clock) return false
    const isOver = clock.holds === 0 && clock.timeoutMs > 0 && Date.now() >= clock.activeAtMs + clock.timeoutMs
    if (!isOver && !clock.timer) this.#arm(sandboxId, clock)
    return isOver
  }

  activeAt(sandboxId: string): Date | undefined {
    const clock = this.#clocks.get(sandboxId)
    if (!clock) return undefined
    return new Date(clock.holds > 0 ? Date.now() : clock.activeAtMs)
  }

  #count(sandboxId: string, step: 1 | -1): void {
    const holds = (this.#holds.get(sandboxId) ?? 0) + step
    if (holds > 0) this.#holds.set(sandboxId, holds)
    else this.#holds.delete(sandboxId)
    const clock = this.#clocks.get(sandboxId)
    if (!clock) return
    clock.holds = holds
    this.touch(sandboxId)
  }

  // One timer per clock, set for the moment at which the clock may run out and set again if it was touched meanwhile: a
  // busy sandbox costs no timer churn.
  #arm(sandboxId: string, clock: Clock): void {
    clearTimeout(clock.timer)
    clock.timer = undefined
    if (clock.timeoutMs === 0) return
    const dueMs = clock.activeAtMs + clock.timeoutMs - Date.now()
    clock.timer = setTimeout(() => this.#ring(sandboxId, clock), Math.min(Math.max(dueMs, 0), timerMsMax))
    clock.timer.unref()
  }

  #ring(sandboxId: string, clock: Clock): void {
    clock.timer = undefined
    if (clock.holds > 0) return
    if (Date.now() < clock.activeAtMs + clock.timeoutMs) this.#arm(sandboxId, clock)
    else this.#onIdle(sandboxId)
  }
}
