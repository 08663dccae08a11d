import { ServiceError, isServiceError } from '../errors.ts'
import { assertInput, assertInteger } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import type { RuntimeDriver } from './ports/runtime-driver.ts'
import type { SandboxLimits } from './quota.ts'
import type { Sandbox, SandboxChange, Sizes } from './sandbox.ts'

export type ScalingService = Pick<Scaling, 'scale' | 'limit' | 'limitFromInside' | 'setAutoscale' | 'setLock'>

/** An absent value or 0 leaves a size as it is; memory alone sets CPU too. */
export interface WantedSizes {
  memoryMb?: number | undefined
  /** 100 is one CPU. */
  cpuPercent?: number | undefined
}

export interface WantedAutoscale {
  enabled: boolean
  minMemoryMb?: number | undefined
  maxMemoryMb?: number | undefined
}

interface ScalingContext {
  lifecycle: Lifecycle
  driver: Pick<RuntimeDriver, 'usage'>
  limits: SandboxLimits
}

type SizeChange = Sizes & Pick<SandboxChange, 'isAutoscaled'>
type SettingsChange = Pick<SandboxChange, 'isAutoscaled' | 'isScalingLocked' | 'autoscaleMinMb' | 'autoscaleMaxMb'>

const mebibyte = 1024 * 1024
const memoryMbPerCpu = 4096
/** With a hundredth of a CPU a guest would answer too late. */
const cpuPercentMin = 10
/** What a sandbox keeps above the memory that it needs now. */
const oomFloorFactor = 1.05

/**
 * Memory and CPU of sandboxes. Clients may ask for any size within the bounds of `ATOLL_LIMITS`; one CPU comes with each 4 GiB, and none
 * is taken unless they say so. Every method throws `not_found`, `sandbox_stopped`, and `conflict` for one in `error`.
 */
export class Scaling {
  readonly #context: ScalingContext

  constructor(context: ScalingContext) {
    this.#context = context
  }

  /**
   * Changes memory, with CPU in step, wakes the sandbox, and turns autoscale off. Throws `invalid_request`, `scaling_locked`, `oom_floor`
   * when it is to shrink below what it needs, and what a wake throws.
   */
  async scale(
    orgId: string,
    sandboxId: string,
    memoryMb: number,
  ): Promise<{ sandbox: Sandbox; wasAutoscaled: boolean }> {
    const { memoryMbMin, memoryMbMax } = this.#context.limits
    assertInteger(memoryMb, 'memoryMB', memoryMbMin, memoryMbMax)
    let wasAutoscaled = false
    const sandbox = await this.#change(orgId, sandboxId, (now) => {
      wasAutoscaled = now.isAutoscaled
      return { ...this.#sizesOf(now, { memoryMb }), isAutoscaled: false }
    })
    return { sandbox, wasAutoscaled }
  }

  /** Like `scale`, but changes CPU too, and autoscale stays on. */
  async limit(orgId: string, sandboxId: string, wanted: WantedSizes): Promise<Sandbox> {
    this.#assertWanted(wanted)
    return await this.#change(orgId, sandboxId, (now) => this.#sizesOf(now, wanted))
  }

  /** Like `limit`, for a caller inside the sandbox, whose call is no activity. Throws `conflict` while the sandbox does not run. */
  async limitFromInside(sandboxId: string, wanted: WantedSizes): Promise<Sandbox> {
    this.#assertWanted(wanted)
    return await this.#resize(sandboxId, (now) => {
      if (now.status !== 'running') throw new ServiceError('conflict', `sandbox ${sandboxId} does not run`)
      return this.#sizesOf(now, wanted)
    })
  }

  /** A change by the autoscaler. Does nothing once the sandbox is no longer autoscaled. */
  async follow(sandboxId: string, memoryMb: number): Promise<Sandbox> {
    return await this.#context.lifecycle.resize(sandboxId, async (now) => {
      if (now.status !== 'running' || !now.isAutoscaled || now.isScalingLocked) return undefined
      const change = this.#sizesOf(now, { memoryMb })
      await this.#assertFits(now, change)
      return change
    })
  }

  /** Throws `invalid_request`, and `scaling_locked` when enabling. Disabling keeps the bounds. */
  async setAutoscale(orgId: string, sandboxId: string, wanted: WantedAutoscale): Promise<Sandbox> {
    const { memoryMbMin, memoryMbMax } = this.#context.limits
    const { enabled, minMemoryMb = 0, maxMemoryMb = 0 } = wanted
    if (enabled) {
      assertInteger(minMemoryMb, 'minMemoryMB', memoryMbMin, memoryMbMax)
      assertInteger(maxMemoryMb, 'maxMemoryMB', memoryMbMin, memoryMbMax)
      assertInput(minMemoryMb <= maxMemoryMb, 'minMemoryMB', 'must not be above maxMemoryMB')
    }
    const bounds = { autoscaleMinMb: minMemoryMb, autoscaleMaxMb: maxMemoryMb }
    return await this.#set(orgId, sandboxId, (now) => {
      if (enabled) assertUnlocked(now)
      return { isAutoscaled: enabled, ...(enabled ? bounds : {}) }
    })
  }

  /** A locked sandbox keeps its sizes; a change under way is completed first. Locking turns autoscale off for good. */
  async setLock(orgId: string, sandboxId: string, isLocked: boolean): Promise<Sandbox> {
    const change = { isScalingLocked: isLocked, ...(isLocked ? { isAutoscaled: false } : {}) }
    return await this.#set(orgId, sandboxId, () => change)
  }

  async #change(orgId: string, sandboxId: string, sizes: (now: Sandbox) => SizeChange): Promise<Sandbox> {
    const { lifecycle } = this.#context
    const sandbox = await lifecycle.read(sandboxId, orgId)
    assertUnlocked(sandbox)
    const resize = () => this.#resize(sandboxId, sizes)
    // Only a running sandbox tells what it needs, so wake one that shrinks. Growth comes before the wake, whose memory may need it.
    if (sandbox.status !== 'hibernated' || sizes(sandbox).memoryMb < sandbox.memoryMb) {
      return await lifecycle.use(orgId, sandboxId, resize)
    }
    await resize()
    return await lifecycle.use(orgId, sandboxId, async (_guest, awake) => awake)
  }

  async #resize(sandboxId: string, sizes: (now: Sandbox) => SizeChange): Promise<Sandbox> {
    let shrinks = false
    let requestedMb = 0
    try {
      return await this.#context.lifecycle.resize(sandboxId, async (now) => {
        assertUnlocked(now)
        const change = sizes(now)
        requestedMb = change.memoryMb
        shrinks = now.status === 'running' && change.memoryMb < now.memoryMb
        await this.#assertFits(now, change)
        return change
      })
    } catch (error) {
      // The sandbox has taken more since the measurement, or its saved memory was not all back then.
      if (!shrinks || !isServiceError(error, 'conflict')) throw error
      const floor = await this.#measureFloor(sandboxId)
      throw new ServiceError('oom_floor', error.message, {
        cause: error,
        details: { details: { requestedMB: requestedMb, ...floor } },
      })
    }
  }

  #sizesOf(now: Sandbox, { memoryMb, cpuPercent }: WantedSizes): Sizes {
    const { cpuCountMax } = this.#context.limits
    const inStep = memoryMb ? Math.min(cpuCountMax, Math.ceil(memoryMb / memoryMbPerCpu)) : 0
    return {
      memoryMb: memoryMb || now.memoryMb,
      cpuCount: cpuPercent ? cpuPercent / 100 : Math.max(now.cpuCount, inStep),
    }
  }

  #assertWanted({ memoryMb = 0, cpuPercent = 0 }: WantedSizes): void {
    const { memoryMbMin, memoryMbMax, cpuCountMax } = this.#context.limits
    if (memoryMb !== 0) assertInteger(memoryMb, 'memoryMB', memoryMbMin, memoryMbMax)
    if (cpuPercent !== 0) assertInteger(cpuPercent, 'cpuPercent', cpuPercentMin, cpuCountMax * 100)
  }

  async #assertFits(now: Sandbox, { memoryMb }: Sizes): Promise<void> {
    if (now.status !== 'running' || memoryMb >= now.memoryMb) return
    const floor = await this.#measureFloor(now.id)
    if (memoryMb >= floor.floorMB) return
    throw new ServiceError('oom_floor', `the processes of the sandbox need ${floor.floorMB} MB`, {
      details: { details: { requestedMB: memoryMb, ...floor } },
    })
  }

  async #measureFloor(sandboxId: string): Promise<{ floorMB: number; workingSetBytes: number }> {
    const workingSetBytes = (await this.#context.driver.usage(sandboxId))?.memoryBytes ?? 0
    return { floorMB: Math.ceil((workingSetBytes * oomFloorFactor) / mebibyte), workingSetBytes }
  }

  async #set(orgId: string, sandboxId: string, decide: (now: Sandbox) => SettingsChange): Promise<Sandbox> {
    const { lifecycle } = this.#context
    await lifecycle.read(sandboxId, orgId)
    return await lifecycle.changeAlone(sandboxId, decide)
  }
}

function assertUnlocked({ id, isScalingLocked }: Sandbox): void {
  if (isScalingLocked) throw new ServiceError('scaling_locked', `the size of sandbox ${id} is locked`)
}
