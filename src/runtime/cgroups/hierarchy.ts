import { writeFileSync } from 'node:fs'
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { defined } from '../../lib/defined.ts'
import { exists } from '../exists.ts'
import { readNow } from '../read-now.ts'
import {
  type DiskBounds,
  type DiskRates,
  lineInV2,
  lineOf,
  rateFilesInV1,
  rateNames,
  ratesOfLine,
} from './disk-rates.ts'
import { formatProcessors, parseProcessors } from './processors.ts'
import type { WorkLimits } from './work-groups.ts'

/** Fields of `memory.stat` (cgroup-v2.rst): memory that the kernel reclaims before it kills a process. */
const droppable = ['active_file', 'inactive_file', 'slab_reclaimable']
/** The same of version 1, of a group and those below it (cgroup-v1/memory.rst). */
const droppableInV1 = ['total_active_file', 'total_inactive_file']

/** The largest number of bytes in whole pages that version 1 can count, up to the size of a page. */
const noLimitInV1 = 2 ** 63 - 65_536

/** Of a group, in both versions. */
const processorsFile = 'cpuset.cpus'
const heldGroup = 'held'
/** The kernel's default. */
const periodUs = 100_000

/** What the kernel lets a group have; `Infinity` without a limit. */
export interface GroupLimits {
  memoryBytes: number
  /** Memory and swap together; absent where the kernel does not count swap. */
  memoryAndSwapBytes: number
  cpuQuotaUs: number
  cpuPeriodUs: number
  processes: number
}

/**
 * One mounted tree of control groups. Both versions of the kernel's interface have the same groups with other files; a group
 * need not be in each tree, nor does each tree have each controller: what it does not have is undefined there. Groups are
 * absolute paths within the tree.
 */
export abstract class CgroupHierarchy {
  /** Its mount point. */
  readonly path: string
  /** Files of a group: the one that counts its ends for memory, and the one that freezes and thaws it (for a dump `hostd/src/process/freeze.rs` freezes). */
  protected abstract readonly oomFile: string
  protected abstract readonly freezer: { file: string; thawed: string; frozen: string }

  constructor(path: string) {
    this.path = path
  }

  /** Whether limits of memory have one of swap beside them. */
  abstract countsSwap(): Promise<boolean | undefined>

  /** Bytes that a group holds and the kernel cannot take back; undefined too where it refuses a limit below that by itself. */
  abstract heldBytes(group: string): Promise<number | undefined>

  /** Processor time that a group and those below it have used, in microseconds. Like `usedBytes` it reads without yielding. */
  abstract cpuUs(group: string): number | undefined

  /** Bytes that a group holds without the cache of files, which the kernel takes back. */
  abstract usedBytes(group: string): number | undefined

  /** The limits of a group that this tree has. Reads without yielding. */
  abstract limits(group: string): Partial<GroupLimits>

  /** Makes groups below `root` ones whose use of disks can be bounded. False where this tree has no bounds, or does not let us. */
  abstract boundsDisks(root: string): Promise<boolean>

  /** The rates of a group on a disk; undefined where it has none. Reads without yielding. */
  abstract diskRates(group: string, device: string): DiskRates | undefined

  /** Bytes that a group has read from a disk and written to it, as they count for its rates. */
  abstract diskBytes(group: string, device: string): number | undefined

  /** Does nothing where the group has no rates. */
  abstract setDiskRates(group: string, bounds: DiskBounds): Promise<void>

  /** Makes groups below `root` ones that have processors of their own. False where this tree has none, or does not let us. */
  abstract dividesProcessors(root: string): Promise<boolean>

  /** The processors that groups below `root` may have: those online, as far as `root` and all groups above it have them. */
  abstract processorsBelow(root: string): number[]

  /** Whether groups can be frozen. */
  protected abstract readonly freezes: boolean

  /** Whether groups can limit processes. */
  protected abstract countsProcesses(): Promise<boolean>

  /** Makes a group whose processes and threads, with those in groups below it, are `most` at a time, where they are counted. */
  async limitProcesses(group: string, most: number): Promise<void> {
    if (!(await this.countsProcesses())) return
    // Not `recursive`, which never returns where the hierarchy itself is hidden behind another mount.
    await mkdir(`${this.path}${group}`).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error
    })
    await writeFile(`${this.path}${group}/pids.max`, String(most))
  }

  /** Makes a group below `parent` with those limits that this tree has. False: it has none. */
  abstract makeLimited(parent: string, group: string, limits: WorkLimits): Promise<boolean>

  /** Files of a group, each with its value. */
  protected async put(group: string, values: Record<string, string>): Promise<void> {
    for (const [file, value] of Object.entries(values)) {
      await writeFile(`${this.path}${group}/${file}`, value, { flag: 'r+' })
    }
  }

  /** The processors that a group has of its own; undefined when it has none. */
  processorsOf(group: string): number[] | undefined {
    const processors = parseProcessors(readNow(`${this.path}${group}/${processorsFile}`) ?? '')
    return processors.length > 0 ? processors : undefined
  }

  /** Moves the processes of a group below `root` to other processors. Undefined: all of `root`. False: there is no such group. */
  setProcessors(root: string, group: string, processors: readonly number[] | undefined): boolean {
    // A group with processes must have some: an empty list, which would follow `root`, is refused.
    const text = formatProcessors(processors ?? this.processorsBelow(root))
    try {
      writeFileSync(`${this.path}${group}/${processorsFile}`, `${text}\n`, { flag: 'r+' })
      return true
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false
      throw error
    }
  }

  /** The numbers in a file of a group: `max`, and what version 1 shows for it, as `Infinity`. Undefined without the file. */
  protected numbersIn(group: string, file: string): number[] | undefined {
    const words = readNow(`${this.path}${group}/${file}`)?.trim().split(' ')
    return words?.map((word) =>
      word === 'max' || Number(word) < 0 || Number(word) >= noLimitInV1 ? Infinity : Number(word),
    )
  }

  /** How many processes of a group the kernel has killed for memory. */
  async oomKills(group: string): Promise<number | undefined> {
    const text = await read(`${this.path}${group}/${this.oomFile}`)
    const count = /^oom_kill (\d+)$/m.exec(text ?? '')?.[1]
    return count === undefined ? undefined : Number(count)
  }

  /** A start thaws every running sandbox, of which hardly any is frozen. */
  async thaw(group: string): Promise<void> {
    if (!this.freezes) return
    const { file, thawed } = this.freezer
    const path = `${this.path}${group}/${file}`
    const state = readNow(path)?.trim()
    if (state !== undefined && state !== thawed) await writeFile(path, thawed)
    await this.#letGo(group)
  }

  /** Those that wait in a frozen group below for the hooks of a fork (`hold.rs`) come back, and go on. */
  async #letGo(group: string): Promise<void> {
    const held = `${this.path}${group}/${heldGroup}`
    const members = readNow(`${held}/cgroup.procs`)
    if (members === undefined) return
    // They stand still there, so none is added meanwhile.
    for (const pid of members.split('\n').filter(Boolean)) {
      await writeFile(`${this.path}${group}/cgroup.procs`, pid).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ESRCH') throw error
      })
    }
    // One whose last process is about to end goes with the sandbox.
    await rmdir(held).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT' && error.code !== 'EBUSY') throw error
    })
  }

  /** Returns before all of its processes stand still. Harmless for a frozen group, or where there is none. */
  async freeze(group: string): Promise<void> {
    if (!this.freezes) return
    const { file, thawed, frozen } = this.freezer
    const path = `${this.path}${group}/${file}`
    if (readNow(path)?.trim() === thawed) await writeFile(path, frozen, { flag: 'r+' })
  }
}

/** One or a few controllers of version 1 (cgroup-v1/*.rst). A limit of memory below what is held is refused with EBUSY. */
export class CgroupV1 extends CgroupHierarchy {
  protected readonly oomFile = 'memory.oom_control'
  protected readonly freezer = { file: 'freezer.state', thawed: 'THAWED', frozen: 'FROZEN' }
  protected readonly freezes = this.#has('freezer')

  async countsSwap(): Promise<boolean | undefined> {
    if (!(await exists(`${this.path}/memory.limit_in_bytes`))) return undefined
    return exists(`${this.path}/memory.memsw.limit_in_bytes`)
  }

  async makeLimited(_parent: string, group: string, limits: WorkLimits): Promise<boolean> {
    const values: Record<string, string> = {}
    if (this.#has('memory')) values['memory.limit_in_bytes'] = String(limits.memoryBytes)
    if (this.#has('cpu') && limits.processors !== undefined) {
      values['cpu.cfs_period_us'] = String(periodUs)
      values['cpu.cfs_quota_us'] = String(limits.processors * periodUs)
    }
    if (this.#has('pids')) values['pids.max'] = String(limits.processes)
    if (Object.keys(values).length === 0) return false
    await mkdir(`${this.path}${group}`, { recursive: true })
    await this.put(group, values)
    return true
  }

  async heldBytes(): Promise<undefined> {}

  cpuUs(group: string): number | undefined {
    if (!this.#has('cpuacct')) return undefined
    const nanoseconds = readNow(`${this.path}${group}/cpuacct.usage`)
    return nanoseconds === undefined ? undefined : Math.floor(Number(nanoseconds) / 1000)
  }

  usedBytes(group: string): number | undefined {
    if (!this.#has('memory')) return undefined
    return usedWithout(`${this.path}${group}/memory.usage_in_bytes`, `${this.path}${group}/memory.stat`, droppableInV1)
  }

  limits(group: string): Partial<GroupLimits> {
    return defined({
      memoryBytes: this.numbersIn(group, 'memory.limit_in_bytes')?.[0],
      memoryAndSwapBytes: this.numbersIn(group, 'memory.memsw.limit_in_bytes')?.[0],
      cpuQuotaUs: this.numbersIn(group, 'cpu.cfs_quota_us')?.[0],
      cpuPeriodUs: this.numbersIn(group, 'cpu.cfs_period_us')?.[0],
      processes: this.numbersIn(group, 'pids.max')?.[0],
    })
  }

  async boundsDisks(): Promise<boolean> {
    return this.#has('blkio') && (await exists(`${this.path}/${rateFilesInV1.readBytes}`))
  }

  diskRates(group: string, device: string): DiskRates | undefined {
    const rate = (file: string) => {
      const text = readNow(`${this.path}${group}/${file}`)
      return text === undefined ? undefined : Number(lineOf(text, device) ?? Infinity)
    }
    const [readBytes, writeBytes, reads, writes] = rateNames.map((name) => rate(rateFilesInV1[name]))
    if (readBytes === undefined || writeBytes === undefined || reads === undefined || writes === undefined)
      return undefined
    return { readBytes, writeBytes, reads, writes }
  }

  diskBytes(group: string, device: string): number | undefined {
    const lines = readNow(`${this.path}${group}/blkio.throttle.io_service_bytes`)?.split('\n')
    const counts = lines
      ?.map((line) => line.split(' '))
      .filter(([of, kind]) => of === device && /Read|Write/.test(kind ?? ''))
    return counts?.reduce((sum, [, , bytes]) => sum + Number(bytes), 0)
  }

  async setDiskRates(group: string, { device, rates }: DiskBounds): Promise<void> {
    if (this.diskRates(group, device) === undefined) return
    for (const name of rateNames) {
      await writeFile(`${this.path}${group}/${rateFilesInV1[name]}`, `${device} ${rates[name]}`, { flag: 'r+' })
    }
  }

  /** The OCI runtime gives each group that it makes the memory nodes of the one above. */
  async dividesProcessors(): Promise<boolean> {
    return this.#has('cpuset')
  }

  processorsBelow(root: string): number[] {
    // The OCI runtime gives processors to `root` with the first sandbox.
    for (const group of [root, '']) {
      const folder = `${this.path}${group}`
      const processors = parseProcessors(
        readNow(`${folder}/cpuset.effective_cpus`) ?? readNow(`${folder}/${processorsFile}`) ?? '',
      )
      if (processors.length > 0) return processors
    }
    return []
  }

  protected async countsProcesses(): Promise<boolean> {
    return this.#has('pids')
  }

  /** Only its name tells the controllers of a tree: its root has no limit of processes, for example. */
  #has(controller: string): boolean {
    return basename(this.path).split(',').includes(controller)
  }
}

/** Version 2 (cgroup-v2.rst), alone or beside controllers of version 1. A limit of memory below what is held kills for it. */
export class CgroupV2 extends CgroupHierarchy {
  protected readonly oomFile = 'memory.events'
  protected readonly freezer = { file: 'cgroup.freeze', thawed: '0', frozen: '1' }
  protected readonly freezes = true

  async countsSwap(): Promise<boolean | undefined> {
    if (!(await this.#has('memory'))) return undefined
    // The root has no limits; any group with one of memory shows whether there is one of swap.
    for (const name of await readdir(this.path)) {
      if (await exists(`${this.path}/${name}/memory.max`)) return exists(`${this.path}/${name}/memory.swap.max`)
    }
    return exists('/proc/swaps')
  }

  async makeLimited(parent: string, group: string, limits: WorkLimits): Promise<boolean> {
    if (!(await this.#has('memory'))) return false
    await mkdir(`${this.path}${group}`, { recursive: true })
    for (const controller of ['memory', 'cpu', 'pids']) {
      for (const above of ['', parent]) await this.#divides(above, controller)
    }
    await this.put(group, {
      'memory.max': String(limits.memoryBytes),
      ...(limits.processors === undefined ? {} : { 'cpu.max': `${limits.processors * periodUs} ${periodUs}` }),
      'pids.max': String(limits.processes),
    })
    return true
  }

  async heldBytes(group: string): Promise<number | undefined> {
    return this.usedBytes(group)
  }

  cpuUs(group: string): number | undefined {
    const microseconds = /^usage_usec (\d+)$/m.exec(readNow(`${this.path}${group}/cpu.stat`) ?? '')?.[1]
    return microseconds === undefined ? undefined : Number(microseconds)
  }

  usedBytes(group: string): number | undefined {
    return usedWithout(`${this.path}${group}/memory.current`, `${this.path}${group}/memory.stat`, droppable)
  }

  limits(group: string): Partial<GroupLimits> {
    const memoryBytes = this.numbersIn(group, 'memory.max')?.[0]
    const swapBytes = this.numbersIn(group, 'memory.swap.max')?.[0]
    const [cpuQuotaUs, cpuPeriodUs] = this.numbersIn(group, 'cpu.max') ?? []
    return defined({
      memoryBytes,
      memoryAndSwapBytes: memoryBytes === undefined || swapBytes === undefined ? undefined : memoryBytes + swapBytes,
      cpuQuotaUs,
      cpuPeriodUs,
      processes: this.numbersIn(group, 'pids.max')?.[0],
    })
  }

  async boundsDisks(root: string): Promise<boolean> {
    // A kernel may have the controller without its bounds.
    return (await this.#dividesBelow(root, 'io')) && (await exists(`${this.path}${root}/io.max`))
  }

  diskRates(group: string, device: string): DiskRates | undefined {
    const text = readNow(`${this.path}${group}/io.max`)
    return text === undefined ? undefined : ratesOfLine(lineOf(text, device))
  }

  diskBytes(group: string, device: string): number | undefined {
    const text = readNow(`${this.path}${group}/io.stat`)
    if (text === undefined) return undefined
    const counts = [...(lineOf(text, device) ?? '').matchAll(/\b[rw]bytes=(\d+)/g)]
    return counts.reduce((sum, [, bytes]) => sum + Number(bytes), 0)
  }

  async setDiskRates(group: string, bounds: DiskBounds): Promise<void> {
    if (this.diskRates(group, bounds.device) === undefined) return
    await writeFile(`${this.path}${group}/io.max`, lineInV2(bounds), { flag: 'r+' })
  }

  async dividesProcessors(root: string): Promise<boolean> {
    return this.#dividesBelow(root, 'cpuset')
  }

  processorsBelow(root: string): number[] {
    return parseProcessors(readNow(`${this.path}${root}/cpuset.cpus.effective`) ?? '')
  }

  /** A container may not divide what it has; its own limit holds then. */
  protected async countsProcesses(): Promise<boolean> {
    return (await this.#has('pids')) && this.#divides('', 'pids')
  }

  /** Groups below `root` have the files of the controller from here on, without which the OCI runtime starts nothing that is to have them. */
  async #dividesBelow(root: string, controller: string): Promise<boolean> {
    if (!(await this.#has(controller)) || !(await this.#divides('', controller))) return false
    const made = await mkdir(`${this.path}${root}`).then(
      () => true,
      (error: NodeJS.ErrnoException) => error.code === 'EEXIST',
    )
    return made && this.#divides(root, controller)
  }

  #divides(group: string, controller: string): Promise<boolean> {
    return writeFile(`${this.path}${group}/cgroup.subtree_control`, `+${controller}`, { flag: 'r+' }).then(
      () => true,
      () => false,
    )
  }

  async #has(controller: string): Promise<boolean> {
    const controllers = (await read(`${this.path}/cgroup.controllers`)) ?? ''
    return controllers.trim().split(/\s+/).includes(controller)
  }
}

function read(file: string): Promise<string | undefined> {
  return readFile(file, 'utf8').catch(() => undefined)
}

/** What a group uses without the fields `names` of its `memory.stat`. */
function usedWithout(usageFile: string, statFile: string, names: readonly string[]): number | undefined {
  const usage = readNow(usageFile)
  const stat = usage === undefined ? undefined : readNow(statFile)
  if (stat === undefined) return undefined
  const fields = stat.split('\n').map((line) => line.split(' '))
  const cache = fields.reduce((sum, [name = '', bytes]) => sum + (names.includes(name) ? Number(bytes) : 0), 0)
  return Math.max(0, Number(usage) - cache)
}
