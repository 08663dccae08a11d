import { rm, statfs, writeFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import type { SandboxExit } from '../../sandbox/ports/runtime-driver.ts'
import { exists } from '../exists.ts'
import type { HostTool } from '../hostd/index.ts'
import type { Network } from '../network/index.ts'
import { closeGuestDir, mountRoot, type BundleHost } from './bundle.ts'
import type { Cgroups } from '../cgroups/index.ts'
import { OciRuntimeError, type OciRuntime } from '../oci/oci-runtime.ts'
import { reseed, waitForGuest, type GuestRelay } from './dial.ts'
import { runIsFull, withinRun } from './run-folders.ts'
import type { LazyMemory } from '../criu/lazy-memory.ts'
import { adaptUpper } from '../disk/overlay-origins.ts'
import type { HostNames } from '../host-names.ts'
import { end, isAlive, type ProcessIdentity } from '../process.ts'
import type { SandboxRecord, SavedMemory } from './records.ts'
import { restoreContainer, stageImages } from '../criu/restore.ts'
import { allDone, removeFolders } from '../cleanup.ts'

/** With less room than this on `/run` a start may have failed for the want of it: the runtime writes its state there. */
const startBytesMin = 64 * 1024
const guestStartTimeoutMs = 10_000
/** For a guest that may never have answered, as its start may have been cut off. */
const adoptTimeoutMs = 10_000

interface RunningOptions {
  names: HostNames
  hostd: GuestRelay & HostTool
  runtime: OciRuntime
  network: Network
  lazy: LazyMemory
}

/** How a sandbox is restored from saved memory. */
export interface Resumption {
  /** Path of the program. */
  criu: string
  cgroups: Cgroups
  memory: SavedMemory
  /** Whether it runs before all of its memory is there. */
  lazy: boolean
  /** Notes for whoever comes after a loss of power that its processes may have gone on. None does before it has returned. */
  noteResuming: () => Promise<void>
}

/**
 * The running sandboxes of this host. All that one has besides its disk is made in one order (bundle, root mount, container,
 * network) and removed in the opposite order; each removal is harmless when there is nothing.
 */
export class RunningSandboxes {
  readonly #names: HostNames
  readonly #hostd: GuestRelay & HostTool
  readonly #runtime: OciRuntime
  readonly #network: Network
  readonly #lazy: LazyMemory
  readonly #processes = new Map<string, ProcessIdentity>()

  constructor({ names, hostd, runtime, network, lazy }: RunningOptions) {
    this.#names = names
    this.#hostd = hostd
    this.#runtime = runtime
    this.#network = network
    this.#lazy = lazy
  }

  has(id: string): boolean {
    return this.#processes.has(id)
  }

  /** The first process of each, ended ones included until they are stopped; another run is another object. */
  get runs(): ReadonlyMap<string, ProcessIdentity> {
    return this.#processes
  }

  isUp(id: string): boolean {
    const process = this.#processes.get(id)
    return process !== undefined && isAlive(process)
  }

  /** Sandboxes that have ended by themselves. */
  ended(): string[] {
    return [...this.#processes].filter(([, process]) => !isAlive(process)).map(([id]) => id)
  }

  /**
   * Starts a sandbox whose disk and bundle exist and returns when its guest answers. The caller cleans up after a failure,
   * which is `DiskBusy` before anything runs.
   */
  async start(host: BundleHost, record: SandboxRecord, signal?: AbortSignal): Promise<void> {
    const { id } = record
    signal?.throwIfAborted()
    await mountAdapted(host, record)
    signal?.throwIfAborted()
    const process = await this.#startContainer(id)
    const isUp = () => isAlive(process)
    await allDone([
      this.#network.attach(record.slot, process),
      this.#guestAnswers(id, guestStartTimeoutMs, isUp, signal),
    ])
    await this.markVerified(id)
    this.#processes.set(id, process)
  }

  /**
   * Like `start`, but the processes are those of a saved memory. Images are left by a failure too: `stop` removes them. Once
   * the restore has begun the signal is ignored: the processes may go on from then on (`criu/fence.ts`), and an abort would
   * cost the memory. The restore has timeouts of its own.
   */
  async resume(host: BundleHost, record: SandboxRecord, resumption: Resumption, signal?: AbortSignal): Promise<void> {
    const { id, slot } = record
    const { criu, cgroups, memory, lazy, noteResuming } = resumption
    // In another subnet nobody would answer what their peers send.
    const keepConnections = memory.keepConnections && memory.address === this.#network.address(slot)
    const stage = async () => {
      const lazyMembers = lazy ? cgroups.memberFiles(this.#names.cgroup(id)) : []
      await stageImages(host, record, memory, lazyMembers)
      if (lazy) await this.#lazy.start(criu, cgroups, id)
    }
    signal?.throwIfAborted()
    await allDone([mountAdapted(host, record), stage(), noteResuming()])
    signal?.throwIfAborted()
    // The memory may be used up from here on.
    const process = await restoreContainer(host, criu, id, lazy)
    const isUp = () => isAlive(process)
    await allDone([
      ...(lazy ? [] : [this.#lazy.remove(id)]),
      this.#network.attach(slot, process, { address: memory.address, keepConnections }),
      this.#guestAnswers(id, guestStartTimeoutMs, isUp).then(() => reseed(this.#hostd, this.#names.guestSocket(id))),
    ])
    await this.markVerified(id)
    this.#processes.set(id, process)
  }

  /** The first process of a sandbox that runs. */
  pidOf(id: string): number | undefined {
    return this.#processes.get(id)?.pid
  }

  /**
   * Takes over a sandbox that an earlier server started, if it runs. An unverified guest, whose start or dump was cut off,
   * must answer. A verified one has answered before and is not waited for: liveness probes find out if it is dead. The caller
   * completes what was cut off and calls `markVerified`.
   */
  async adopt(cgroups: Cgroups, record: SandboxRecord): Promise<boolean> {
    const process = await this.#runtime.state(record.id)
    if (process === undefined || !isAlive(process) || record.slot > this.#network.subnet.slots) return false
    try {
      // A server that died during a dump has left the sandbox frozen, or without its network.
      await cgroups.thaw(this.#names.cgroup(record.id))
      if (!(await this.#lazy.adopt(record.id))) return false
      const isVerified = record.memory === undefined && (await this.isVerified(record.id))
      if (isVerified) {
        // Servers of earlier versions left it open.
        await closeGuestDir(this.#names, record.id)
      } else {
        await this.#guestAnswers(record.id, adoptTimeoutMs, () => isAlive(process))
      }
    } catch {
      return false
    }
    this.#processes.set(record.id, process)
    return true
  }

  /**
   * Ends a sandbox and removes everything of it but its disk. With `graceMs` its processes get SIGTERM first: the guest passes it
   * on and ends when they have, or after two seconds.
   */
  async stop(cgroups: Cgroups, id: string, slot: number | undefined, graceMs = 0): Promise<void> {
    this.#processes.delete(id)
    const process = await this.#runtime.state(id)
    await this.#lazy.unwatch(id)
    await this.markUnverified(id)
    // A frozen process ignores SIGKILL, so thaw first.
    await cgroups.thaw(this.#names.cgroup(id))
    if (process !== undefined) await end(process, graceMs)
    await cgroups.remove(this.#names.cgroup(id))
    await allDone([
      this.#runtime.delete(id).then(() => removeFolders(this.#hostd, [this.#names.sandboxDir(id)])),
      this.#lazy.remove(id),
      ...(slot === undefined ? [] : [this.#network.detach(slot)]),
    ])
  }

  /** Forgets all sandboxes; they run on. */
  forget(): void {
    this.#processes.clear()
    this.#lazy.forget()
  }

  isVerified(id: string): Promise<boolean> {
    return exists(this.#verifiedFile(id))
  }

  /** To be called when the guest has answered, the network is attached, and no dump, start or end is under way. */
  async markVerified(id: string): Promise<void> {
    await withinRun(writeFile(this.#verifiedFile(id), ''))
  }

  /** To be called before a dump or an end, which may be cut off: a server that adopts the sandbox then waits for an answer. */
  async markUnverified(id: string): Promise<void> {
    await rm(this.#verifiedFile(id), { force: true })
  }

  /** Throws `unavailable` with the reason, `no_capacity` when `/run` is full. */
  async #startContainer(id: string): Promise<ProcessIdentity> {
    try {
      return await this.#runtime.run(id, this.#names.sandboxDir(id))
    } catch (error) {
      if (!(error instanceof OciRuntimeError)) throw error
      // A runtime wraps what it cannot write in words of its own, or has no room for them.
      const { bavail, bsize } = await statfs(this.#names.runDir)
      if (bavail * bsize < startBytesMin) throw runIsFull(error)
      throw new ServiceError('unavailable', `the sandbox cannot be started: ${error.reason}`, { cause: error })
    }
  }

  /** Returns when the guest has answered; from then on no process inside can replace its socket. */
  async #guestAnswers(id: string, timeoutMs: number, isUp: () => boolean, signal?: AbortSignal): Promise<void> {
    await waitForGuest(this.#hostd, this.#names.guestSocket(id), timeoutMs, isUp, signal)
    await closeGuestDir(this.#names, id)
  }

  #verifiedFile(id: string): string {
    return `${this.#names.sandboxDir(id)}/trusted`
  }
}

async function mountAdapted(host: BundleHost, record: SandboxRecord): Promise<void> {
  await adaptUpper(host, record)
  await mountRoot(host, record)
}

/** Whether any sandbox of this data directory runs, known to this process or not. */
export async function anyRuns(runtime: OciRuntime): Promise<boolean> {
  for (const id of await runtime.list()) {
    const process = await runtime.state(id)
    if (process !== undefined && isAlive(process)) return true
  }
  return false
}

/** Why a sandbox ended, as far as the kernel tells, or else we; asked before its control group is removed. */
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
