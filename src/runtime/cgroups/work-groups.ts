import { CommandError, type CommandOptions } from '../command.ts'
import { asHostdError, toolCommand, type HostTool } from '../hostd/index.ts'
import type { Cgroups } from './index.ts'

/** What one job of the host, or a program that serves all sandboxes, may use at a time. */
export interface WorkLimits {
  /** Memory that the kernel can drop, such as the cache of written files, does not count. */
  memoryBytes: number
  /** Processors whose whole time it may use; absent for all. */
  processors?: number
  /** Processes and threads. */
  processes: number
}

/** The kernel has killed a program because its job held more memory than its limit. */
export class OutOfMemory extends Error {
  readonly limitBytes: number

  constructor(limitBytes: number, options: ErrorOptions) {
    super(`it needed more than ${limitBytes / 2 ** 20} MB of memory`, options)
    this.name = 'OutOfMemory'
    this.limitBytes = limitBytes
  }
}

/** Runs programs of one job in its group. Both throw `OutOfMemory`, and what `run` throws. */
export interface Job extends Pick<HostTool, 'runTool'> {
  run(argv: readonly [string, ...string[]], options?: CommandOptions): Promise<string>
  /** The folders of the group, for a caller that starts a program in it by other means. */
  groups: readonly string[]
  /** The error to throw if the memory limit has caused the failure `cause`. */
  outOfMemory(cause: unknown): Promise<OutOfMemory | undefined>
}

interface WorkGroupsOptions {
  cgroups: Cgroups
  hostd: HostTool
  /** Path of `atoll-hostd`. */
  hostTool: string
  /** The group below which each job has its own. */
  parent: string
}

/**
 * Control groups for work that the host does for a tenant, whose input decides what the work takes. Jobs use a group one after the other:
 * the kernel keeps a removed group as long as the cache of a file is charged to it. A driver removes groups that another has left.
 */
export class WorkGroups {
  readonly #options: WorkGroupsOptions
  readonly #used = new Set<string>()

  constructor(options: WorkGroupsOptions) {
    this.#options = options
  }

  /** Runs work in a group. `kind` names groups of the same limits. Where the host has no memory control groups, the work runs without limits. */
  async use<Result>(kind: string, limits: WorkLimits, work: (job: Job) => Promise<Result>): Promise<Result> {
    let index = 0
    while (this.#used.has(`${kind}-${index}`)) index += 1
    const name = `${kind}-${index}`
    this.#used.add(name)
    try {
      return await work(await this.#jobIn(`${this.#options.parent}/${name}`, limits))
    } finally {
      this.#used.delete(name)
    }
  }

  /** Removes the groups with all processes in them. */
  async remove(): Promise<void> {
    const { cgroups, parent } = this.#options
    await cgroups.remove(parent)
  }

  async #jobIn(group: string, limits: WorkLimits): Promise<Job> {
    const { cgroups, hostd, hostTool, parent } = this.#options
    const groups = await cgroups.makeLimited(parent, group, limits)
    const killsBefore = await cgroups.oomKills(group)
    const outOfMemory: Job['outOfMemory'] = async (cause) => {
      const isOut = (await cgroups.oomKills(group)) > killsBefore
      return isOut ? new OutOfMemory(limits.memoryBytes, { cause }) : undefined
    }
    const run: Job['run'] = async (argv, options) => {
      try {
        return await hostd.runProgram(argv, { groups }, options)
      } catch (error) {
        throw (error instanceof CommandError ? await outOfMemory(error) : undefined) ?? error
      }
    }
    return {
      run,
      runTool: (request, options) => asHostdError(request, run(toolCommand(hostTool, request), options)),
      groups,
      outOfMemory,
    }
  }
}
