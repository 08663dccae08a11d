import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { defined } from '../../lib/defined.ts'
import { exists } from '../exists.ts'
import { readNow } from '../read-now.ts'
import { type DiskBounds, type DiskRates, lineInV2, lineOf, ratesOfLine } from './disk-rates.ts'
import { CgroupHierarchy, type GroupLimits, periodUs, read, usedWithout } from './hierarchy.ts'
import { parseProcessors } from './processors.ts'
import type { WorkLimits } from './work-groups.ts'

/** Fields of `memory.stat`: memory that the kernel reclaims before it kills a process. */
const droppable = ['active_file', 'inactive_file', 'slab_reclaimable']

/** Version 2 (cgroup-v2.rst), alone or beside controllers of version 1. It kills processes for a memory limit below what they hold. */
export class CgroupV2 extends CgroupHierarchy {
  readonly usualWeight = 100
  protected readonly oomFile = 'memory.events'
  protected readonly freezer = { file: 'cgroup.freeze', thawed: '0', frozen: '1' }
  protected readonly freezes = true

  async countsSwap(): Promise<boolean | undefined> {
    if (!(await this.#has('memory'))) return undefined
    // The root has no limits. Any group with a memory limit shows whether there is one of swap.
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

  async makeWeighed(parent: string, group: string): Promise<boolean> {
    if (!(await this.#has('cpu'))) return false
    await mkdir(`${this.path}${group}`, { recursive: true })
    for (const above of ['', parent]) await this.#divides(above, 'cpu')
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

  weight(group: string): number | undefined {
    return this.numbersIn(group, 'cpu.weight')?.[0]
  }

  setWeight(group: string, weight: number): void {
    this.putNow(group, 'cpu.weight', String(weight))
    // The first with the cost model of the kernel, the second with the scheduler BFQ.
    this.putNow(group, 'io.weight', `default ${weight}`)
    this.putNow(group, 'io.bfq.weight', `default ${Math.min(1000, Math.max(1, Math.round(weight / 10)))}`)
  }

  async dividesProcessors(root: string): Promise<boolean> {
    return this.#dividesBelow(root, 'cpuset')
  }

  processorsBelow(root: string): number[] {
    return parseProcessors(readNow(`${this.path}${root}/cpuset.cpus.effective`) ?? '')
  }

  /** A container may not divide its own group, whose limit then holds. */
  protected async countsProcesses(): Promise<boolean> {
    return (await this.#has('pids')) && this.#divides('', 'pids')
  }

  /** Gives groups below `root` the files of a controller, which the OCI runtime needs to set limits. Returns whether that worked. */
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
