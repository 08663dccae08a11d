import { constants } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SessionTimings } from './config.ts'

const { SIGINT, SIGKILL } = constants.signals

/**
 * Makes an agent end its turn that was asked to:
 *
 *     (none) ──begin──► asked ──interruptAskMs──► SIGINT ──interruptSigintMs──► SIGKILL, again every retryMaxMs
 *                         any ──stop──► (none)
 */
export class Escalation {
  readonly #timings: SessionTimings
  readonly #send: (signal: number, stopped: AbortSignal) => Promise<void>
  #running: AbortController | undefined

  /** `send` sends a signal to the agent's process group, unless `stopped` has aborted by then, and never throws. */
  constructor(timings: SessionTimings, send: (signal: number, stopped: AbortSignal) => Promise<void>) {
    this.#timings = timings
    this.#send = send
  }

  /** Goes on where it is when it has begun already. */
  begin(): void {
    if (this.#running) return
    this.#running = new AbortController()
    void this.#run(this.#running.signal)
  }

  stop(): void {
    this.#running?.abort()
    this.#running = undefined
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { interruptAskMs, interruptSigintMs, retryMaxMs } = this.#timings
    await pause(interruptAskMs, signal)
    if (!signal.aborted) await this.#send(SIGINT, signal)
    await pause(interruptSigintMs, signal)
    while (!signal.aborted) {
      await this.#send(SIGKILL, signal)
      await pause(retryMaxMs, signal)
    }
  }
}

/** Returns early when `signal` aborts. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal, ref: false }).catch(() => {})
}
