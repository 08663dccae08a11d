import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

const retryAfterSeconds = 10

/**
 * How many sandboxes of an organisation may run. Each place is claimed by itself, or calls at the same time would all find
 * the last one free. Throws `rate_limited` when there is none.
 */
export class RunningPlaces {
  readonly #store: SandboxStore
  readonly #max: number
  readonly #locks = new KeyedMutex()
  /** Wakes, which no record counts until they are done. */
  readonly #waking = new Map<string, number>()

  constructor(store: SandboxStore, max: number) {
    this.#store = store
    this.#max = max
  }

  /** For work that writes a record in `creating`: that is the claim. */
  async forRecord<Result>(orgId: string, work: () => Promise<Result>): Promise<Result> {
    return await this.#locks.run(orgId, async () => {
      await this.#demand(orgId)
      return await work()
    })
  }

  /** For work that ends with a hibernated sandbox running, or in a failure. */
  async forWake<Result>(orgId: string, work: () => Promise<Result>): Promise<Result> {
    await this.#locks.run(orgId, async () => {
      await this.#demand(orgId)
      this.#waking.set(orgId, this.#wakingOf(orgId) + 1)
    })
    try {
      return await work()
    } finally {
      const left = this.#wakingOf(orgId) - 1
      if (left > 0) this.#waking.set(orgId, left)
      else this.#waking.delete(orgId)
    }
  }

  #wakingOf(orgId: string): number {
    return this.#waking.get(orgId) ?? 0
  }

  async #demand(orgId: string): Promise<void> {
    const count = (await this.#store.countSandboxes(orgId, ['creating', 'running'])) + this.#wakingOf(orgId)
    if (count < this.#max) return
    throw new ServiceError('rate_limited', `the organisation has ${count} running sandboxes, the most it may have`, {
      details: { limit: this.#max, retryAfterSeconds },
    })
  }
}
