import type { Lifecycle } from './lifecycle.ts'
import type { UsageSample } from './usage-sampler.ts'

export type MetricsService = Pick<Metrics, keyof Metrics>

export interface SandboxMetrics {
  /** Undefined while it does not run. */
  now:
    | (UsageSample & { cpuCount: number; memoryLimitBytes: number; diskLimitBytes: number; processCount: number })
    | undefined
  /** Of the last hour, the oldest first. */
  samples: UsageSample[]
}

const mebibyte = 1024 * 1024

/** What sandboxes use and have used. Reading it wakes none and is no activity. */
export class Metrics {
  readonly #lifecycle: Lifecycle

  constructor(lifecycle: Lifecycle) {
    this.#lifecycle = lifecycle
  }

  /** Throws `not_found` as `get` does, and `unavailable` while its host does not answer. */
  async of(orgId: string, sandboxId: string): Promise<SandboxMetrics> {
    const { status, cpuCount, memoryMb, diskMb } = await this.#lifecycle.get(orgId, sandboxId)
    const { usage } = this.#lifecycle
    const used = status === 'running' ? await usage.now(sandboxId) : undefined
    const limits = { cpuCount, memoryLimitBytes: memoryMb * mebibyte, diskLimitBytes: diskMb * mebibyte }
    return { now: used && { ...used, ...limits }, samples: usage.samples(sandboxId) }
  }
}
