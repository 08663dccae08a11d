import type { Consumed, SandboxShare, SandboxShares } from '../../sandbox/ports/runtime-driver.ts'
import type { DiskBounds } from '../cgroups/disk-rates.ts'
import type { NetworkLimit } from '../network/limits.ts'
import type { Machine } from './machine.ts'

/**
 * All sandboxes together, as a part of what any other program of the host weighs, such as the server, its database and hostd: what every call
 * goes through must not wait for what one sandbox computes. Nothing is lost while those rest.
 */
export const weightOfAll = 1 / 4

type SharesOptions = Pick<Machine, 'names' | 'cgroups' | 'traits' | 'network' | 'inventory'>

/**
 * What each running sandbox may take of what all share: weights of its control group, rates of the disk below those of the host, and the limit
 * of its network group. Nothing of it is recorded. A start of a sandbox or of the server begins without, and the next `set` makes it complete.
 */
export class Shares implements SandboxShares {
  readonly #options: SharesOptions
  #shares: ReadonlyMap<string, SandboxShare> = new Map()

  constructor(options: SharesOptions) {
    this.#options = options
  }

  consumed(sandboxId: string): Consumed | undefined {
    const { names, cgroups, traits } = this.#options
    const group = names.cgroup(sandboxId)
    const cpuUs = cgroups.cpuUs(group)
    if (cpuUs === undefined) return undefined
    const diskBytes = traits.disk && cgroups.diskBytes(group, traits.disk.device)
    return { cpuUs, diskBytes: diskBytes ?? 0 }
  }

  async set(shares: ReadonlyMap<string, SandboxShare>): Promise<void> {
    const { names, cgroups, traits, network, inventory } = this.#options
    const earlier = this.#shares
    cgroups.weighDown(names.cgroupRoot, weightOfAll)
    // From here on a change of limits sets the rates that hold now.
    this.#shares = shares
    const limits = new Map<number, NetworkLimit>()
    const failures: unknown[] = []
    for (const [id, share] of shares) {
      const record = inventory.sandboxes.get(id)
      if (record === undefined) continue
      if (share.network !== undefined) limits.set(record.slot, share.network)
      try {
        const group = names.cgroup(id)
        // A later start has the weight of a new group.
        if (cgroups.weight(group) !== share.weight) cgroups.setWeight(group, share.weight)
        const isOther = earlier.get(id)?.diskBytesPerSecond !== share.diskBytesPerSecond
        const bounds = this.boundsOf(id)
        const isStarted = bounds && cgroups.diskRates(group, bounds.device)?.writeBytes !== bounds.rates.writeBytes
        if (traits.disk && bounds && (isOther || isStarted)) await cgroups.setDiskRates(group, bounds)
      } catch (error) {
        failures.push(error)
      }
    }
    await network.limit(limits).catch((error: unknown) => failures.push(error))
    if (failures.length > 0) throw new AggregateError(failures, 'not all shares could be set')
  }

  /** The rates of the disk of a sandbox; undefined where the kernel bounds none. */
  boundsOf(sandboxId: string): DiskBounds | undefined {
    const { disk } = this.#options.traits
    const most = this.#shares.get(sandboxId)?.diskBytesPerSecond
    if (disk === undefined || most === undefined) return disk
    const { rates } = disk
    const [readBytes, writeBytes] = [Math.min(rates.readBytes, most), Math.min(rates.writeBytes, most)]
    return { ...disk, rates: { ...rates, readBytes, writeBytes } }
  }
}
