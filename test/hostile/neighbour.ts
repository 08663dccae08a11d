import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import type { Target } from './target.ts'

const aloneForMs = 5_000
/** Shorter waits are the noise of a machine with two processors, on which the attacker works too. */
const floorMs = 50
const factor = 2

/** The calls of a tenant beside the attacker, and how long they take. */
export class Neighbour {
  readonly #worker: Worker
  readonly #all: number[] = []
  /** The 99th percentile without an attack. */
  aloneMs = 0

  constructor({ neighbour, neighbourId }: Target) {
    const workerData = { url: `${neighbour.origin}/api/sandboxes/${neighbourId}`, key: neighbour.key }
    this.#worker = new Worker(new URL('neighbour-worker.ts', import.meta.url), { workerData })
    this.#worker.unref()
  }

  async measureAlone(): Promise<void> {
    // The first calls load code.
    await this.measured()
    await sleep(aloneForMs)
    this.aloneMs = (await this.measured()).p99Ms
    this.#all.length = 0
  }

  /** Of the calls since the last time. */
  async measured(): Promise<{ p99Ms: number; worstMs: number }> {
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- that of a window has one
    this.#worker.postMessage('tell')
    const [times] = (await once(this.#worker, 'message')) as [number[]]
    this.#all.push(...times)
    return { p99Ms: percentile(times, 0.99), worstMs: percentile(times, 1) }
  }

  /** Of all calls beside attacks. */
  judged(): { p99Ms: number; isBearable: boolean } {
    const p99Ms = percentile(this.#all, 0.99)
    return { p99Ms, isBearable: p99Ms <= Math.max(floorMs, factor * this.aloneMs) }
  }

  async stop(): Promise<void> {
    await this.#worker.terminate()
  }
}

/** Milliseconds, in tenths. */
function percentile(times: readonly number[], share: number): number {
  const sorted = times.toSorted((one, other) => one - other)
  const found = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
  return Math.round(found * 10) / 10
}
