import { availableParallelism, totalmem } from 'node:os'
import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'
import type { Sandbox } from './sandbox.ts'

/** Bounds and quotas of sandboxes. All of them are configuration (`ATOLL_LIMITS`). */
export const defaultSandboxLimits = {
  /** Sandboxes of one organisation in `creating` or `running`. */
  runningSandboxesMax: 200,
  /**
   * Boots, wakes, dumps and restores of one organisation at a time; others wait. Keep it below the number that the runtime does for all, so
   * that slow work of one organisation leaves capacity to others.
   */
  startsAtOnce: Math.max(3, 2 * availableParallelism() - 1),
  /** Starts of one organisation that are under way or wait; the next is refused. */
  startsWaitingMax: 500,
  /** How long a start waits for others of its organisation, and for memory of the host. */
  startWaitMs: 60_000,
  /** What a start is taken to need of the host's memory, unless the sandbox may have less. */
  startMemoryMb: 128,
  /** What starts leave of the host's memory to everything else. */
  memoryReserveMb: defaultMemoryReserveMb(),
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
  /** How long an answer waits for the lookup of a domain's TXT record. A later result still counts. */
  domainAnswerWaitMs: 2000,
  /** How long an operation or a preview request waits for a sandbox to wake. */
  wakeWaitMs: 30_000,
}

/** By the size of this machine. */
function defaultMemoryReserveMb(): number {
  return Math.round(Math.max(256, (totalmem() / 1024 ** 2) * 0.04))
}

export type SandboxLimits = typeof defaultSandboxLimits

const retryAfterSeconds = 10

/** What one organisation may have of sandboxes. */
export interface SandboxQuota {
  /** In `creating` or `running`. */
  runningSandboxesMax: number
  /** Not stopped. */
  sandboxesMax: number
  /** Of those that run, together. */
  memoryMbMax: number
  cpuCountMax: number
  /** See `DiskQuota`. */
  diskMbMax: number
  /** Of clients. */
  checkpointsMax: number
  /** Boots, wakes, dumps and restores at a time. */
  startsAtOnce: number
}

/** Of an installation without organisations that differ. */
export function quotaOfLimits(limits: SandboxLimits): SandboxQuota {
  const { runningSandboxesMax, diskMbPerOrganisationMax: diskMbMax, startsAtOnce } = limits
  const unbounded = { sandboxesMax: Infinity, memoryMbMax: Infinity, cpuCountMax: Infinity, checkpointsMax: Infinity }
  return { runningSandboxesMax, diskMbMax, startsAtOnce, ...unbounded }
}

type Sizes = Pick<Sandbox, 'memoryMb' | 'cpuCount'>

interface Claimed extends Sizes {
  count: number
}

const nothing: Claimed = { count: 0, memoryMb: 0, cpuCount: 0 }

/**
 * What runs of each organisation: sandboxes, their memory, their CPUs. Beyond the quota it throws `rate_limited`, since that frees itself; beyond
 * the number of all sandboxes `quota_exceeded`. Check and claim share the organisation's lock; otherwise concurrent calls would all find the last
 * unit free. A quota that is lowered below what is there ends nothing.
 */
export class RunningSandboxQuota {
  readonly #store: Pick<SandboxStore, 'sandboxUse'>
  readonly #quotaOf: (orgId: string) => SandboxQuota
  readonly #locks = new KeyedMutex()
  /** Wakes and growths under way, which no record counts yet. */
  readonly #claimed = new Map<string, Claimed>()

  constructor(store: Pick<SandboxStore, 'sandboxUse'>, quotaOf: (orgId: string) => SandboxQuota) {
    this.#store = store
    this.#quotaOf = quotaOf
  }

  /** For work that writes a record in `creating`: the record is the claim. */
  async claimRecord<Result>(sandbox: Sandbox, work: () => Promise<Result>): Promise<Result> {
    const { orgId, id, memoryMb, cpuCount } = sandbox
    return await this.#locks.run(orgId, async () => {
      await this.#assertFree(orgId, { count: 1, memoryMb, cpuCount }, id)
      return await work()
    })
  }

  /** For work that leaves a hibernated sandbox running, or fails. */
  async claimWake<Result>({ orgId, memoryMb, cpuCount }: Sandbox, work: () => Promise<Result>): Promise<Result> {
    return await this.#claim(orgId, { count: 1, memoryMb, cpuCount }, work)
  }

  /** For work that gives a running sandbox other sizes, or fails. */
  async claimSizes<Result>(sandbox: Sandbox, sizes: Sizes, work: () => Promise<Result>): Promise<Result> {
    const grown = {
      count: 0,
      memoryMb: Math.max(0, sizes.memoryMb - sandbox.memoryMb),
      cpuCount: Math.max(0, sizes.cpuCount - sandbox.cpuCount),
    }
    if (grown.memoryMb === 0 && grown.cpuCount === 0) return await work()
    return await this.#claim(sandbox.orgId, grown, work)
  }

  async #claim<Result>(orgId: string, claim: Claimed, work: () => Promise<Result>): Promise<Result> {
    await this.#locks.run(orgId, async () => {
      await this.#assertFree(orgId, claim)
      this.#count(orgId, claim, 1)
    })
    try {
      return await work()
    } finally {
      this.#count(orgId, claim, -1)
    }
  }

  #count(orgId: string, { count, memoryMb, cpuCount }: Claimed, step: 1 | -1): void {
    const before = this.#claimed.get(orgId) ?? nothing
    const after = {
      count: before.count + step * count,
      memoryMb: before.memoryMb + step * memoryMb,
      cpuCount: before.cpuCount + step * cpuCount,
    }
    // Rounding leaves a rest of CPUs.
    const isNothing = after.count <= 0 && after.memoryMb <= 0 && after.cpuCount < 1e-6
    if (isNothing) this.#claimed.delete(orgId)
    else this.#claimed.set(orgId, after)
  }

  /** `newId`: of the sandbox that is to be made; one of this id counts already. */
  async #assertFree(orgId: string, asked: Claimed, newId?: string): Promise<void> {
    const quota = this.#quotaOf(orgId)
    const use = await this.#store.sandboxUse(orgId, newId)
    const claimed = this.#claimed.get(orgId) ?? nothing
    if (newId !== undefined && use.all + 1 > quota.sandboxesMax) {
      const message = `the organisation has ${use.all} sandboxes, the most it may have`
      throw new ServiceError('quota_exceeded', message, { details: { limit: quota.sandboxesMax, active: use.all } })
    }
    const running = use.running + claimed.count
    if (asked.count > 0 && running + asked.count > quota.runningSandboxesMax) {
      throw beyond(`the organisation has ${running} running sandboxes`, quota.runningSandboxesMax, running)
    }
    const memoryMb = use.memoryMb + claimed.memoryMb
    if (asked.memoryMb > 0 && memoryMb + asked.memoryMb > quota.memoryMbMax) {
      throw beyond(`running sandboxes of the organisation have ${memoryMb} MB of memory`, quota.memoryMbMax, memoryMb)
    }
    const cpuCount = use.cpuCount + claimed.cpuCount
    if (asked.cpuCount > 0 && cpuCount + asked.cpuCount > quota.cpuCountMax) {
      throw beyond(`running sandboxes of the organisation have ${cpuCount} CPUs`, quota.cpuCountMax, cpuCount)
    }
  }
}

function beyond(what: string, limit: number, active: number): ServiceError {
  const message =
    active >= limit
      ? `${what}, the most it may have`
      : `${what} of the ${limit} that it may have, too many for this one`
  return new ServiceError('rate_limited', message, { details: { limit, active, retryAfterSeconds } })
}
