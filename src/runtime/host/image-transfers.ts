import { ServiceError } from '../../errors.ts'
import { asReported } from '../disk/index.ts'

/** Images on their way from registries and archives and to them. */
export class ImageTransfers {
  readonly #closed = new AbortController()
  readonly #running = new Set<Promise<unknown>>()

  /** Runs one, until `close` at the latest. */
  async run<Result>(signal: AbortSignal | undefined, work: (ended: AbortSignal) => Promise<Result>): Promise<Result> {
    const closed = this.#closed.signal
    const running = work(signal === undefined ? closed : AbortSignal.any([signal, closed]))
    this.#running.add(running)
    try {
      return await running
    } catch (error) {
      throw asReported(error)
    } finally {
      this.#running.delete(running)
    }
  }

  /** Ends all, and waits for them. */
  async close(): Promise<void> {
    this.#closed.abort(new ServiceError('unavailable', 'the runtime is closed'))
    await Promise.allSettled(this.#running)
  }
}
