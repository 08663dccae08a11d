import { availableParallelism } from 'node:os'
import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

/** Bounds and quotas of sandboxes. All of them are configuration (`ATOLL_LIMITS`). */
export const defaultSandboxLimits = {
  /** Sandboxes of one organisation in `creating` or `running`. */
  runningSandboxesMax: 200,
  /**
   * Boots, wakes, dumps and restores of one organisation at a time; others wait. Keep it below the number that the runtime does for all, so
   * that slow work of one organisation leaves capacity to others.
   */
  startsAtOnce: Math.max(3, 2 * availableParallelism() - 1),
  timeoutSecondsMax: 2_592_000,
  cpuCountMax: 64,
  memoryMbMin: 64,
  memoryMbMax: 65_536,
  diskMbMin: 64,
  diskMbMax: 1_048_576,
  /** Disk of one organisation; see `DiskQuota`. */
  // Beyond any pool: an installation of one organisation is bounded by its pool, whose disks take only what is written.
  diskMbPerOrganisationMax: 67_108_864,
  /** What a sandbox reads, and what it writes, of its disk and volumes each second. */
  diskReadBytesPerSecondMax: 1024 ** 3,
  diskWriteBytesPerSecondMax: 1024 ** 3,
  /** Requests to the disk. */
  diskReadsPerSecondMax: 100_000,
  diskWritesPerSecondMax: 100_000,
  patchScriptBytesMax: 256 * 1024,
  patchTimeoutMs: 600_000,
  /** Of one sandbox. */
  fullCheckpointsMax: 10,
  /** Of one sandbox. */
  diskOnlyCheckpointsMax: 100,
  /** Of one organisation. */
  volumesMax: 100,
  /** Of one volume. */
  snapshotsPerVolumeMax: 100,
  volumesPerSandboxMax: 16,
  volumeMbMin: 16,
  volumeMbMax: 1_048_576,
  /** Custom domains of one organisation that wait for their TXT record. */
  unverifiedDomainsMax: 100,
  /** Time before the first repeated lookup of a domain's TXT record. Intervals grow, and no lookup is more frequent. */
  domainCheckMs: 3000,
  /** How long an operation or a preview request waits for a sandbox to wake. */
  wakeWaitMs: 30_000,
}

export type SandboxLimits = typeof defaultSandboxLimits

const retryAfterSeconds = 10

/**
 * The running sandboxes of each organisation; beyond the quota it throws `rate_limited`. Check and claim share the organisation's
 * lock; otherwise concurrent calls would all find the last unit free.
 */
export class RunningSandboxQuota {
  readonly #store: SandboxStore
  readonly #max: number
  readonly #locks = new KeyedMutex()
  /** Wakes under way, which no record counts yet. */
  readonly #waking = new Map<string, number>()

  constructor(store: SandboxStore, max: number) {
    this.#store = store
    this.#max = max
  }

  /** For work that writes a record in `creating`: the record is the claim. */
  async claimRecord<Result>(orgId: string, work: () => Promise<Result>): Promise<Result> {
    return await this.#locks.run(orgId, async () => {
      await this.#assertFree(orgId)
      return await work()
    })
  }

  /** For work that leaves a hibernated sandbox running, or fails. */
  async claimWake<Result>(orgId: string, work: () => Promise<Result>): Promise<Result> {
    await this.#locks.run(orgId, async () => {
      await this.#assertFree(orgId)
      this.#countWakes(orgId, 1)
    })
    try {
      return await work()
    } finally {
      this.#countWakes(orgId, -1)
    }
  }

  #countWakes(orgId: string, step: 1 | -1): void {
    const wakes = (this.#waking.get(orgId) ?? 0) + step
    if (wakes > 0) this.#waking.set(orgId, wakes)
    else this.#waking.delete(orgId)
  }

  async #assertFree(orgId: string): Promise<void> {
    const count = (await this.#store.countSandboxes(orgId, ['creating', 'running'])) + (this.#waking.get(orgId) ?? 0)
    if (count < this.#max) return
    throw new ServiceError('rate_limited', `the organisation has ${count} running sandboxes, the most it may have`, {
      details: { limit: this.#max, retryAfterSeconds },
    })
  }
}
