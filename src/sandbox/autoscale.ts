import type { Log } from '../lib/log.ts'
import type { SandboxUsage } from './ports/runtime-driver.ts'
import type { Sandbox } from './sandbox.ts'

const lookIntervalMs = 30_000
const tiersMb = [1024, 4096, 8192, 16_384, 32_768, 65_536] as const
const mebibyte = 1024 * 1024

const upSamples = 2
const upShare = 0.75
const upPauseMs = 60_000
/** Means over one, five and fifteen minutes. */
const downSamples = [2, 10, 30] as const
const downShare = 0.25
const downPauseMs = 300_000
const samplesMax = 30

/** What is known of one sandbox, in memory alone: a restart of the server begins anew. */
export interface AutoscaleHistory {
  /** Shares of its memory in use, one of each look, the oldest first. */
  shares: number[]
  /** When anybody last changed its memory, or a change failed. */
  changedMs: number
  /** As of the last look. */
  memoryMb: number
}

export type Autoscaled = Pick<Sandbox, 'memoryMb' | 'autoscaleMinMb' | 'autoscaleMaxMb'>

/**
 * The memory that a sandbox should get now; undefined leaves it as it is. It goes up to the lower bound, up by one tier when memory is short,
 * and down by one after a quarter of an hour of little use, unless it would be short again at once. Both bounds are tiers of their sandbox.
 */
export function nextMemoryMb(
  { shares, changedMs }: Pick<AutoscaleHistory, 'shares' | 'changedMs'>,
  { memoryMb, autoscaleMinMb, autoscaleMaxMb }: Autoscaled,
  nowMs: number,
): number | undefined {
  const between = tiersMb.filter((tier) => tier > autoscaleMinMb && tier < autoscaleMaxMb)
  const steps = [autoscaleMinMb, ...between, autoscaleMaxMb]
  const sinceMs = nowMs - changedMs
  if (memoryMb < autoscaleMinMb && sinceMs >= upPauseMs) return autoscaleMinMb
  if (sinceMs >= upPauseMs && shares.length >= upSamples && mean(shares, upSamples) > upShare) {
    return steps.find((step) => step > memoryMb)
  }
  const isQuiet = shares.length >= samplesMax && downSamples.every((count) => mean(shares, count) < downShare)
  const below = steps.findLast((step) => step < memoryMb)
  if (below === undefined || !isQuiet || sinceMs < downPauseMs) return undefined
  // A quarter of 4096 MiB fills 1024 MiB: the sandbox would grow again at once.
  return (mean(shares, upSamples) * memoryMb) / below <= upShare ? below : undefined
}

function mean(shares: readonly number[], count: number): number {
  return shares.slice(-count).reduce((sum, share) => sum + share, 0) / count
}

export interface AutoscalerOptions {
  /** Ids of the sandboxes that run. */
  running: () => readonly string[]
  sandbox: (sandboxId: string) => Promise<Sandbox | undefined>
  usage: (sandboxId: string) => Promise<SandboxUsage | undefined>
  /** Gives a sandbox this memory if it still runs and is autoscaled. Returns its record. */
  change: (sandboxId: string, memoryMb: number) => Promise<Pick<Sandbox, 'memoryMb'>>
  log: Log
  /** Milliseconds of a monotonic clock. */
  now?: () => number
}

/**
 * Looks at all running sandboxes each half minute and changes the memory of the autoscaled ones. After a failed change it pauses as after
 * one that succeeded.
 *
 *     closed ── open ──► open ── close ──► closed
 */
export class Autoscaler {
  readonly #options: Required<AutoscalerOptions>
  readonly #histories = new Map<string, AutoscaleHistory>()
  /** Sandboxes that are being looked at: a change may take longer than the interval. */
  readonly #looks = new Map<string, Promise<void>>()
  #timer: NodeJS.Timeout | undefined

  constructor(options: AutoscalerOptions) {
    this.#options = { now: () => performance.now(), ...options }
  }

  open(): void {
    this.#timer = setInterval(() => void this.look(), lookIntervalMs).unref()
  }

  /** Waits for changes under way. */
  async close(): Promise<void> {
    clearInterval(this.#timer)
    await Promise.all(this.#looks.values())
  }

  /** Looks at all sandboxes once; resolves when the changes are made. */
  async look(): Promise<void> {
    const running = new Set(this.#options.running())
    for (const id of this.#histories.keys()) if (!running.has(id)) this.#histories.delete(id)
    const looks = [...running].filter((id) => !this.#looks.has(id)).map((id) => this.#start(id))
    await Promise.all(looks)
  }

  #start(id: string): Promise<void> {
    const look = this.#lookAt(id)
      .catch((error: unknown) => {
        this.#options.log.warn({ err: error, sandboxId: id }, 'a sandbox could not be autoscaled')
      })
      .finally(() => this.#looks.delete(id))
    this.#looks.set(id, look)
    return look
  }

  async #lookAt(id: string): Promise<void> {
    const { now, usage, change, log } = this.#options
    const sandbox = await this.#options.sandbox(id)
    if (sandbox?.status !== 'running' || !sandbox.isAutoscaled || sandbox.isScalingLocked) {
      this.#histories.delete(id)
      return
    }
    const used = await usage(id)
    if (used === undefined) return
    const history = this.#histories.get(id) ?? { shares: [], changedMs: -Infinity, memoryMb: sandbox.memoryMb }
    this.#histories.set(id, history)
    if (history.memoryMb !== sandbox.memoryMb) Object.assign(history, { changedMs: now(), memoryMb: sandbox.memoryMb })
    history.shares.push(used.memoryBytes / (sandbox.memoryMb * mebibyte))
    if (history.shares.length > samplesMax) history.shares.shift()
    const memoryMb = nextMemoryMb(history, sandbox, now())
    if (memoryMb === undefined) return
    try {
      const changed = await change(id, memoryMb)
      history.memoryMb = changed.memoryMb
      if (changed.memoryMb !== memoryMb) return
      log.info({ sandboxId: id, fromMb: sandbox.memoryMb, toMb: memoryMb }, 'a sandbox was autoscaled')
    } finally {
      history.changedMs = now()
    }
  }
}
