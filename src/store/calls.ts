import { ServiceError } from '../errors.ts'

/**
 * The calls of a store: taken until `end`, which waits for those that run. Without it a transaction that begins while the
 * embedded database closes would never settle.
 */
export class Calls {
  readonly #check: () => void
  #running = 0
  #ending: PromiseWithResolvers<void> | undefined

  /** `check` throws while no call may begin. */
  constructor(check: () => void) {
    this.#check = check
  }

  /** Throws `unavailable` after the end has begun, and what `check` throws. */
  async run<Result>(call: () => Promise<Result>): Promise<Result> {
    if (this.#ending !== undefined) throw new ServiceError('unavailable', 'the database is closed')
    this.#check()
    this.#running++
    try {
      return await call()
    } finally {
      this.#running--
      this.#resolveWhenIdle()
    }
  }

  async end(): Promise<void> {
    this.#ending ??= Promise.withResolvers()
    this.#resolveWhenIdle()
    await this.#ending.promise
  }

  #resolveWhenIdle(): void {
    if (this.#running === 0) this.#ending?.resolve()
  }
}
