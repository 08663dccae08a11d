import type { Cgroups } from './index.ts'
import type { WorkLimits } from './work-groups.ts'

/**
 * The control group of a program that outlives the server. It is none of those that a driver removes with what runs in them: its owner alone
 * empties and removes it.
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

  /** Ends what is left in it and gives it its limits. Returns its folders, in whose `cgroup.procs` a process enters it. */
  async open(): Promise<string[]> {
    await this.#cgroups.empty(this.#group)
    return await this.#cgroups.makeLimited('', this.#group, this.#limits)
  }

  /** Whether a process is in it, under the present limits. */
  async holds(pid: number): Promise<boolean> {
    const { memoryBytes, processes } = this.#cgroups.limits(this.#group)
    if (memoryBytes !== this.#limits.memoryBytes || processes !== this.#limits.processes) return false
    return (await this.#cgroups.members(this.#group)).includes(pid)
  }

  /** How many of its processes the kernel has killed for memory since it was made. */
  memoryKills(): Promise<number> {
    return this.#cgroups.oomKills(this.#group)
  }

  /** Kills what runs in it. Harmless when there is none. */
  async remove(): Promise<void> {
    await this.#cgroups.remove(this.#group)
  }
}
