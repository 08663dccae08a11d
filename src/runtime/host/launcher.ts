import { isServiceError } from '../../errors.ts'
import type { Semaphore } from '../../lib/async/semaphore.ts'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { allDone, cleanUp } from '../cleanup.ts'
import { assertCriu } from '../criu/program.ts'
import { assertProcessorFits } from '../criu/restore.ts'
import { asReported, diskOf } from '../disk/index.ts'
import { bootId } from '../process.ts'
import { type BundleHost, DiskBusy, makeBundle, makeDisk } from './bundle.ts'
import { clearResuming, dropStaleMemory, fenceOf, onDiskAlone, removeFence } from './fence.ts'
import { type ForkHost, runForkHooks } from './fork-hooks.ts'
import type { Limits } from './limits.ts'
import type { Machine } from './machine.ts'
import type { SandboxRecord } from './records.ts'
import type { RunningSandboxes } from './running.ts'

interface LauncherOptions
  extends BundleHost, ForkHost, Pick<Machine, 'hostd' | 'templates' | 'inventory' | 'lazy' | 'criu'> {
  running: RunningSandboxes
  limits: Limits
  /** Bounds starts and dumps together. */
  semaphore: Semaphore
  /** Removes unused layers and memory in the background. */
  removeUnused: () => void
}

/** CRIU's refusal of images is final for clients, so a refused restore is repeated: a busy machine may have spoilt the first one. */
const restoresMax = 2

/** Starts sandboxes whose records are written. The caller cleans up after a failure. */
export class Launcher {
  readonly #options: LauncherOptions

  /** Which hooks of a sandbox failed, until its next start. */
  readonly hookFailures = new Map<string, string>()

  constructor(options: LauncherOptions) {
    this.#options = options
  }

  /** Makes the disk of a sandbox and starts the sandbox. The disk limit is set meanwhile, and holds before any caller uses the sandbox. */
  async first(record: SandboxRecord, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const { images, limits, semaphore } = this.#options
    await this.#assertRestorable(record)
    const start = async (hasDisk: boolean) => {
      await images.assertPresent(record)
      const disk = hasDisk ? [] : [makeDisk(this.#options, record)]
      await allDone([...disk, makeBundle(this.#options, record, spec)])
      await allDone([limits.limitDisk(record, spec.diskMb), this.#run(record, spec, signal)])
      await this.#forgetMemory(record)
    }
    await semaphore.use(() => this.#withShownFiles(record, start), { signal, ...keyOf(spec) })
    if (spec.from !== undefined) await this.#runHooks(record)
  }

  /**
   * Starts a sandbox on its disk, from the memory that its record names, if any. The disk limit comes first, as it can take long and fail,
   * and a failure must not cost the memory. If a process of the host holds the disk, the sandbox goes on with a copy.
   */
  async again(
    record: SandboxRecord,
    spec: SandboxSpec,
    signal?: AbortSignal,
    isFork = record.memory?.isFork === true,
  ): Promise<void> {
    const { images, pool, running, limits, semaphore } = this.#options
    await this.#assertRestorable(record)
    const start = async (from: SandboxRecord) => {
      await images.assertPresent(from)
      const diskBytes = await pool.countedBytes(diskOf(from))
      await allDone([limits.limitDisk(from, spec.diskMb), makeBundle(this.#options, from, spec, diskBytes)])
      await this.#run(from, spec, signal)
      await this.#forgetMemory(from)
    }
    const startOrMove = async () => {
      try {
        await this.#withShownFiles(record, () => start(record))
      } catch (error) {
        if (!(error instanceof DiskBusy)) throw error
        await running.stop(record.id, record.slot)
        await start(await moveDisk(this.#options, record, spec.diskMb))
      }
    }
    await semaphore.use(startOrMove, { signal, ...keyOf(spec) })
    if (isFork) await this.#runHooks(record)
  }

  /**
   * Starts a hibernated sandbox, from its saved memory if it has some. A failure before its processes go on keeps the memory; a later one
   * drops it, and the error says so.
   */
  async wake(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const { inventory, log } = this.#options
    for (let restores = 1; ; restores += 1) {
      try {
        await this.#wakeOnce(spec, signal)
        return
      } catch (error) {
        if (restores >= restoresMax || !isServiceError(error, 'memory_not_restorable')) throw error
        if (inventory.sandbox(spec.id).memory === undefined) throw error
        log(`the memory of sandbox ${spec.id} is restored once more: ${error.message}`)
      }
    }
  }

  async #wakeOnce(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const { inventory, running } = this.#options
    const { id } = spec
    const { slot } = inventory.sandbox(id)
    const stop = () => running.stop(id, slot)
    const dropStale = () => dropStaleMemory(this.#options, inventory.sandbox(id))
    await stop()
    // An earlier wake may have failed without writing that down.
    const record = await dropStale()
    try {
      await this.again(record, spec, signal)
    } catch (error) {
      await cleanUp(this.#options, id, async () => void (await dropStale()))
      await cleanUp(this.#options, id, async () => {
        await stop()
        // CRIU may set its fence at any moment before it has ended.
        await dropStale()
        await clearResuming(inventory.sandboxes, id)
      })
      if (record.memory === undefined || inventory.sandbox(id).memory !== undefined) throw error
      await inventory.removeUnused()
      throw onDiskAlone(this.#options, id, asReported(error))
    }
  }

  /** Runs the hooks, without a permit, as they may take long. */
  async #runHooks(record: SandboxRecord): Promise<void> {
    const failure = await runForkHooks(this.#options, record)
    if (failure !== undefined) this.hookFailures.set(record.id, failure)
  }

  /** Drops the saved memory: the processes have gone on, so it no longer fits the disk. */
  async #forgetMemory(record: SandboxRecord): Promise<void> {
    const { inventory, pool, removeUnused } = this.#options
    const { memory, ...started } = record
    if (memory === undefined) return
    await inventory.sandboxes.put(started)
    await removeFence(pool, record)
    removeUnused()
  }

  async #run(record: SandboxRecord, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const { running, lazy, inventory, criu } = this.#options
    const { memory } = record
    this.hookFailures.delete(record.id)
    if (memory === undefined) {
      await running.start(record, spec.volumes ?? [], signal)
      return
    }
    const noteResuming = async () => {
      const resuming = bootId()
      if (memory.resuming !== resuming) await inventory.sandboxes.put({ ...record, memory: { ...memory, resuming } })
    }
    await running.resume(
      record,
      { memory, lazy: lazy.suits(criu, memory, spec), isFork: memory.isFork === true, noteResuming },
      signal,
    )
  }

  /** Repeats a start that failed while lxcfs ended, unless processes of saved memory have gone on. */
  async #withShownFiles(record: SandboxRecord, start: (isRepeated: boolean) => Promise<void>): Promise<void> {
    const { lxcfs, pool, running } = this.#options
    const { generation } = lxcfs
    try {
      await start(false)
    } catch (error) {
      if (error instanceof DiskBusy || (lxcfs.isFine && lxcfs.generation === generation)) throw error
      if (await pool.has(fenceOf(record))) throw error
      await running.stop(record.id, record.slot)
      await start(true)
    }
  }

  /** Throws `full_checkpoint_unavailable` before anything is touched. */
  async #assertRestorable({ memory }: SandboxRecord): Promise<void> {
    if (memory === undefined) return
    const { hostd, pool } = this.#options
    await assertProcessorFits(hostd.run, assertCriu(this.#options).path, pool.path(memory.folder))
  }
}

/**
 * Replaces a disk that a process of the host holds, in the root of the sandbox or in its mount namespace, by a snapshot: overlay
 * refuses to mount one upper layer twice. Inode numbers and limit stay. Returns the record in force. The old disk is removed;
 * its space comes back when its last holder ends.
 */
async function moveDisk(host: LauncherOptions, record: SandboxRecord, diskMb: number): Promise<SandboxRecord> {
  const { inventory, pool, hostd, limits, log } = host
  const moved: SandboxRecord = { ...record, disk: await inventory.nextDisk(record) }
  try {
    await pool.createSubvolume(diskOf(moved), pool.path(diskOf(record)))
    await hostd.runTool({ op: 'adopt-index', work: pool.path(`${diskOf(moved)}/work`) })
    await limits.limitDisk(moved, diskMb)
    await inventory.sandboxes.put(moved)
  } catch (error) {
    await cleanUp(host, record.id, () => pool.remove(diskOf(moved)))
    throw error
  }
  log(`someone on the host holds the root that sandbox ${record.id} had: it goes on with a copy of its disk`)
  await cleanUp(host, record.id, () => pool.remove(diskOf(record)))
  return moved
}

/** The owner whose permit a start takes. */
function keyOf({ owner }: SandboxSpec): { key?: string } {
  return owner === undefined ? {} : { key: owner }
}
