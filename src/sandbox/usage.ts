import { ServiceError } from '../errors.ts'
import type { Lifecycle } from './lifecycle.ts'
import type { Sandbox } from './sandbox.ts'
import type { SandboxUsage } from './ports/runtime-driver.ts'

const mebibyte = 1024 * 1024
const measuredSpanMs = 100

interface UsageOfLimits extends Omit<SandboxUsage, 'cpuUs'> {
  /** Share of the CPU that the sandbox may use: 0 to 100. */
  cpuPercent: number
  memoryLimitBytes: number
  diskLimitBytes: number
}

/** What sandboxes use and have used. A read wakes none and is no activity. */
export class Usage {
  readonly #lifecycle: Lifecycle
  /** Measurements under way. */
  readonly #measurements = new Map<string, Promise<UsageOfLimits>>()

  constructor(lifecycle: Lifecycle) {
    this.#lifecycle = lifecycle
  }

  /** Usage now, if the sandbox runs, and in the last hour, oldest first. Throws `not_found`, and `unavailable` while its host does not answer. */
  async readRecent(orgId: string, sandboxId: string) {
    const { status, cpuCount, memoryMb, diskMb } = await this.#lifecycle.read(sandboxId, orgId)
    const { usage } = this.#lifecycle
    const used = status === 'running' ? await usage.readNow(sandboxId) : undefined
    const limits = { cpuCount, memoryLimitBytes: memoryMb * mebibyte, diskLimitBytes: diskMb * mebibyte }
    return { now: used && { ...used, ...limits }, samples: usage.readSamples(sandboxId) }
  }

  /** Measures for a tenth of a second; concurrent calls for one sandbox share this. Throws `conflict` when the sandbox does not run until then. */
  async measure(sandbox: Sandbox): Promise<UsageOfLimits> {
    const { id } = sandbox
    const measured = this.#measurements.get(id) ?? this.#measure(sandbox).finally(() => this.#measurements.delete(id))
    this.#measurements.set(id, measured)
    return await measured
  }

  async #measure({ id, cpuCount, memoryMb, diskMb }: Sandbox): Promise<UsageOfLimits> {
    const measured = await this.#lifecycle.usage.measureDuring(id, measuredSpanMs)
    if (measured === undefined) throw new ServiceError('conflict', `sandbox ${id} does not run`)
    const { cpuUs: _cpuUs, ...used } = measured.usage
    const cpuPercent = Math.min(100, Math.round((measured.cpuPercent / cpuCount) * 10) / 10)
    return { ...used, cpuPercent, memoryLimitBytes: memoryMb * mebibyte, diskLimitBytes: diskMb * mebibyte }
  }
}
