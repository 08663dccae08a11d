import { writeFileSync } from 'node:fs'
import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { readNow } from '../read-now.ts'
import type { DiskBounds, DiskRates } from './disk-rates.ts'
import { formatProcessors, parseProcessors } from './processors.ts'
import type { WorkLimits } from './work-groups.ts'

/** The largest number of bytes in whole pages that version 1 can count, up to the size of a page. */
const noLimitInV1 = 2 ** 63 - 65_536

/** The file of a group's processors in both versions. */
export const processorsFile = 'cpuset.cpus'
const heldGroup = 'held'
/** The kernel's default. */
export const periodUs = 100_000

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
  /** Files of a group: one counts kills for memory, one freezes and thaws (for a dump `hostd/src/process/freeze.rs` freezes). */
  protected abstract readonly oomFile: string
  protected abstract readonly freezer: { file: string; thawed: string; frozen: string }

  constructor(path: string) {
    this.path = path
  }

  /** Whether groups have a limit of swap beside that of memory. */
  abstract countsSwap(): Promise<boolean | undefined>

  /** Bytes that a group holds and the kernel cannot reclaim; undefined too where the kernel itself refuses a lower limit. */
  abstract heldBytes(group: string): Promise<number | undefined>

  /** Processor time that a group and those below it have used, in microseconds. Like `usedBytes` it reads without yielding. */
  abstract cpuUs(group: string): number | undefined

  /** Bytes that a group holds without the cache of files, which the kernel takes back. */
  abstract usedBytes(group: string): number | undefined

  /** The limits of a group that this tree has. Reads without yielding. */
  abstract limits(group: string): Partial<GroupLimits>

  /** Lets groups below `root` have bounds of their use of disks. False where this tree has none, or does not let us. */
  abstract boundsDisks(root: string): Promise<boolean>

  /** The rates of a group on a disk; undefined where it has none. Reads without yielding. */
  abstract diskRates(group: string, device: string): DiskRates | undefined

  /** Bytes that a group has read from a disk and written to it, as they count for its rates. */
  abstract diskBytes(group: string, device: string): number | undefined

  /** Sets the rates of a group. Does nothing where it can have none. */
  abstract setDiskRates(group: string, bounds: DiskBounds): Promise<void>

  /** What a new group weighs. */
  abstract readonly usualWeight: number

  /** The weight of a group among its siblings; undefined where this tree weighs no processors. Reads without yielding. */
  abstract weight(group: string): number | undefined

  /** Weighs a group for processors and disks, from 1 to 10 000, in the files that this tree has. Writes without yielding. */
  abstract setWeight(group: string, weight: number): void

  /** Lets groups below `root` have processors of their own. False where this tree has none, or does not let us. */
  abstract dividesProcessors(root: string): Promise<boolean>

  /** The processors that groups below `root` may have: those online that `root` and all groups above it have. */
  abstract processorsBelow(root: string): number[]

  /** Whether groups can be frozen. */
  protected abstract readonly freezes: boolean

  /** Whether groups can limit processes. */
  protected abstract countsProcesses(): Promise<boolean>

  /** Makes a group and limits its processes and threads, with those in groups below it, to `most`, where they are counted. */
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

  /** Makes a group below `parent` whose processors are weighed against those of its siblings. False: this tree weighs none. */
  abstract makeWeighed(parent: string, group: string): Promise<boolean>

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

  /** Writes a file of a group, if it has it. */
  protected putNow(group: string, file: string, value: string): void {
    try {
      writeFileSync(`${this.path}${group}/${file}`, value, { flag: 'r+' })
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
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

  /** Thaws a group. Reads first: a server's start thaws every running sandbox, and hardly any is frozen. */
  async thaw(group: string): Promise<void> {
    if (!this.freezes) return
    const { file, thawed } = this.freezer
    const path = `${this.path}${group}/${file}`
    const state = readNow(path)?.trim()
    if (state !== undefined && state !== thawed) await writeFile(path, thawed)
    await this.#letGo(group)
  }

  /** Moves processes that wait in a frozen group below for the hooks of a fork (`hold.rs`) back, so that they go on. */
  async #letGo(group: string): Promise<void> {
    const held = `${this.path}${group}/${heldGroup}`
    const members = readNow(`${held}/cgroup.procs`)
    if (members === undefined) return
    // Frozen processes make no others, so the list is complete.
    for (const pid of members.split('\n').filter(Boolean)) {
      await writeFile(`${this.path}${group}/cgroup.procs`, pid).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ESRCH') throw error
      })
    }
    // A group whose last process is about to end is removed with the sandbox.
    await rmdir(held).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT' && error.code !== 'EBUSY') throw error
    })
  }

  /** Freezes a group. Returns before all processes stand still. Harmless for a frozen group, or where there is none. */
  async freeze(group: string): Promise<void> {
    if (!this.freezes) return
    const { file, thawed, frozen } = this.freezer
    const path = `${this.path}${group}/${file}`
    if (readNow(path)?.trim() === thawed) await writeFile(path, frozen, { flag: 'r+' })
  }
}

export function read(file: string): Promise<string | undefined> {
  return readFile(file, 'utf8').catch(() => undefined)
}

/** Bytes that a group uses, less the fields `names` of its `memory.stat`. */
export function usedWithout(usageFile: string, statFile: string, names: readonly string[]): number | undefined {
  const usage = readNow(usageFile)
  const stat = usage === undefined ? undefined : readNow(statFile)
  if (stat === undefined) return undefined
  const fields = stat.split('\n').map((line) => line.split(' '))
  const cache = fields.reduce((sum, [name = '', bytes]) => sum + (names.includes(name) ? Number(bytes) : 0), 0)
  return Math.max(0, Number(usage) - cache)
}
