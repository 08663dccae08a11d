import type { Log } from '../lib/log.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

const timerMsMax = 2 ** 31 - 1

interface Clock {
  /** 0 means never. */
  timeoutMs: number
  activeAtMs: number
  leases: number
  timer: NodeJS.Timeout | undefined
}

/**
 * The rolling idle timeouts of running sandboxes. A clock is ticking, or kept alive while a lease is held. When it runs out, `onIdle`
 * is called once; the callee stops, touches or postpones it. Clocks live in memory: a restart of the server restarts them all.
 */
export class IdleClocks {
  readonly #clocks = new Map<string, Clock>()
  readonly #leases = new Map<string, number>()
  readonly #onIdle: (sandboxId: string) => void

  constructor(onIdle: (sandboxId: string) => void) {
    this.#onIdle = onIdle
  }

  start(sandboxId: string, timeoutSeconds: number): void {
    this.stop(sandboxId)
    const leases = this.#leases.get(sandboxId) ?? 0
    const clock = { timeoutMs: timeoutSeconds * 1000, activeAtMs: Date.now(), leases, timer: undefined }
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

  touch(sandboxId: string): void {
    const clock = this.#clocks.get(sandboxId)
    if (!clock) return
    clock.activeAtMs = Date.now()
    if (!clock.timer) this.#arm(sandboxId, clock)
  }

  /** Restarts the clock as of an earlier moment, unless it would have run out since. */
  touchAt(sandboxId: string, atMs: number): void {
    const clock = this.#clocks.get(sandboxId)
    if (!clock || atMs <= clock.activeAtMs || atMs + clock.timeoutMs <= Date.now()) return
    clock.activeAtMs = atMs
    this.#arm(sandboxId, clock)
  }

  /** Makes the clock run out again after `delayMs` at the earliest. */
  postpone(sandboxId: string, delayMs: number): void {
    const clock = this.#clocks.get(sandboxId)
    if (!clock) return
    clock.activeAtMs = Date.now() + Math.max(0, delayMs - clock.timeoutMs)
    this.#arm(sandboxId, clock)
  }

  /** Takes a lease, which outlasts restarts of the clock. The result releases it; a repeat is harmless. */
  keepAlive(sandboxId: string): () => void {
    this.#count(sandboxId, 1)
    let isReleased = false
    return () => {
      if (isReleased) return
      isReleased = true
      this.#count(sandboxId, -1)
    }
  }

  /** Whether it has run out without a lease. Otherwise it runs on. */
  isOver(sandboxId: string): boolean {
    const clock = this.#clocks.get(sandboxId)
    if (!clock) return false
    const isOver = clock.leases === 0 && clock.timeoutMs > 0 && Date.now() >= clock.activeAtMs + clock.timeoutMs
    if (!isOver && !clock.timer) this.#arm(sandboxId, clock)
    return isOver
  }

  /** Sandboxes that have a clock: all that run. */
  listIds(): string[] {
    return [...this.#clocks.keys()]
  }

  activeAt(sandboxId: string): Date | undefined {
    const clock = this.#clocks.get(sandboxId)
    if (!clock) return undefined
    return new Date(clock.leases > 0 ? Date.now() : clock.activeAtMs)
  }

  #count(sandboxId: string, step: 1 | -1): void {
    const leases = (this.#leases.get(sandboxId) ?? 0) + step
    if (leases > 0) this.#leases.set(sandboxId, leases)
    else this.#leases.delete(sandboxId)
    const clock = this.#clocks.get(sandboxId)
    if (!clock) return
    clock.leases = leases
    this.touch(sandboxId)
  }

  // One timer per clock, set for the earliest end and set again if the clock was touched since: a busy sandbox causes no timer churn.
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
    if (clock.leases > 0) return
    if (Date.now() < clock.activeAtMs + clock.timeoutMs) this.#arm(sandboxId, clock)
    else this.#onIdle(sandboxId)
  }
}

const recordEveryMs = 30_000

/** Records when sandboxes were last active; for people, so not at every operation. */
export class ActivityRecorder {
  readonly #store: SandboxStore
  readonly #log: Log
  readonly #writtenMs = new Map<string, number>()

  constructor(store: SandboxStore, log: Log) {
    this.#store = store
    this.#log = log
  }

  record(sandboxId: string): void {
    const now = Date.now()
    if (now - (this.#writtenMs.get(sandboxId) ?? 0) < recordEveryMs) return
    this.#writtenMs.set(sandboxId, now)
    this.#store.updateSandbox(sandboxId, { activeAt: new Date(now) }, ['running']).catch((error: unknown) => {
      this.#log.warn({ err: error, sandboxId }, 'the last activity of a sandbox could not be recorded')
    })
  }

  /** To be called when another change has written the time. */
  noteWritten(sandboxId: string, activeAt: Date): void {
    this.#writtenMs.set(sandboxId, activeAt.getTime())
  }

  forget(sandboxId: string): void {
    this.#writtenMs.delete(sandboxId)
  }
}
