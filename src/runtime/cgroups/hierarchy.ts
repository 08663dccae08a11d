import { writeFileSync } from 'node:fs'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { exists } from '../exists.ts'
import { readNow } from '../read-now.ts'
import { formatProcessors, parseProcessors } from './processors.ts'

/** Fields of `memory.stat` (cgroup-v2.rst): memory that the kernel reclaims before it kills a process. */
const droppable = ['active_file', 'inactive_file', 'slab_reclaimable']
/** The same of version 1, of a group and those below it (cgroup-v1/memory.rst). */
const droppableInV1 = ['total_active_file', 'total_inactive_file']

/** Of a group, in both versions. */
const processorsFile = 'cpuset.cpus'

/**
 * One mounted tree of control groups. Both versions of the kernel's interface have the same groups with other files; a group
 * need not be in each tree, nor does each tree have each controller: what it does not have is undefined there. Groups are
 * absolute paths within the tree.
 */
export abstract class CgroupHierarchy {
  /** Its mount point. */
  readonly path: string
  /** Files of a group: the one that counts its ends for memory, and the one that thaws it (`hostd/src/process/freeze.rs` freezes). */
  protected abstract readonly oomFile: string
  protected abstract readonly freezer: { file: string; thawed: string }

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
  }
}

/** One or a few controllers of version 1 (cgroup-v1/*.rst). A limit of memory below what is held is refused with EBUSY. */
export class CgroupV1 extends CgroupHierarchy {
  protected readonly oomFile = 'memory.oom_control'
  protected readonly freezer = { file: 'freezer.state', thawed: 'THAWED' }
  protected readonly freezes = this.#has('freezer')

  async countsSwap(): Promise<boolean | undefined> {
    if (!(await exists(`${this.path}/memory.limit_in_bytes`))) return undefined
    return exists(`${this.path}/memory.memsw.limit_in_bytes`)
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
  protected readonly freezer = { file: 'cgroup.freeze', thawed: '0' }
  protected readonly freezes = true

  async countsSwap(): Promise<boolean | undefined> {
    if (!(await this.#has('memory'))) return undefined
    // The root has no limits; any group with one of memory shows whether there is one of swap.
    for (const name of await readdir(this.path)) {
      if (await exists(`${this.path}/${name}/memory.max`)) return exists(`${this.path}/${name}/memory.swap.max`)
    }
    return exists('/proc/swaps')
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

  async dividesProcessors(root: string): Promise<boolean> {
    if (!(await this.#has('cpuset')) || !(await this.#divides('', 'cpuset'))) return false
    const made = await mkdir(`${this.path}${root}`).then(
      () => true,
      (error: NodeJS.ErrnoException) => error.code === 'EEXIST',
    )
    // Groups below have the file from here on, and without it the OCI runtime starts nothing that is to have processors.
    return made && this.#divides(root, 'cpuset')
  }

  processorsBelow(root: string): number[] {
    return parseProcessors(readNow(`${this.path}${root}/cpuset.cpus.effective`) ?? '')
  }

  /** A container may not divide what it has; its own limit holds then. */
  protected async countsProcesses(): Promise<boolean> {
    return (await this.#has('pids')) && this.#divides('', 'pids')
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
