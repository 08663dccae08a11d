import { setTimeout as sleep } from 'node:timers/promises'
import { TokenBuckets } from '../../lib/token-bucket.ts'

/** Refusals that are answered at once. */
const promptRefusals = { perSecond: 10, burst: 50 }
const holdMs = 1000
/** Requests that are held at a time, of one caller and of all: each keeps its connection and some kilobytes. */
const heldOfOneMax = 1000
const heldMax = 10_000

/**
 * Holds back what is refused to a caller that goes on asking. An answer costs the server as much as a small call, so one that ignores
 * `rate_limited` would still have most of the server. A caller has a bounded number of connections, so answers that come late bound its rate.
 */
export class HeldRefusals {
  readonly #prompt = new TokenBuckets(promptRefusals)
  readonly #held = new Map<string, number>()
  readonly #holdMs: number
  #count = 0

  constructor(ms = holdMs) {
    this.#holdMs = ms
  }

  /** Resolves when the refusal may be answered: at once, or after a second. */
  async hold(caller: string): Promise<void> {
    const held = this.#held.get(caller) ?? 0
    if (this.#prompt.take(caller) === 0 || held >= heldOfOneMax || this.#count >= heldMax) return
    this.#held.set(caller, held + 1)
    this.#count += 1
    await sleep(this.#holdMs, undefined, { ref: false })
    this.#count -= 1
    const left = (this.#held.get(caller) ?? 0) - 1
    if (left > 0) this.#held.set(caller, left)
    else this.#held.delete(caller)
  }
}
