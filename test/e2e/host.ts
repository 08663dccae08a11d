import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { liveProcesses } from '../support/host-processes.ts'
import type { AtollServer } from './server.ts'

const run = promisify(execFile)
const restTriesMax = 600

export interface HostProcess {
  pid: number
  sandboxId: string
}

/** The sandboxes of one server as the host sees them: their processes, and all that carries the server's name. */
export class Host {
  readonly #server: AtollServer
  readonly #names: HostNames
  readonly #cgroups: Cgroups

  private constructor(server: AtollServer, cgroups: Cgroups) {
    this.#server = server
    this.#names = new HostNames(server.dataDir)
    this.#cgroups = cgroups
  }

  static async of(server: AtollServer): Promise<Host> {
    return new Host(server, await Cgroups.find())
  }

  /** Ids of the sandboxes that have processes. */
  async sandboxes(): Promise<string[]> {
    const ids = await this.#cgroups.children(this.#names.cgroupRoot)
    const members = await Promise.all(ids.map((id) => this.#cgroups.members(this.#names.cgroup(id))))
    return ids.filter((_id, index) => (members[index] ?? []).length > 0).toSorted()
  }

  /** The first process of each sandbox, but of those that CRIU brings back just now: see `#find`. */
  async guests(): Promise<HostProcess[]> {
    return await this.#find(async (pid) => /^NSpid:.*\s1$/m.test(await readFile(`/proc/${pid}/status`, 'utf8')))
  }

  /** Without what an agent has just forked: until it becomes a command it has the agent's own command line. */
  async agents(): Promise<HostProcess[]> {
    return await this.#find(async (pid) => (await isAgent(pid)) && !(await isAgent(await parentOf(pid))))
  }

  /** `traces` without sandboxes, when nothing is under way that goes by itself, such as the flush after a hibernation. */
  async tracesAtRest(): Promise<Record<string, string[]>> {
    let traces = await this.traces()
    for (let tries = 0; tries < restTriesMax; tries += 1) {
      if (traces['processes']?.every((command) => /^\S*(dnsmasq|atoll-hostd|lxcfs) /.test(command))) break
      await sleep(100)
      traces = await this.traces()
    }
    return traces
  }

  /** Lines for all that carries the server's name outside of its data: none once it has ended and its data is removed. */
  async leftovers(): Promise<string[]> {
    const runDirs = (await readdir('/run')).filter((name) => name.includes(this.#names.hash))
    const database = await this.#cgroups.members(this.#names.databaseGroup)
    return [...runDirs, ...database.map((pid) => `PostgreSQL ${pid}`), ...Object.values(await this.#named()).flat()]
  }

  /** What the server has on its host, as lines to compare, while no sandbox has a root below its folders. Without its database. */
  async traces(): Promise<Record<string, string[]>> {
    // The pool keeps the few inode-offset templates that were ever needed; how high the numbers of files come is chance.
    const isFixed = (name: string) => !/pool\/templates\/\d/.test(name)
    const files = await readdir(this.#server.dataDir, { recursive: true })
    const { runDir, shownDir } = this.#names
    const below = async (name: string) =>
      (await readdir(`${runDir}/${name}`, { recursive: true })).map((path) => `${name}/${path}`)
    const inRun: string[] = []
    for (const entry of await readdir(runDir, { withFileTypes: true })) {
      inRun.push(entry.name)
      // It shows files of the kernel, which come and go with processes.
      if (entry.isDirectory() && `${runDir}/${entry.name}` !== shownDir) inRun.push(...(await below(entry.name)))
    }
    return {
      ...(await this.#named()),
      run: inRun.filter(isFixed).toSorted(),
      files: files.filter((name) => isFixed(name) && !name.startsWith('db')).toSorted(),
    }
  }

  async #named(): Promise<Record<string, string[]>> {
    const { hash, cgroupRoot } = this.#names
    const own = (text: string) =>
      text.split('\n').filter((line) => line.includes(hash) || line.includes(this.#server.dataDir))
    const [mounts, links, loops, rules] = await Promise.all([
      readFile('/proc/mounts', 'utf8'),
      run('ip', ['-o', '-brief', 'link']),
      run('losetup', ['--list', '--noheadings', '--output', 'BACK-FILE']),
      run('nft', ['list', 'ruleset']),
    ])
    return {
      mounts: own(mounts).toSorted(),
      links: own(links.stdout).map((line) => line.split(/[\s@]/, 1)[0] ?? ''),
      loops: own(loops.stdout),
      rules: tableOf(rules.stdout, hash),
      groups: await this.#cgroups.children(cgroupRoot),
      processes: await this.#processes(),
    }
  }

  /** Command lines of what runs in a sandbox or on its behalf, without the server and its database, whose sessions come and go. */
  async #processes(): Promise<string[]> {
    const { hash, databaseGroup } = this.#names
    return (await liveProcesses())
      .filter(({ pid, groups }) => pid !== this.#server.pid && !groups.includes(databaseGroup))
      .filter(({ command, groups }) => command !== '' && (command + groups).includes(hash))
      .map(({ command }) => command.replaceAll('\0', ' '))
      .toSorted()
  }

  /**
   * Without the processes of sandboxes that are being restored: CRIU waits for those that a kill from the host has taken from it
   * until the runtime's limit of time, and nothing inside can do that to itself.
   */
  async #find(wanted: (pid: number) => Promise<boolean>): Promise<HostProcess[]> {
    const found: HostProcess[] = []
    for (const sandboxId of (await this.#cgroups.children(this.#names.cgroupRoot)).toSorted()) {
      for (const pid of await this.#cgroups.members(this.#names.cgroup(sandboxId))) {
        // It may end while it is looked at.
        if (await wanted(pid).catch(() => false)) found.push({ pid, sandboxId })
      }
    }
    const restored = await this.#restored()
    return found.filter(({ sandboxId }) => !restored.has(sandboxId))
  }

  async #restored(): Promise<Set<string>> {
    const commands = (await this.#processes()).filter((command) => command.includes(' restore '))
    return new Set(commands.flatMap((command) => command.trim().split(' ')))
  }
}

async function isAgent(pid: number): Promise<boolean> {
  return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).includes('agent/start.mjs')
}

async function parentOf(pid: number): Promise<number> {
  return Number(/^PPid:\s+(\d+)$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1])
}

/** The lines of the table that carries a hash, without counts of connections, which expire by themselves. */
function tableOf(ruleset: string, hash: string): string[] {
  const table = ruleset.split(/^(?=table )/m).find((part) => part.split('\n', 1)[0]?.includes(hash)) ?? ''
  return table.split('\n').filter((line) => line !== '' && !/expires |\d ct count over/.test(line))
}

/** Waits for a state for a bounded time, as space of removed disks and dying processes goes a moment after the answer. */
export async function settled<State extends object>(look: () => Promise<State>, wanted: State): Promise<State> {
  for (let tries = 0; tries < restTriesMax; tries += 1) {
    const now = await look()
    if (JSON.stringify(now) === JSON.stringify(wanted)) return now
    await sleep(100)
  }
  return await look()
}
