import { ServiceError } from '../errors.ts'
import type { Lifecycle } from './lifecycle.ts'
import type { Sandbox } from './sandbox.ts'
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
const loadSpanMs = 100

/** What a sandbox has left of its limits, for itself. */
export interface SandboxLoad {
  /** Of the CPU that it may use: 0 to 100. */
  cpuPercent: number
  memoryBytes: number
  memoryLimitBytes: number
  /** Undefined while the host does not know. */
  diskBytes: number | undefined
  diskLimitBytes: number
  processCount: number
  networkReceivedBytes: number
  networkSentBytes: number
}

/** What sandboxes use and have used. Reading it wakes none and is no activity. */
export class Metrics {
  readonly #lifecycle: Lifecycle
  /** Measurements under way. */
  readonly #loads = new Map<string, Promise<SandboxLoad>>()

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

  /** Takes a tenth of a second; concurrent calls for one sandbox share it. Throws `conflict` when it does not run until then. */
  async load(sandbox: Sandbox): Promise<SandboxLoad> {
    const { id } = sandbox
    const load = this.#loads.get(id) ?? this.#measure(sandbox).finally(() => this.#loads.delete(id))
    this.#loads.set(id, load)
    return await load
  }

  async #measure({ id, cpuCount, memoryMb, diskMb }: Sandbox): Promise<SandboxLoad> {
    const measured = await this.#lifecycle.usage.during(id, loadSpanMs)
    if (measured === undefined) throw new ServiceError('conflict', `sandbox ${id} does not run`)
    const { cpuUs: _cpuUs, ...used } = measured.usage
    const cpuPercent = Math.min(100, Math.round((measured.cpuPercent / cpuCount) * 10) / 10)
    return { ...used, cpuPercent, memoryLimitBytes: memoryMb * mebibyte, diskLimitBytes: diskMb * mebibyte }
  }
}
