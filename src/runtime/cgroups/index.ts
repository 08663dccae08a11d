import { mkdir, readdir, readFile, rmdir } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import { send } from '../process.ts'
import { readNow } from '../read-now.ts'
import type { DiskBounds, DiskRates } from './disk-rates.ts'
import { CgroupV1 } from './v1.ts'
import { CgroupV2 } from './v2.ts'
import type { CgroupHierarchy, GroupLimits } from './hierarchy.ts'
import { Processors } from './processors.ts'
import type { WorkLimits } from './work-groups.ts'

const removePauseMs = 5
/** How long the processes of a group may take to end. */
const endingMs = 30_000
/** Share of the kernel's processes that all sandboxes of a server may have together; the rest is the host's. */
const processShare = 0.75
const root = '/sys/fs/cgroup'

export interface GroupUsage {
  cpuUs: number
  memoryBytes: number
  processCount: number
}

/** The control groups of this host, over all its hierarchies: of version 1, of version 2, or of both (hybrid). */
export class Cgroups {
  readonly #hierarchies: readonly CgroupHierarchy[]
  /** The processors of the groups of sandboxes. Undefined before `divideProcessors`, and where groups cannot have their own. */
  processors: Processors | undefined

  constructor(hierarchies: readonly CgroupHierarchy[]) {
    this.#hierarchies = hierarchies
  }

  static async find(): Promise<Cgroups> {
    const found = new Map<string, CgroupHierarchy>()
    for (const line of (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')) {
      const version = / - cgroup(2?) /.exec(line)?.[1]
      const path = line.split(' ')[4] ?? ''
      if (version === undefined || !(path === root || path.startsWith(`${root}/`))) continue
      found.set(path, version === '2' ? new CgroupV2(path) : new CgroupV1(path))
    }
    return new Cgroups([...found.values()])
  }

  /** Whether the kernel counts swap in memory limits; runc fails to set a limit on it where it does not. */
  async countsSwap(): Promise<boolean> {
    return (await this.#first((hierarchy) => hierarchy.countsSwap())) ?? false
  }

  /** Makes a group and limits it, with all groups below it, to a share of the kernel's processes and threads, where those are counted. */
  async limitProcesses(group: string): Promise<void> {
    const settings = ['/proc/sys/kernel/pid_max', '/proc/sys/kernel/threads-max']
    const most = Math.min(...(await Promise.all(settings.map((path) => readFile(path, 'utf8')))).map(Number))
    for (const hierarchy of this.#hierarchies) {
      await hierarchy.limitProcesses(group, Math.floor(most * processShare))
    }
  }

  /** Makes a group below `parent` with limits. Returns its folders in the hierarchies that have some of these limits. */
  async makeLimited(parent: string, group: string, limits: WorkLimits): Promise<string[]> {
    const folders: string[] = []
    for (const hierarchy of this.#hierarchies) {
      if (await hierarchy.makeLimited(parent, group, limits)) folders.push(`${hierarchy.path}${group}`)
    }
    return folders
  }

  /**
   * Makes a group below `parent`, which weighs a part of what a new group does. Returns its folders in the hierarchies that weigh processors; only
   * there a process that joins it is weighed, and nothing else of it changes.
   */
  async makeWeighed(parent: string, group: string, part: number): Promise<string[]> {
    const folders: string[] = []
    for (const hierarchy of this.#hierarchies) {
      if (await hierarchy.makeWeighed(parent, group)) folders.push(`${hierarchy.path}${group}`)
    }
    this.weighDown(parent, part)
    return folders
  }

  /** Sets `processors` if groups below `parent` can have processors of their own, with those that existing groups have. */
  async divideProcessors(parent: string): Promise<void> {
    for (const hierarchy of this.#hierarchies) {
      if (!(await hierarchy.dividesProcessors(parent))) continue
      const groups = {
        allowed: () => hierarchy.processorsBelow(parent),
        set: (group: string, processors: readonly number[] | undefined) =>
          hierarchy.setProcessors(parent, group, processors),
      }
      const all = groups.allowed().length
      const given = new Map<string, number[]>()
      for (const name of await this.children(parent)) {
        const processors = hierarchy.processorsOf(`${parent}/${name}`) ?? []
        if (processors.length > 0 && processors.length < all) given.set(`${parent}/${name}`, processors)
      }
      this.processors = new Processors(groups, given)
      return
    }
  }

  /** Lets groups below `parent` have bounds of their use of disks. False where the kernel has none. */
  async boundDisks(parent: string): Promise<boolean> {
    for (const hierarchy of this.#hierarchies) if (await hierarchy.boundsDisks(parent)) return true
    return false
  }

  /** The rates of a group on a disk (`major:minor`), read without yielding; undefined where it has none. */
  diskRates(group: string, device: string): DiskRates | undefined {
    return firstOf(this.#hierarchies, (hierarchy) => hierarchy.diskRates(group, device))
  }

  /** Bytes that a group has read from a disk and written to it, as they count for its rates. Version 1 counts only a group with rates. */
  diskBytes(group: string, device: string): number | undefined {
    return firstOf(this.#hierarchies, (hierarchy) => hierarchy.diskBytes(group, device))
  }

  /** Whether writes of the page cache, which the kernel makes later, count for the rates of a group: in version 2 alone. */
  chargesWriteback(group: string): boolean {
    return this.#hierarchies.some(({ path }) => readNow(`${path}${group}/io.max`) !== undefined)
  }

  async setDiskRates(group: string, bounds: DiskBounds): Promise<void> {
    for (const hierarchy of this.#hierarchies) await hierarchy.setDiskRates(group, bounds)
  }

  /** The weight of a group among its siblings, from 1 to 10 000; undefined where none can be set. Reads without yielding. */
  weight(group: string): number | undefined {
    return firstOf(this.#hierarchies, (hierarchy) => hierarchy.weight(group))
  }

  /** Weighs a group for processors and disks. Does nothing for a group that has ended. Writes without yielding. */
  setWeight(group: string, weight: number): void {
    for (const hierarchy of this.#hierarchies) hierarchy.setWeight(group, weight)
  }

  /** Weighs a group as a part of what a new group weighs, if it does not yet. */
  weighDown(group: string, part: number): void {
    for (const hierarchy of this.#hierarchies) {
      const weight = Math.round(hierarchy.usualWeight * part)
      const has = hierarchy.weight(group)
      if (has !== undefined && has !== weight) hierarchy.setWeight(group, weight)
    }
  }

  /** Processor time of a group, read without yielding. */
  cpuUs(group: string): number | undefined {
    const counts = this.#hierarchies.map((hierarchy) => hierarchy.cpuUs(group) ?? -1)
    const most = Math.max(-1, ...counts)
    return most < 0 ? undefined : most
  }

  /** Makes a group where sandboxes see control groups of version 2: CRIU mounts something on it. */
  async makeShown(group: string): Promise<void> {
    for (const hierarchy of this.#hierarchies) {
      if (hierarchy.path === root) await mkdir(`${root}${group}`, { recursive: true })
    }
  }

  /** Names of the groups below a group, over all hierarchies. */
  async children(group: string): Promise<string[]> {
    const names = new Set<string>()
    for (const { path } of this.#hierarchies) {
      const entries = await readdir(`${path}${group}`, { withFileTypes: true }).catch(() => [])
      for (const entry of entries) if (entry.isDirectory()) names.add(entry.name)
    }
    return [...names]
  }

  /** What a group uses, read without yielding. Undefined when there is no such group, or no hierarchy counts. */
  usage(group: string): GroupUsage | undefined {
    // A group of version 2 beside one of version 1 counts only the processes that were put into it.
    const cpuUs = this.cpuUs(group) ?? -1
    const memoryBytes = Math.max(-1, ...this.#hierarchies.map((hierarchy) => hierarchy.usedBytes(group) ?? -1))
    if (cpuUs < 0 || memoryBytes < 0) return undefined
    let processCount = 0
    for (const file of this.memberFiles(group)) {
      processCount = readNow(file)?.match(/\n/g)?.length ?? 0
      if (processCount > 0) break
    }
    return { cpuUs, memoryBytes, processCount }
  }

  /** The limits in force for a group, read without yielding. A limit that no hierarchy has is absent. */
  limits(group: string): Partial<GroupLimits> {
    return Object.assign({}, ...this.#hierarchies.map((hierarchy) => hierarchy.limits(group))) as Partial<GroupLimits>
  }

  /** How many processes of a group the kernel has killed for memory. */
  async oomKills(group: string): Promise<number> {
    return (await this.#first((hierarchy) => hierarchy.oomKills(group))) ?? 0
  }

  /**
   * Throws `conflict` when a group holds more memory than a new limit, for which version 2 would kill its processes. Version 1 refuses
   * such a limit itself, so it is not asked here.
   */
  async assertMemoryFits(group: string, limitBytes: number): Promise<void> {
    const heldBytes = await this.#first((hierarchy) => hierarchy.heldBytes(group))
    if (heldBytes === undefined || heldBytes <= limitBytes) return
    throw new ServiceError('conflict', 'the processes of the sandbox hold more memory than that')
  }

  /** The processes of a group. */
  async members(group: string): Promise<number[]> {
    for (const file of this.memberFiles(group)) {
      const pids = await pidsIn(file)
      if (pids.length > 0) return pids
    }
    return []
  }

  /** Paths of the files that list the processes of a group, whether it exists yet or not. */
  memberFiles(group: string): string[] {
    return this.#hierarchies.map(({ path }) => `${path}${group}/cgroup.procs`)
  }

  /** Thaws a group in every freezer. Harmless when it is not frozen. */
  async thaw(group: string): Promise<void> {
    for (const hierarchy of this.#hierarchies) {
      await hierarchy.thaw(group)
    }
  }

  /** Freezes a group in every freezer. Harmless when it is frozen, or ends meanwhile. */
  async freeze(group: string): Promise<void> {
    for (const hierarchy of this.#hierarchies) {
      await hierarchy.freeze(group).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT' && error.code !== 'ENODEV') throw error
      })
    }
  }

  /** Kills all processes of a group and waits until they are gone. Harmless when there is none. */
  async empty(group: string): Promise<void> {
    for (const end = performance.now() + endingMs; performance.now() < end; await sleep(removePauseMs)) {
      const folders = this.#hierarchies.map(({ path }) => `${path}${group}`)
      const left = await Promise.all(folders.map(killMembers))
      if (!left.includes(true)) return
    }
    throw new Error(`control group ${group} cannot be emptied`)
  }

  /**
   * Kills the processes of a group but one, also those that they make meanwhile: they are frozen first. The one stands still for that moment.
   * Returns whether the others are gone.
   */
  async killAllBut(group: string, kept: number): Promise<boolean> {
    const others = async () => (await this.members(group)).filter((pid) => pid !== kept)
    const end = performance.now() + endingMs
    do {
      if ((await others()).length === 0) return true
      const killed = new Set<number>()
      await this.freeze(group)
      try {
        // One that was in the middle of a fork stands still after it. Frozen ones end with the thaw, in version 2 at once.
        for (let found = await others(); found.length > 0; found = (await others()).filter((pid) => !killed.has(pid))) {
          for (const pid of found) {
            send(pid, 'SIGKILL')
            killed.add(pid)
          }
          await sleep(removePauseMs)
        }
      } finally {
        await this.thaw(group)
      }
      // Thousands need a while on a busy machine, and none ends while it is frozen.
      while (performance.now() < end && (await others()).some((pid) => killed.has(pid))) await sleep(removePauseMs)
    } while (performance.now() < end)
    return false
  }

  /** Kills all processes in a group and below it and removes the groups. Harmless when there is none. */
  async remove(group: string): Promise<void> {
    await Promise.all(this.#hierarchies.map(({ path }) => removeTree(`${path}${group}`)))
    this.processors?.release(group)
    this.processors?.balance()
  }

  /** The first answer of a hierarchy that has one. */
  async #first<Answer>(ask: (hierarchy: CgroupHierarchy) => Promise<Answer | undefined>): Promise<Answer | undefined> {
    for (const hierarchy of this.#hierarchies) {
      const answer = await ask(hierarchy)
      if (answer !== undefined) return answer
    }
    return undefined
  }
}

function firstOf<Answer>(
  hierarchies: readonly CgroupHierarchy[],
  ask: (hierarchy: CgroupHierarchy) => Answer | undefined,
): Answer | undefined {
  for (const hierarchy of hierarchies) {
    const answer = ask(hierarchy)
    if (answer !== undefined) return answer
  }
  return undefined
}

async function removeTree(folder: string): Promise<void> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => undefined)
  if (entries === undefined) return
  for (const entry of entries) if (entry.isDirectory()) await removeTree(`${folder}/${entry.name}`)
  for (const end = performance.now() + endingMs; performance.now() < end; await sleep(removePauseMs)) {
    try {
      await rmdir(folder)
      return
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code
      if (code === 'ENOENT') return
      if (code !== 'EBUSY') throw error
    }
    await killMembers(folder)
  }
  throw new Error(`control group ${folder} cannot be emptied`)
}

/** Kills the processes in a folder. Returns whether there were any. */
async function killMembers(folder: string): Promise<boolean> {
  const pids = await pidsIn(`${folder}/cgroup.procs`)
  for (const pid of pids) {
    if (pid > 1 && pid !== process.pid) send(pid, 'SIGKILL')
  }
  return pids.length > 0
}

async function pidsIn(file: string): Promise<number[]> {
  const text = await readFile(file, 'utf8').catch(() => '')
  return text.split('\n').filter(Boolean).map(Number)
}
