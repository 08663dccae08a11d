import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { exists } from '../exists.ts'

/** Fields of `memory.stat` (cgroup-v2.rst): memory that the kernel reclaims before it kills a process. */
const droppable = ['active_file', 'inactive_file', 'slab_reclaimable']

/**
 * One mounted tree of control groups. Both versions of the kernel's interface have the same groups with other files; a group
 * need not be in each tree, nor does each tree have each controller: what it does not have is undefined there. Groups are
 * absolute paths within the tree.
 */
export abstract class CgroupHierarchy {
  /** Its mount point. */
  readonly path: string

  constructor(path: string) {
    this.path = path
  }

  /** Whether limits of memory have one of swap beside them. */
  abstract countsSwap(): Promise<boolean | undefined>
  /** Makes a group whose processes and threads, with those in groups below it, are `most` at a time, where they are counted. */
  abstract limitProcesses(group: string, most: number): Promise<void>
  /** How many processes of a group the kernel has killed for memory. */
  abstract oomKills(group: string): Promise<number | undefined>
  /** Bytes that a group holds and the kernel cannot take back; undefined too where it refuses a limit below that by itself. */
  abstract heldBytes(group: string): Promise<number | undefined>
  /** Thaws a group, if it has a freezer; `hostd/src/process/freeze.rs` freezes. */
  abstract thaw(group: string): Promise<void>

  protected async limit(group: string, processes: number): Promise<void> {
    await makeGroup(`${this.path}${group}`)
    await writeFile(`${this.path}${group}/pids.max`, String(processes))
  }

  protected async writeIfThere(file: string, text: string): Promise<void> {
    if (await exists(file)) await writeFile(file, text)
  }
}

/** One or a few controllers of version 1 (cgroup-v1/*.rst). A limit of memory below what is held is refused with EBUSY. */
export class CgroupV1 extends CgroupHierarchy {
  async countsSwap(): Promise<boolean | undefined> {
    if (!(await exists(`${this.path}/memory.limit_in_bytes`))) return undefined
    return exists(`${this.path}/memory.memsw.limit_in_bytes`)
  }

  async limitProcesses(group: string, most: number): Promise<void> {
    // Only its name tells the controllers of a tree: its root has no limit of processes.
    if (this.path.split('/').at(-1)?.split(',').includes('pids')) await this.limit(group, most)
  }

  oomKills(group: string): Promise<number | undefined> {
    return oomKillsIn(`${this.path}${group}/memory.oom_control`)
  }

  heldBytes(): Promise<undefined> {
    return Promise.resolve(undefined)
  }

  thaw(group: string): Promise<void> {
    return this.writeIfThere(`${this.path}${group}/freezer.state`, 'THAWED')
  }
}

/** Version 2 (cgroup-v2.rst), alone or beside controllers of version 1. A limit of memory below what is held kills for it. */
export class CgroupV2 extends CgroupHierarchy {
  async countsSwap(): Promise<boolean | undefined> {
    if (!(await this.#has('memory'))) return undefined
    // The root has no limits; any group with one of memory shows whether there is one of swap.
    for (const name of await readdir(this.path)) {
      if (await exists(`${this.path}/${name}/memory.max`)) return exists(`${this.path}/${name}/memory.swap.max`)
    }
    return exists('/proc/swaps')
  }

  async limitProcesses(group: string, most: number): Promise<void> {
    if (!(await this.#has('pids'))) return
    try {
      await writeFile(`${this.path}/cgroup.subtree_control`, '+pids', { flag: 'r+' })
    } catch {
      // In a container that may not divide what it has, the limit of the container holds.
      return
    }
    await this.limit(group, most)
  }

  oomKills(group: string): Promise<number | undefined> {
    return oomKillsIn(`${this.path}${group}/memory.events`)
  }

  async heldBytes(group: string): Promise<number | undefined> {
    const usage = await read(`${this.path}${group}/memory.current`)
    const stat = await read(`${this.path}${group}/memory.stat`)
    if (usage === undefined || stat === undefined) return undefined
    const fields = stat.split('\n').map((line) => line.split(' '))
    const cache = fields.reduce((sum, [name = '', bytes]) => sum + (droppable.includes(name) ? Number(bytes) : 0), 0)
    return Math.max(0, Number(usage) - cache)
  }

  thaw(group: string): Promise<void> {
    return this.writeIfThere(`${this.path}${group}/cgroup.freeze`, '0')
  }

  async #has(controller: string): Promise<boolean> {
    const controllers = (await read(`${this.path}/cgroup.controllers`)) ?? ''
    return controllers.trim().split(/\s+/).includes(controller)
  }
}

/** Both versions write it alike, into different files. */
async function oomKillsIn(file: string): Promise<number | undefined> {
  const count = /^oom_kill (\d+)$/m.exec((await read(file)) ?? '')?.[1]
  return count === undefined ? undefined : Number(count)
}

/** Not `recursive`, which never returns where the hierarchy itself is hidden behind another mount. */
async function makeGroup(folder: string): Promise<void> {
  await mkdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error
  })
}

function read(file: string): Promise<string | undefined> {
  return readFile(file, 'utf8').catch(() => undefined)
}
