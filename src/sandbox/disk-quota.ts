import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

const mebibyte = 1024 * 1024

/**
 * The disk of each organisation: the sizes that its sandboxes, volumes and snapshots may fill, and what its checkpoints and images hold.
 * Check and record share the organisation's lock; otherwise concurrent calls would all find the last unit free.
 */
export class DiskQuota {
  readonly #store: Pick<SandboxStore, 'diskUse'>
  readonly #maxMbOf: (orgId: string) => number
  readonly #locks = new KeyedMutex()

  constructor(store: Pick<SandboxStore, 'diskUse'>, maxMbOf: (orgId: string) => number) {
    this.#store = store
    this.#maxMbOf = maxMbOf
  }

  /**
   * Runs `record`, which writes the record that counts from then on. Throws `quota_exceeded` when there is no room for `askedBytes` more. The
   * record of the sandbox `insteadOf` does not count, because `record` overwrites it.
   */
  async claim<Result>(
    orgId: string,
    askedBytes: number,
    record: () => Promise<Result>,
    insteadOf?: string,
  ): Promise<Result> {
    return await this.#locks.run(orgId, async () => {
      const { promisedMb, storedBytes } = await this.#store.diskUse(orgId, insteadOf)
      const usedBytes = promisedMb * mebibyte + storedBytes
      const maxBytes = this.#maxMbOf(orgId) * mebibyte
      if (usedBytes + askedBytes > maxBytes) throw exceeded(maxBytes, usedBytes, askedBytes)
      return await record()
    })
  }

  /** Like `claim`, for a size in MB. */
  async claimMb<Result>(
    orgId: string,
    askedMb: number,
    record: () => Promise<Result>,
    insteadOf?: string,
  ): Promise<Result> {
    return await this.claim(orgId, askedMb * mebibyte, record, insteadOf)
  }
}

function exceeded(maxBytes: number, usedBytes: number, askedBytes: number): ServiceError {
  const [limitMB, usedMB, askedMB] = [maxBytes, usedBytes, askedBytes].map((bytes) => Math.ceil(bytes / mebibyte))
  return new ServiceError(
    'quota_exceeded',
    `the organisation uses ${usedMB} MB of the ${limitMB} MB of disk that it may have, too much for ${askedMB} MB more`,
    { details: { limit: 'sandbox.diskMbPerOrganisationMax', limitMB, usedMB, askedMB } },
  )
}
