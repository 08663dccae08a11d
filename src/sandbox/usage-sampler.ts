import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from '../lib/log.ts'
import type { RuntimeDriver, SandboxUsage } from './ports/runtime-driver.ts'

export const sampleIntervalMs = 15_000
export const samplesKeptMs = 3_600_000
const samplesMax = samplesKeptMs / sampleIntervalMs
/** Each look takes its share of the sandboxes, so that hundreds of them never cause a pause. */
const lookIntervalMs = 250
/** Shortest time over which processor time says something. */
const spanMsMin = 1000

export interface UsageSample extends Omit<SandboxUsage, 'cpuUs' | 'processCount'> {
  at: Date
  /** 100 is one processor in full. */
  cpuPercent: number
}

export interface UsageSamplerOptions {
  driver: Pick<RuntimeDriver, 'usage'>
  /** Ids of the sandboxes that run. */
  running: () => readonly string[]
  /** Called with each measurement. */
  onMeasured?: (sandboxId: string, usage: SandboxUsage) => void
  log: Log
}

type SampleListener = (sandboxId: string, sample: UsageSample) => void

interface Series {
  /** Six numbers a sample, the oldest first: hundreds of sandboxes have 240 samples each. NaN is an unknown size. */
  values: number[]
  dueMs: number
  /** When the sandbox last ran. */
  seenMs: number
  isMeasuring: boolean
  /** The measurement from which the next one counts processor time. */
  last: { atMs: number; cpuUs: number; cpuPercent: number } | undefined
}

const columns = 6

/**
 * The usage of running sandboxes in the last hour, in memory alone. The first measurement after a start or a wake is no sample: from it the
 * processor time of the first sample counts.
 *
 *     closed ── open ──► open ── close ──► closed
 */
export class UsageSampler {
  readonly #options: UsageSamplerOptions
  readonly #listeners = new Map<string, Set<SampleListener>>()
  readonly #series = new Map<string, Series>()
  #timer: NodeJS.Timeout | undefined

  constructor(options: UsageSamplerOptions) {
    this.#options = options
  }

  open(): void {
    this.#timer = setInterval(() => this.#look(), lookIntervalMs).unref()
  }

  close(): void {
    clearInterval(this.#timer)
    this.#series.clear()
  }

  /** To be called for a deleted sandbox. Hibernated ones keep their samples for the hour. */
  forget(sandboxId: string): void {
    this.#series.delete(sandboxId)
  }

  /** The oldest first. */
  readSamples(sandboxId: string): UsageSample[] {
    const values = this.#series.get(sandboxId)?.values ?? []
    const fromMs = Date.now() - samplesKeptMs
    const samples: UsageSample[] = []
    for (let start = 0; start < values.length; start += columns) {
      const [at = 0, cpuPercent = 0, memoryBytes = 0, diskBytes = 0, received = 0, sent = 0] = values.slice(
        start,
        start + columns,
      )
      if (at <= fromMs) continue
      samples.push({
        at: new Date(at),
        cpuPercent,
        memoryBytes,
        diskBytes: Number.isNaN(diskBytes) ? undefined : diskBytes,
        networkReceivedBytes: received,
        networkSentBytes: sent,
      })
    }
    return samples
  }

  /** Calls the listener with each new sample of a sandbox, until the returned function is called. */
  subscribe(sandboxId: string, listener: SampleListener): () => void {
    const listeners = this.#listeners.get(sandboxId) ?? new Set()
    this.#listeners.set(sandboxId, listeners.add(listener))
    return () => {
      listeners.delete(listener)
      if (listeners.size === 0 && this.#listeners.get(sandboxId) === listeners) this.#listeners.delete(sandboxId)
    }
  }

  /** The usage of a sandbox now, with processor time since the last sample. Undefined while it does not run. */
  async readNow(sandboxId: string): Promise<(UsageSample & { processCount: number }) | undefined> {
    const usage = await this.#options.driver.usage(sandboxId)
    if (usage === undefined) return undefined
    const atMs = Date.now()
    const cpuPercent = percentOf(this.#series.get(sandboxId)?.last, usage, atMs)
    const { cpuUs: _cpuUs, ...used } = usage
    return { at: new Date(atMs), cpuPercent, ...used }
  }

  /** The usage of a sandbox, with processor time of the next `spanMs`. Undefined when it does not run until then. */
  async measureDuring(
    sandboxId: string,
    spanMs: number,
  ): Promise<{ cpuPercent: number; usage: SandboxUsage } | undefined> {
    const { driver } = this.#options
    const before = await driver.usage(sandboxId)
    const beforeMs = performance.now()
    await sleep(spanMs)
    const usage = await driver.usage(sandboxId)
    if (before === undefined || usage === undefined) return undefined
    const usedMs = Math.max(0, usage.cpuUs - before.cpuUs) / 1000
    return { cpuPercent: (100 * usedMs) / (performance.now() - beforeMs), usage }
  }

  #look(): void {
    const now = Date.now()
    const running = this.#options.running()
    for (const id of running) {
      const series = this.#series.get(id)
      if (series === undefined) {
        this.#series.set(id, { values: [], dueMs: now, seenMs: now, isMeasuring: false, last: undefined })
      } else {
        series.seenMs = now
      }
    }
    for (const [id, series] of this.#series) {
      if (series.seenMs === now) continue
      series.last = undefined
      if (now - series.seenMs >= samplesKeptMs) this.#series.delete(id)
    }
    const share = Math.ceil((running.length * lookIntervalMs) / sampleIntervalMs) + 1
    const due = [...this.#series]
      // A time further in the future is due too: the system's clock was set back.
      .filter(([, { seenMs, dueMs }]) => seenMs === now && (dueMs <= now || dueMs > now + 2 * sampleIntervalMs))
      .toSorted(([, one], [, other]) => one.dueMs - other.dueMs)
    for (const [id, series] of due.slice(0, share)) {
      const nextMs = series.dueMs + sampleIntervalMs
      series.dueMs = nextMs > now && nextMs <= now + sampleIntervalMs ? nextMs : now + sampleIntervalMs
      if (!series.isMeasuring) void this.#measure(id, series)
    }
  }

  async #measure(id: string, series: Series): Promise<void> {
    series.isMeasuring = true
    try {
      const usage = await this.#options.driver.usage(id)
      const atMs = Date.now()
      const { last } = series
      if (usage === undefined) {
        series.last = undefined
        return
      }
      this.#options.onMeasured?.(id, usage)
      const cpuPercent = percentOf(last, usage, atMs)
      series.last = { atMs, cpuUs: usage.cpuUs, cpuPercent }
      if (last === undefined) return
      const { memoryBytes, diskBytes = Number.NaN, networkReceivedBytes, networkSentBytes } = usage
      series.values.push(atMs, cpuPercent, memoryBytes, diskBytes, networkReceivedBytes, networkSentBytes)
      if (series.values.length > samplesMax * columns) series.values.splice(0, columns)
      const { cpuUs: _cpuUs, processCount: _processCount, ...used } = usage
      const sample = { at: new Date(atMs), cpuPercent, ...used }
      for (const listener of this.#listeners.get(id) ?? []) listener(id, sample)
    } catch (error) {
      // Leave a gap in the samples; calls that use the sandbox report what is wrong.
      this.#options.log.debug({ err: error, sandboxId: id }, 'the usage of a sandbox could not be measured')
    } finally {
      series.isMeasuring = false
    }
  }
}

function percentOf(last: Series['last'], { cpuUs }: SandboxUsage, atMs: number): number {
  if (last === undefined) return 0
  const spanMs = atMs - last.atMs
  if (spanMs < spanMsMin) return last.cpuPercent
  // A lower counter is that of a sandbox that was started anew meanwhile.
  const usedUs = cpuUs >= last.cpuUs ? cpuUs - last.cpuUs : cpuUs
  return Math.round(usedUs / spanMs) / 10
}
