import { setImmediate as yieldToOthers } from 'node:timers/promises'
import type { Log } from '../lib/log.ts'
import type { Consumed, RuntimeDriver, SandboxShare } from './ports/runtime-driver.ts'

const lookIntervalMs = 1000
/** Reads between which other work of the server goes on. */
const readsAtOnce = 16
/** The share of one processor, and the bytes of the disk each second, from which on a sandbox counts as busy. */
const busyCpuShare = 0.02
const busyDiskBytes = 64 * 1024
/** The weight of an organisation in the terms of the driver, whose highest is ten times the highest of an organisation. */
const driverWeight = 10
const diskBytesMin = 64 * 1024
/** A limit from here on is none. */
const unlimitedBytes = 1024 ** 4

/** The limits of an organisation that its running sandboxes have together. */
export interface OrganisationShare {
  weight: number
  diskBytesPerSecondMax: number
  networkBytesPerSecondMax: number
}

export interface FairSharesOptions {
  driver: Pick<RuntimeDriver, 'shares'>
  /** Ids of the sandboxes that run. */
  running: () => readonly string[]
  orgOf: (sandboxId: string) => Promise<string | undefined>
  shareOf: (orgId: string) => OrganisationShare
  log: Log
  /** Milliseconds of a monotonic clock. */
  now?: () => number
}

interface Measured extends Consumed {
  orgId: string
  atMs: number
}

/**
 * Divides the share of each organisation among its sandboxes, so that one with fifty busy ones has no more of the host than one with a single
 * one. Those that are idle have no part: each gets what it would have beside the busy ones, so that it answers at once, and from the next look
 * on it counts.
 *
 * A control group for each organisation would do the same in the kernel. But a warm sandbox runs before it has an organisation, and neither a
 * group nor memory that is charged to it can be moved to another parent.
 *
 *     closed ── open ──► open ── close ──► closed
 */
export class FairShares {
  readonly #options: Required<FairSharesOptions>
  #measured = new Map<string, Measured>()
  #looking: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(options: FairSharesOptions) {
    this.#options = { now: () => performance.now(), ...options }
  }

  open(): void {
    if (this.#options.driver.shares === undefined) return
    this.#timer = setInterval(() => {
      // A look that takes long, as on a busy host, is not begun twice.
      this.#looking ??= this.look().finally(() => (this.#looking = undefined))
    }, lookIntervalMs).unref()
  }

  async close(): Promise<void> {
    clearInterval(this.#timer)
    await this.#looking
  }

  /** Looks at all running sandboxes once and sets their shares. */
  async look(): Promise<void> {
    const { running, orgOf, driver, log } = this.#options
    try {
      const byOrganisation = new Map<string, Look[]>()
      const measured = new Map<string, Measured>()
      let reads = 0
      for (const id of running()) {
        const orgId = this.#measured.get(id)?.orgId ?? (await orgOf(id))
        if (orgId === undefined) continue
        const look = this.#lookAt(id, orgId, measured)
        byOrganisation.set(orgId, [...(byOrganisation.get(orgId) ?? []), look])
        reads += 1
        if (reads % readsAtOnce === 0) await yieldToOthers()
      }
      this.#measured = measured
      await driver.shares?.set(this.#divide(byOrganisation))
    } catch (error) {
      log.warn({ err: error }, 'the shares of organisations could not be set')
    }
  }

  #lookAt(id: string, orgId: string, measured: Map<string, Measured>): Look {
    const { driver, now } = this.#options
    const consumed = driver.shares?.consumed(id)
    const before = this.#measured.get(id)
    if (consumed === undefined) return { id, usesCpu: false, usesDisk: false }
    const atMs = now()
    measured.set(id, { ...consumed, orgId, atMs })
    if (before === undefined || atMs <= before.atMs) return { id, usesCpu: false, usesDisk: false }
    const seconds = (atMs - before.atMs) / 1000
    return {
      id,
      usesCpu: (consumed.cpuUs - before.cpuUs) / 1e6 / seconds >= busyCpuShare,
      usesDisk: (consumed.diskBytes - before.diskBytes) / seconds >= busyDiskBytes,
    }
  }

  #divide(byOrganisation: ReadonlyMap<string, readonly Look[]>): Map<string, SandboxShare> {
    const shares = new Map<string, SandboxShare>()
    for (const [orgId, looks] of byOrganisation) {
      const { weight, diskBytesPerSecondMax, networkBytesPerSecondMax } = this.#options.shareOf(orgId)
      const ofCpu = looks.filter(({ usesCpu, usesDisk }) => usesCpu || usesDisk).length
      const ofDisk = looks.filter(({ usesDisk }) => usesDisk).length
      for (const { id, usesCpu, usesDisk } of looks) {
        const sharers = usesCpu || usesDisk ? ofCpu : ofCpu + 1
        const diskSharers = usesDisk ? ofDisk : ofDisk + 1
        shares.set(id, {
          weight: Math.max(1, Math.round((weight * driverWeight) / sharers)),
          diskBytesPerSecond:
            diskBytesPerSecondMax >= unlimitedBytes
              ? unlimitedBytes
              : Math.max(diskBytesMin, Math.floor(diskBytesPerSecondMax / diskSharers)),
          network:
            networkBytesPerSecondMax >= unlimitedBytes
              ? undefined
              : { group: orgId, bytesPerSecond: networkBytesPerSecondMax },
        })
      }
    }
    return shares
  }
}

interface Look {
  id: string
  usesCpu: boolean
  usesDisk: boolean
}
