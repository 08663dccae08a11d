import { existsSync } from 'node:fs'
import { rm, statfs, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { ServiceError } from '../../errors.ts'
import type { SandboxExit, SandboxVolume } from '../../sandbox/ports/runtime-driver.ts'
import type { Cgroups } from '../cgroups/index.ts'
import { allDone, removeFolders, runIsFull, withinRun } from '../cleanup.ts'
import { assertCriu } from '../criu/program.ts'
import { restoreContainer, stageImages } from '../criu/restore.ts'
import { adaptUpper } from '../disk/overlay-origins.ts'
import { limitsName } from '../host-names.ts'
import type { HostNames } from '../host-names.ts'
import { OciRuntimeError, type OciRuntime } from '../oci/oci-runtime.ts'
import { end, isAlive, type ProcessIdentity } from '../process.ts'
import { closeGuestDir, mountRoot } from './bundle.ts'
import type { Connections } from './connections.ts'
import { reseed, waitForGuest } from './dial.ts'
import { fenceOf } from './fence.ts'
import { forkSign, showGeneration } from './fork-hooks.ts'
import { causeOf } from './integrity.ts'
import type { Machine } from './machine.ts'
import { assertOwnFolders } from './own-folders.ts'
import type { SandboxRecord, SavedMemory } from './records.ts'
import { assertMounted, assertMountPoints } from './volumes.ts'

/** With less space than this on `/run`, a start that failed may have lacked space: the runtime writes its state there. */
const startBytesMin = 64 * 1024
/** Timeout of a guest's first answer, also of an adopted guest, whose start may have been cut off. */
const guestStartTimeoutMs = 10_000
/** Sandboxes that are looked at with each call of `ended`. */
const looksAtOnce = 20
/** Pause after a replacement of a run's lxcfs files that failed or left some. */
const showAgainMs = 30_000

interface RunningOptions extends Pick<
  Machine,
  | 'names'
  | 'hostd'
  | 'runtime'
  | 'network'
  | 'egress'
  | 'lazy'
  | 'lxcfs'
  | 'cgroups'
  | 'images'
  | 'pool'
  | 'criu'
  | 'traits'
  | 'log'
> {
  connections: Pick<Connections, 'endAll'>
}

/** How a sandbox is restored from saved memory. */
interface Resumption {
  memory: SavedMemory
  /** Whether it runs before all of its memory is there. */
  lazy: boolean
  /** Whether the memory is that of another sandbox, or of another time. */
  isFork: boolean
  /** Writes to the record on disk that a restore has begun (`fence.ts`): the processes may go on from then on. */
  noteResuming: () => Promise<void>
}

/**
 * The running sandboxes of this host. All that one has besides its disk is made in one order (bundle, root mount, container,
 * network) and removed in the opposite order; each removal is harmless when there is nothing.
 */
export class RunningSandboxes {
  readonly #options: RunningOptions
  readonly #processes = new Map<string, ProcessIdentity>()
  readonly #watched = new WeakSet<ProcessIdentity>()
  readonly #ended = new WeakSet<ProcessIdentity>()
  /** The generation of the lxcfs files that a run has mounted. */
  readonly #shown = new WeakMap<ProcessIdentity, number>()
  /** When a replacement of them failed, or left some. */
  readonly #unshownMs = new WeakMap<ProcessIdentity, number>()
  #lookedAt = 0
  #onEnd: () => void = () => undefined

  constructor(options: RunningOptions) {
    this.#options = options
  }

  /** The first process of each, ended ones included until they are stopped; another run is another object. */
  get runs(): ReadonlyMap<string, ProcessIdentity> {
    return this.#processes
  }

  isUp(id: string): boolean {
    const process = this.#processes.get(id)
    return process !== undefined && isAlive(process)
  }

  /**
   * Sandboxes that have ended by themselves: those that hostd has reported, and those found by a look at the next few. hostd may have been
   * started anew, and a look at hundreds would take milliseconds.
   */
  ended(): string[] {
    const all = [...this.#processes]
    for (let count = Math.min(looksAtOnce, all.length); count > 0; count -= 1) {
      this.#lookedAt = (this.#lookedAt + 1) % all.length
      const [id, process] = all[this.#lookedAt]!
      if (isAlive(process)) this.#watch(id, process)
      else this.#ended.add(process)
    }
    return all.filter(([, process]) => this.#ended.has(process)).map(([id]) => id)
  }

  /** `listener` is called when a sandbox has ended by itself. */
  onEnd(listener: () => void): void {
    this.#onEnd = listener
  }

  /** Sandboxes whose lxcfs files are to be replaced: all that were adopted, and those that started before the present lxcfs. */
  outdated(): [id: string, process: ProcessIdentity][] {
    const { generation } = this.#options.lxcfs
    const failedMs = Date.now() - showAgainMs
    return [...this.#processes].filter(
      ([, process]) => this.#shown.get(process) !== generation && !((this.#unshownMs.get(process) ?? 0) > failedMs),
    )
  }

  /** Replaces the lxcfs files of a run by those of the present lxcfs, unless the run has been stopped. */
  async showFiles(id: string, process: ProcessIdentity): Promise<void> {
    const { lxcfs, names, cgroups } = this.#options
    if (this.#processes.get(id) !== process || !isAlive(process)) return
    const { generation } = lxcfs
    const folders = cgroups.memberFiles(names.cgroup(id)).map(dirname)
    try {
      if (await lxcfs.replaceIn(process, folders)) this.#shown.set(process, generation)
      else this.#unshownMs.set(process, Date.now())
    } catch (error) {
      this.#unshownMs.set(process, Date.now())
      throw error
    }
  }

  #add(id: string, process: ProcessIdentity): void {
    this.#processes.set(id, process)
    this.#watch(id, process)
  }

  #watch(id: string, process: ProcessIdentity): void {
    if (this.#watched.has(process)) return
    this.#watched.add(process)
    void this.#options.hostd.awaitEnd(process).then((hasEnded) => {
      if (!hasEnded) {
        this.#watched.delete(process)
      } else if (this.#processes.get(id) === process) {
        this.#ended.add(process)
        this.#onEnd()
      }
    })
  }

  /**
   * Starts a sandbox whose disk and bundle exist and returns when its guest answers. The caller cleans up after a failure,
   * which is `DiskBusy` before anything runs.
   */
  async start(record: SandboxRecord, volumes: readonly SandboxVolume[], signal?: AbortSignal): Promise<void> {
    const { names, lxcfs, egress } = this.#options
    const { id } = record
    signal?.throwIfAborted()
    await allDone([this.#mountAdapted(record), egress.prepare(record, record.warm !== undefined)])
    await assertMountPoints(`${names.sandboxDir(id)}/root`, volumes)
    signal?.throwIfAborted()
    const generation = lxcfs.generationFor(id)
    const process = await this.#startContainer(id)
    await assertMounted(process, volumes)
    await allDone([
      egress.attach(record, process),
      this.#guestAnswers(id, process, signal),
      showLimits(this.#options, record, process),
      showGeneration(this.#options, record, process),
    ])
    await this.markVerified(id)
    this.#shown.set(process, generation)
    this.#add(id, process)
  }

  /**
   * Like `start`, but the processes are those of a saved memory. Images are left by a failure too: `stop` removes them. Once
   * the restore has begun the signal is ignored: the processes may go on from then on (`fence.ts`), and an abort would cost
   * the memory. The restore has timeouts of its own.
   */
  async resume(record: SandboxRecord, resumption: Resumption, signal?: AbortSignal): Promise<void> {
    const { names, hostd, network, egress, cgroups, lxcfs, pool } = this.#options
    const { id, slot } = record
    const { memory, lazy, isFork, noteResuming } = resumption
    const { folder, address } = memory
    const criu = assertCriu(this.#options).path
    // With another address, packets of the peers do not arrive.
    const keepConnections = memory.keepConnections && address === network.address(slot)
    const stage = async () => {
      const members = cgroups.memberFiles(names.cgroup(id))
      const fork = isFork ? forkSign(this.#options, record) : undefined
      const lazyMembers = lazy ? members : []
      await stageImages(this.#options, record, { folder, address, fence: fenceOf(record), fork, lazyMembers })
      if (lazy) await this.#options.lazy.start(criu, id, members)
    }
    signal?.throwIfAborted()
    const shown = cgroups.makeShown(`${names.cgroup(id)}/${limitsName}`)
    // A failure of the egress costs no memory here.
    const held = egress.prepare(record, record.warm !== undefined)
    await allDone([held, this.#mountAdapted(record), stage(), noteResuming(), shown])
    signal?.throwIfAborted()
    // The memory may be used up from here on.
    const generation = lxcfs.generationFor(id)
    const process = await restoreContainer(this.#options, criu, id, lazy).catch(async (error: unknown) => {
      throw await causeOf(pool, memory, error)
    })
    await allDone([
      ...(lazy ? [] : [this.#options.lazy.remove(id)]),
      egress.attach(record, process, { address, keepConnections }),
      showGeneration(this.#options, record, process),
      this.#guestAnswers(id, process).then(() => reseed(hostd, names.guestSocket(id), { fork: isFork })),
    ])
    await this.markVerified(id)
    this.#shown.set(process, generation)
    this.#add(id, process)
  }

  /**
   * Takes over a sandbox that an earlier server started, if it runs. An unverified guest, whose start or dump was cut off,
   * must answer. A verified one has answered before and is not waited for: liveness probes find out if it is dead. The caller
   * completes what was cut off and calls `markVerified`.
   */
  async adopt({ id, slot, memory }: SandboxRecord): Promise<boolean> {
    const { names, runtime, network, lazy, cgroups } = this.#options
    const process = await runtime.state(id)
    if (process === undefined || !isAlive(process) || slot > network.subnet.slots) return false
    try {
      // A server that died during a dump has left the sandbox frozen, or without its network.
      await cgroups.thaw(names.cgroup(id))
      if (!(await lazy.adopt(id))) return false
      const isVerified = memory === undefined && this.isVerified(id)
      if (!isVerified) await this.#guestAnswers(id, process)
    } catch {
      return false
    }
    this.#add(id, process)
    return true
  }

  /**
   * Ends a sandbox and removes everything of it but its disk. With `graceMs` its processes get SIGTERM first: the guest passes it
   * on and ends when they have, or after two seconds.
   */
  async stop(id: string, slot: number | undefined, graceMs = 0): Promise<void> {
    const { names, hostd, runtime, network, egress, lazy, cgroups, connections } = this.#options
    this.#processes.delete(id)
    const process = await runtime.state(id)
    await lazy.unwatch(id)
    await this.markUnverified(id)
    // A frozen process ignores SIGKILL, so thaw first.
    await cgroups.thaw(names.cgroup(id))
    if (process !== undefined) await end(process, graceMs)
    connections.endAll(id)
    egress.release(id)
    await cgroups.remove(names.cgroup(id))
    await allDone([
      runtime.delete(id).then(() => removeFolders(hostd, [names.sandboxDir(id)])),
      lazy.remove(id),
      ...(slot === undefined ? [] : [network.detach(slot)]),
    ])
  }

  isVerified(id: string): boolean {
    return existsSync(this.#verifiedFile(id))
  }

  /** To be called when the guest has answered, the network is attached, and no dump, start or end is under way. */
  async markVerified(id: string): Promise<void> {
    await withinRun(writeFile(this.#verifiedFile(id), ''))
  }

  /** To be called before a dump or an end, which may be cut off: a server that adopts the sandbox then waits for an answer. */
  async markUnverified(id: string): Promise<void> {
    await rm(this.#verifiedFile(id), { force: true })
  }

  async #mountAdapted(record: SandboxRecord): Promise<void> {
    await adaptUpper(this.#options, record)
    await mountRoot(this.#options, record)
    await assertOwnFolders(`${this.#options.names.sandboxDir(record.id)}/root`)
  }

  /** Throws `unavailable` with the reason, `no_capacity` when `/run` is full. */
  async #startContainer(id: string): Promise<ProcessIdentity> {
    const { names, runtime } = this.#options
    try {
      return await runtime.run(id, names.sandboxDir(id))
    } catch (error) {
      if (!(error instanceof OciRuntimeError)) throw error
      // A runtime wraps what it cannot write in words of its own, or has no room for them.
      const { bavail, bsize } = await statfs(names.runDir)
      if (bavail * bsize < startBytesMin) throw runIsFull(error)
      throw new ServiceError('unavailable', `the sandbox cannot be started: ${error.reason}`, { cause: error })
    }
  }

  /** Returns when the guest has answered; from then on no process inside can replace its socket. */
  async #guestAnswers(id: string, process: ProcessIdentity, signal?: AbortSignal): Promise<void> {
    const { names, hostd } = this.#options
    await waitForGuest(hostd, names.guestSocket(id), guestStartTimeoutMs, () => isAlive(process), signal)
    await closeGuestDir(names, id)
  }

  #verifiedFile(id: string): string {
    return `${this.#options.names.sandboxDir(id)}/verified`
  }
}

/** Mounts the files of its limits in a sandbox. A repeat is harmless. A failure is only logged: the sandbox works without them. */
export async function showLimits(
  { hostd, names, log }: Pick<RunningOptions, 'hostd' | 'names' | 'log'>,
  { id, rangeStart }: SandboxRecord,
  { pid, startTicks }: ProcessIdentity,
): Promise<void> {
  const process = { pid, startTicks }
  await hostd
    .runTool({ op: 'show-limits', process, source: names.limitsDir(id), owner: rangeStart })
    .catch((error: unknown) => log(`the limits of sandbox ${id} cannot be shown in it: ${String(error)}`))
}

/** Whether any sandbox of this data directory runs, known to this process or not. */
export async function anyRuns(runtime: OciRuntime): Promise<boolean> {
  for (const id of await runtime.list()) {
    const process = await runtime.state(id)
    if (process !== undefined && isAlive(process)) return true
  }
  return false
}

/** Why a sandbox ended: the kernel counts kills for memory, else `message`. To be called before its control group is removed. */
export async function exitOf(
  cgroups: Cgroups,
  names: HostNames,
  sandboxId: string,
  message = 'the first process of the sandbox ended',
): Promise<SandboxExit> {
  const oomKills = await cgroups.oomKills(names.cgroup(sandboxId))
  if (oomKills > 0) return { sandboxId, reason: 'oom', message: 'the sandbox ran out of memory' }
  return { sandboxId, reason: 'runtime_failed', message }
}
