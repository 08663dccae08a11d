import { ServiceError } from '../errors.ts'
import { Semaphore } from '../lib/async/semaphore.ts'

/** Of one organisation: searches that wait for the one that runs. */
const waitingMax = 8
/** What one takes, about, when it looks into as much as it may. */
const searchSeconds = 1

/** Runs one search of an organisation at a time: each looks into megabytes. */
export class Searches {
  readonly #semaphore = new Semaphore({ permitsPerKey: 1 })

  /** Throws `rate_limited` when too many wait already. */
  async run<Result>(orgId: string, search: () => Promise<Result>): Promise<Result> {
    if (this.#semaphore.users(orgId) > waitingMax) {
      const details = { limit: waitingMax, retryAfterSeconds: searchSeconds * waitingMax }
      throw new ServiceError('rate_limited', `${waitingMax} searches of the organisation wait already`, { details })
    }
    return await this.#semaphore.use(search, { key: orgId })
  }
}
