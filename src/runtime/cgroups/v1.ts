import { mkdir, writeFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { defined } from '../../lib/defined.ts'
import { exists } from '../exists.ts'
import { readNow } from '../read-now.ts'
import { type DiskBounds, type DiskRates, lineOf, rateFilesInV1, rateNames } from './disk-rates.ts'
import { CgroupHierarchy, type GroupLimits, periodUs, processorsFile, usedWithout } from './hierarchy.ts'
import { parseProcessors } from './processors.ts'
import type { WorkLimits } from './work-groups.ts'

/** Fields of `memory.stat`, of a group and those below it: memory that the kernel reclaims before it kills a process. */
const droppable = ['total_active_file', 'total_inactive_file']

/** A weight of 1000 is the 1024 shares of a new group, which other programs of the host have. */
const sharesOfWeight = 1.024

/** One or a few controllers of version 1 (cgroup-v1/*.rst). It refuses a memory limit below what processes hold with EBUSY. */
export class CgroupV1 extends CgroupHierarchy {
  readonly usualWeight = 1000
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

  async makeWeighed(_parent: string, group: string): Promise<boolean> {
    if (!this.#has('cpu')) return false
    await mkdir(`${this.path}${group}`, { recursive: true })
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
    return usedWithout(`${this.path}${group}/memory.usage_in_bytes`, `${this.path}${group}/memory.stat`, droppable)
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

  weight(group: string): number | undefined {
    if (!this.#has('cpu')) return undefined
    const shares = this.numbersIn(group, 'cpu.shares')?.[0]
    return shares === undefined ? undefined : Math.round(shares / sharesOfWeight)
  }

  setWeight(group: string, weight: number): void {
    if (this.#has('cpu')) this.putNow(group, 'cpu.shares', String(Math.max(2, Math.round(weight * sharesOfWeight))))
    if (!this.#has('blkio')) return
    const ofDisk = String(Math.min(1000, Math.max(10, Math.round(weight / 10))))
    this.putNow(group, 'blkio.bfq.weight', ofDisk)
    this.putNow(group, 'blkio.weight', ofDisk)
  }

  /** The OCI runtime gives each group that it makes the memory nodes of its parent. */
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
