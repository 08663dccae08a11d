import type { Cgroups } from './index.ts'
import type { WorkLimits } from './work-groups.ts'

/** The shell's part: it enters the control group. */
const inGroup = 'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit; shift; done; shift; exec "$@"'

/** What starts a program within a control group that has these folders. */
export function entered(folders: readonly string[], argv: readonly string[]): [command: string, ...args: string[]] {
  return ['sh', '-c', inGroup, 'sh', ...folders, '--', ...argv]
}

/**
 * The control group of a program that outlives the server. Drivers remove their groups with all processes in them; this one only its owner
 * empties and removes.
 */
export class ServiceGroup {
  readonly #cgroups: Cgroups
  readonly #group: string
  readonly #limits: WorkLimits

  constructor(cgroups: Cgroups, group: string, limits: WorkLimits) {
    this.#cgroups = cgroups
    this.#group = group
    this.#limits = limits
  }

  get memoryBytes(): number {
    return this.#limits.memoryBytes
  }

  /** Kills what is left in the group and sets its limits. Returns its folders; a process enters the group by their `cgroup.procs`. */
  async open(): Promise<string[]> {
    await this.#cgroups.empty(this.#group)
    return await this.#cgroups.makeLimited('', this.#group, this.#limits)
  }

  /** Whether a process is in the group, and the group has the present limits. */
  async holds(pid: number): Promise<boolean> {
    const { memoryBytes, processes } = this.#cgroups.limits(this.#group)
    if (memoryBytes !== this.#limits.memoryBytes || processes !== this.#limits.processes) return false
    return (await this.#cgroups.members(this.#group)).includes(pid)
  }

  /** How many processes of the group the kernel has killed for memory since the group was made. */
  memoryKills(): Promise<number> {
    return this.#cgroups.oomKills(this.#group)
  }

  /** Kills what runs in the group and removes it. Harmless when there is none. */
  async remove(): Promise<void> {
    await this.#cgroups.remove(this.#group)
  }
}
