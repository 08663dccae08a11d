import { isServiceError } from '../../errors.ts'
import type { Difference, SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { rateNames } from '../cgroups/disk-rates.ts'
import { type DiskOwner, diskOf } from '../disk/index.ts'
import { resourcesOf } from '../oci/container-config.ts'
import type { LimitFiles } from './limit-files.ts'
import type { Machine } from './machine.ts'
import type { Shares } from './shares.ts'

const mebibyte = 1024 * 1024
/** Memory that `align` leaves above what processes hold, as nobody is told that a limit is too small. */
const spareFactor = 1.05

interface LimitsOptions extends Pick<Machine, 'lazy' | 'names' | 'runtime' | 'cgroups' | 'traits' | 'pool'> {
  files: LimitFiles
  shares: Pick<Shares, 'boundsOf'>
}

/** What sandboxes may use: sets it in the control group, the quota of the disk, and the files that show it inside. */
export class Limits {
  readonly #options: LimitsOptions

  constructor(options: LimitsOptions) {
    this.#options = options
  }

  /** Sets the limits of the control group. Throws `conflict` when the processes hold more memory than the limit. */
  async limitProcesses(spec: SandboxSpec): Promise<void> {
    const { lazy, names, runtime, cgroups, traits, shares } = this.#options
    // Pages that have not been loaded yet count too.
    await lazy.loaded(spec.id)
    const resources = resourcesOf(spec, traits)
    const group = names.cgroup(spec.id)
    await cgroups.assertMemoryFits(group, resources.memory.limit)
    await runtime.update(spec.id, resources)
    // After `update`, with which runc writes the rates of the start again.
    const disk = shares.boundsOf(spec.id)
    if (disk !== undefined) await cgroups.setDiskRates(group, disk)
    // Last, and not by the runtime, which may change processors before it refuses the memory.
    cgroups.processors?.change(group, spec.cpuCount)
  }

  limitDisk(owner: DiskOwner, diskMb: number): Promise<void> {
    return this.#options.pool.limit(diskOf(owner), diskMb * mebibyte)
  }

  /** Writes the limits of a spec to the files that show them in its running sandbox. */
  show(spec: SandboxSpec): Promise<void> {
    return this.#options.files.write(spec)
  }

  /** The limits of `RuntimeDriver.align`. Returns the memory that the sandbox may use afterwards. */
  async align(owner: DiskOwner, spec: SandboxSpec): Promise<{ differences: Difference[]; memoryMb: number }> {
    const { pool, files } = this.#options
    const differences = this.#wrongInGroup(spec)
    const inForce = { ...spec, memoryMb: differences.length === 0 ? spec.memoryMb : await this.#bringTo(spec) }
    const memory = differences.find(({ what }) => what === 'memory')
    if (memory !== undefined) memory.isMended = inForce.memoryMb === spec.memoryMb
    const limitBytes = spec.diskMb * mebibyte
    const diskBytes = await pool.alignLimit(diskOf(owner), limitBytes)
    if (diskBytes !== undefined) differences.push(mended('disk', `${diskBytes} bytes`, `${limitBytes} bytes`))
    const wrong = files.findWrong(inForce)
    if (wrong.had.length > 0) {
      await files.write(inForce)
      differences.push(mended('limits that it sees', wrong.had.join(', '), wrong.wanted.join(', ')))
    }
    return { differences, memoryMb: inForce.memoryMb }
  }

  /** Sets the limits. A memory limit that would be too small is not set: the sandbox keeps its own. Returns the memory in force. */
  async #bringTo(spec: SandboxSpec): Promise<number> {
    const { cgroups, names } = this.#options
    const group = names.cgroup(spec.id)
    const hasBytes = cgroups.limits(group).memoryBytes ?? Infinity
    const neededBytes = () => (cgroups.usage(group)?.memoryBytes ?? 0) * spareFactor
    try {
      if (hasBytes <= spec.memoryMb * mebibyte || neededBytes() <= spec.memoryMb * mebibyte) {
        await this.limitProcesses(spec)
        return spec.memoryMb
      }
    } catch (error) {
      // The sandbox has taken more memory since, or not all of its saved memory was back.
      if (!isServiceError(error, 'conflict')) throw error
    }
    const keptMb = Math.ceil((Number.isFinite(hasBytes) ? hasBytes : neededBytes()) / mebibyte)
    await this.limitProcesses({ ...spec, memoryMb: keptMb })
    return keptMb
  }

  /** In what the control group differs from the limits of a sandbox. */
  #wrongInGroup(spec: SandboxSpec): Difference[] {
    const { cgroups, names, traits, shares } = this.#options
    const group = names.cgroup(spec.id)
    const has = cgroups.limits(group)
    const { memory, cpu, pids } = resourcesOf(spec, traits)
    const differences: Difference[] = []
    const compare = (
      what: Difference['what'],
      unit: string,
      had: (number | undefined)[],
      wanted: (number | undefined)[],
    ) => {
      const isWrong = wanted.some(
        (value, index) => value !== undefined && had[index] !== undefined && had[index] !== value,
      )
      const words = (values: (number | undefined)[]) =>
        `${values.filter((value) => value !== undefined).join(' of ')} ${unit}`
      if (isWrong) differences.push(mended(what, words(had), words(wanted)))
    }
    compare('memory', 'bytes', [has.memoryBytes], [memory.limit])
    // Only swap differs, after a change of memory that was cut off.
    if (differences.length === 0) compare('memory', 'bytes with swap', [has.memoryAndSwapBytes], [memory.swap])
    compare('processor time', 'µs', [has.cpuQuotaUs, has.cpuPeriodUs], [cpu.quota, cpu.period])
    compare('processes', '', [has.processes], [pids.limit])
    const disk = shares.boundsOf(spec.id)
    if (disk !== undefined) {
      const { device, rates } = disk
      const inForce = cgroups.diskRates(group, device)
      const words = rateNames.map((name) => inForce?.[name])
      compare(
        'disk rates',
        'bytes read, bytes written, reads, writes each second',
        words,
        rateNames.map((name) => rates[name]),
      )
    }
    if (cgroups.processors?.has(group, spec.cpuCount) === false) {
      differences.push(mended('processors', 'others', `for ${spec.cpuCount}`))
    }
    return differences
  }
}

function mended(what: Difference['what'], had: string, wanted: string): Difference {
  return { what, had, wanted, isMended: true }
}
