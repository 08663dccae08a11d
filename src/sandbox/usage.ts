import { isServiceError, ServiceError } from '../errors.ts'
import { isWithin, type KeyReach } from '../lib/key-reach.ts'
import type { Lifecycle } from './lifecycle.ts'
import type { Sandbox } from './sandbox.ts'
import type { SandboxUsage } from './ports/runtime-driver.ts'
import type { UsageSample } from './usage-sampler.ts'

const mebibyte = 1024 * 1024
const measuredSpanMs = 100
/** Of the last hour, of each sandbox that is followed. */
const followedPointsMax = 60

/** What a sandbox used at a time. */
export interface FollowedSample extends Pick<UsageSample, 'at' | 'cpuPercent' | 'memoryBytes'> {
  sandboxId: string
  memoryLimitBytes: number
}

export interface FollowUsage {
  signal: AbortSignal
  /** Of a key with a name prefix. */
  reach?: KeyReach
}

interface UsageOfLimits extends Omit<SandboxUsage, 'cpuUs'> {
  /** Share of the CPU that the sandbox may use: 0 to 100. */
  cpuPercent: number
  memoryLimitBytes: number
  diskLimitBytes: number
}

/** What sandboxes use and have used. A read wakes none and is no activity. */
export class Usage {
  readonly #lifecycle: Pick<Lifecycle, 'read' | 'usage'>
  /** Measurements under way. */
  readonly #measurements = new Map<string, Promise<UsageOfLimits>>()

  constructor(lifecycle: Pick<Lifecycle, 'read' | 'usage'>) {
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

  /**
   * The samples of sandboxes until `signal` aborts: of each those of the last hour, thinned to 60, then each as it is taken. Sandboxes that the organisation does
   * not have, or the key does not reach, have none. A reader that is slow misses samples, and gets the newest of each sandbox.
   */
  async *follow(
    orgId: string,
    sandboxIds: readonly string[],
    { signal, reach }: FollowUsage,
  ): AsyncGenerator<FollowedSample[]> {
    const known = new Map<string, Sandbox>()
    for (const id of sandboxIds) {
      const sandbox = await this.#find(orgId, id, reach)
      if (sandbox !== undefined) known.set(id, sandbox)
    }
    const waiting = new Map<string, UsageSample>()
    let wake = () => {}
    const take = (id: string, sample: UsageSample) => {
      waiting.set(id, sample)
      wake()
    }
    const { usage } = this.#lifecycle
    using cleanup = new DisposableStack()
    const onAbort = () => wake()
    signal.addEventListener('abort', onAbort)
    cleanup.defer(() => signal.removeEventListener('abort', onAbort))
    // At once, so that each sample is either past or to come.
    const past = [...known.values()].map((sandbox) => {
      cleanup.defer(usage.subscribe(sandbox.id, take))
      return thinned(usage.readSamples(sandbox.id)).map((sample) => followed(sandbox, sample))
    })
    for (const samples of past) if (samples.length > 0) yield samples
    while (!signal.aborted) {
      if (waiting.size === 0) {
        await new Promise<void>((resolve) => {
          wake = resolve
        })
        continue
      }
      const taken = [...waiting]
      waiting.clear()
      const samples: FollowedSample[] = []
      for (const [id, sample] of taken) {
        // Its memory may have changed.
        const sandbox = await this.#find(orgId, id, reach)
        if (sandbox !== undefined) samples.push(followed(sandbox, sample))
      }
      if (samples.length > 0) yield samples
    }
  }

  async #find(orgId: string, sandboxId: string, reach: KeyReach | undefined): Promise<Sandbox | undefined> {
    try {
      const sandbox = await this.#lifecycle.read(sandboxId, orgId)
      return reach === undefined || isWithin(reach, sandbox) ? sandbox : undefined
    } catch (error) {
      if (isServiceError(error, 'not_found')) return undefined
      throw error
    }
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

function followed({ id, memoryMb }: Sandbox, { at, cpuPercent, memoryBytes }: UsageSample): FollowedSample {
  return { sandboxId: id, at, cpuPercent, memoryBytes, memoryLimitBytes: memoryMb * mebibyte }
}

/** One of each few, the newest among them. Processor time is the mean of those that it stands for. */
function thinned(samples: readonly UsageSample[]): UsageSample[] {
  const step = Math.ceil(samples.length / followedPointsMax)
  if (step <= 1) return [...samples]
  const kept: UsageSample[] = []
  for (let end = samples.length; end > 0; end -= step) {
    const group = samples.slice(Math.max(0, end - step), end)
    const cpuPercent = group.reduce((sum, sample) => sum + sample.cpuPercent, 0) / group.length
    kept.push({ ...group.at(-1)!, cpuPercent: Math.round(cpuPercent * 10) / 10 })
  }
  return kept.reverse()
}
