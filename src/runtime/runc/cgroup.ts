import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { exists } from '../exists.ts'

const removeAttempts = 200
const removePauseMs = 5
/** What the kernel drops or writes back before it ends a process: fields of `memory.stat` (cgroup-v2.rst). */
const droppable = ['active_file', 'inactive_file', 'slab_reclaimable']
/** Of the processes that the kernel can have, how many the sandboxes of a server have together: the rest is the host's. */
const processShare = 0.75
/** Where version 2 is mounted when it is alone. */
const unified = '/sys/fs/cgroup'

/** The control groups of this host: version 1, version 2, or both (hybrid), each hierarchy at its mount point. */
export class Cgroups {
  readonly #hierarchies: readonly string[]

  constructor(hierarchies: readonly string[]) {
    this.#hierarchies = hierarchies
  }

  static async find(): Promise<Cgroups> {
    const lines = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')
    const mounts = lines.filter((line) => / - cgroup2? /.test(line)).map((line) => line.split(' ')[4] ?? '')
    return new Cgroups([...new Set(mounts)].filter((mount) => mount.startsWith('/sys/fs/cgroup')))
  }

  /** Whether the kernel counts swap in memory limits; runc fails to set a limit on it where it does not. */
  async countsSwap(): Promise<boolean> {
    if (!this.#hierarchies.includes(unified)) return exists('/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes')
    // The root has no limits; any group with one of memory shows whether there is one of swap.
    for (const name of await this.children('')) {
      if (await exists(`${unified}/${name}/memory.max`)) return exists(`${unified}/${name}/memory.swap.max`)
    }
    return exists('/proc/swaps')
  }

  /**
   * Makes a group and leaves what is below it, however many groups that are, no more processes and threads than a share of
   * what the kernel can have. Where processes are not counted nothing happens.
   */
  async limitProcesses(group: string): Promise<void> {
    const settings = ['/proc/sys/kernel/pid_max', '/proc/sys/kernel/threads-max']
    const most = Math.min(...(await Promise.all(settings.map((path) => readFile(path, 'utf8')))).map(Number))
    for (const hierarchy of this.#hierarchies) {
      const controllers = await readFile(`${hierarchy}/cgroup.controllers`, 'utf8').catch(() => hierarchy)
      if (!/\bpids\b/.test(controllers)) continue
      const below = `${hierarchy}/cgroup.subtree_control`
      // In a container that may not divide what it has, the limit of the container holds.
      if ((await exists(below)) && !(await isWritten(below, '+pids'))) continue
      // Not `recursive`, which never returns where the hierarchy itself is hidden behind another mount.
      await mkdir(`${hierarchy}${group}`).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'EEXIST') throw error
      })
      await writeFile(`${hierarchy}${group}/pids.max`, String(Math.floor(most * processShare)))
    }
  }

  /** Names of the groups below a group, over all hierarchies. */
  async children(group: string): Promise<string[]> {
    const names = new Set<string>()
    for (const hierarchy of this.#hierarchies) {
      const entries = await readdir(`${hierarchy}${group}`, { withFileTypes: true }).catch(() => [])
      for (const entry of entries) if (entry.isDirectory()) names.add(entry.name)
    }
    return [...names]
  }

  /** How many processes of a group the kernel has killed for memory. */
  async oomKills(group: string): Promise<number> {
    for (const file of [`/sys/fs/cgroup${group}/memory.events`, `/sys/fs/cgroup/memory${group}/memory.oom_control`]) {
      const text = await readFile(file, 'utf8').catch(() => '')
      const count = /^oom_kill (\d+)$/m.exec(text)?.[1]
      if (count !== undefined) return Number(count)
    }
    return 0
  }

  /**
   * Bytes of memory of a group that the kernel cannot take back, where it would end processes for a limit below that:
   * version 2 does, version 1 refuses the limit instead. Absent with version 1, or without the group.
   */
  async heldBytes(group: string): Promise<number | undefined> {
    for (const hierarchy of this.#hierarchies) {
      const usage = await readFile(`${hierarchy}${group}/memory.current`, 'utf8').catch(() => undefined)
      const stat = await readFile(`${hierarchy}${group}/memory.stat`, 'utf8').catch(() => undefined)
      if (usage === undefined || stat === undefined) continue
      const fields = new Map(
        stat
          .split('\n')
          .map((line) => line.split(' '))
          .map(([name, value]) => [name, Number(value)]),
      )
      const cache = droppable.reduce((sum, name) => sum + (fields.get(name) ?? 0), 0)
      return Math.max(0, Number(usage) - cache)
    }
    return undefined
  }

  /** The processes of a group. */
  async members(group: string): Promise<number[]> {
    for (const hierarchy of this.#hierarchies) {
      const text = await readFile(`${hierarchy}${group}/cgroup.procs`, 'utf8').catch(() => '')
      if (text !== '') return text.trim().split('\n').map(Number)
    }
    return []
  }

  /** Paths of the files that list the processes of a group, whether it exists yet or not. */
  memberFiles(group: string): string[] {
    return this.#hierarchies.map((hierarchy) => `${hierarchy}${group}/cgroup.procs`)
  }

  /** Lets go on what someone has frozen. Harmless when nothing is. */
  async thaw(group: string): Promise<void> {
    const files = this.#hierarchies.flatMap((hierarchy) => [
      [`${hierarchy}${group}/freezer.state`, 'THAWED'] as const,
      [`${hierarchy}${group}/cgroup.freeze`, '0'] as const,
    ])
    for (const [file, value] of files) if (await exists(file)) await writeFile(file, value)
  }

  /** Kills what is in a group and in those below it and removes them everywhere. Harmless when there is none. */
  async remove(group: string): Promise<void> {
    await Promise.all(this.#hierarchies.map((hierarchy) => removeTree(`${hierarchy}${group}`)))
  }
}

function isWritten(file: string, text: string): Promise<boolean> {
  return writeFile(file, text).then(
    () => true,
    () => false,
  )
}

async function removeTree(folder: string): Promise<void> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => undefined)
  if (entries === undefined) return
  for (const entry of entries) if (entry.isDirectory()) await removeTree(`${folder}/${entry.name}`)
  for (let attempt = 0; attempt < removeAttempts; attempt += 1) {
    try {
      await rmdir(folder)
      return
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code
      if (code === 'ENOENT') return
      if (code !== 'EBUSY') throw error
    }
    await killMembers(folder)
    await sleep(removePauseMs)
  }
  throw new Error(`control group ${folder} cannot be emptied`)
}

async function killMembers(folder: string): Promise<void> {
  const text = await readFile(`${folder}/cgroup.procs`, 'utf8').catch(() => '')
  for (const pid of text.split('\n').map(Number)) {
    if (pid <= 1 || pid === process.pid) continue
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has just ended.
    }
  }
}
