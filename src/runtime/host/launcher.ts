import { availableParallelism } from 'node:os'
import { Semaphore } from '../../lib/async/semaphore.ts'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { bootId } from '../process.ts'
import { assertProcessorFits } from '../criu/processor.ts'
import { DiskBusy, diskOf, limitDisk, makeBundle, makeDisk, type BundleHost } from './bundle.ts'
import { assertCriu, type OpenHost } from './open-host.ts'
import type { DriverContext } from './context.ts'
import type { SandboxRecord } from './records.ts'
import { removeFence } from './fence.ts'
import { allDone, cleanUp } from '../cleanup.ts'
import type { Supervisor } from './supervisor.ts'

/** More boots than this at once only wait longer for their guests. */
const bootsAtOnce = Math.max(4, 2 * availableParallelism())

/** Starts sandboxes whose records are written. The caller cleans up after a failure. */
export class Launcher {
  /** Dumps take permits too: they are as much work. */
  readonly semaphore = new Semaphore({ permits: bootsAtOnce })
  readonly #context: DriverContext
  readonly #supervisor: Supervisor

  constructor(context: DriverContext, supervisor: Supervisor) {
    this.#context = context
    this.#supervisor = supervisor
  }

  /**
   * Makes the disk of a sandbox, and starts it. The disk limit is set meanwhile; no caller uses the sandbox before it holds.
   */
  async first(opened: OpenHost, record: SandboxRecord, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    await this.#assertRestorable(opened, record)
    const start = async () => {
      await this.#context.images.assertPresent(record)
      await allDone([makeDisk(opened.bundles, record), makeBundle(opened.bundles, record, spec)])
      await allDone([limitDisk(opened.bundles, record, spec.diskMb), this.#run(opened, record, spec, signal)])
      await this.#forgetMemory(record)
    }
    await this.semaphore.use(start, { signal })
  }

  /**
   * Starts a sandbox on its disk, from the memory that its record names, if any. The disk limit comes first: it can take long
   * and fail, and must not do so when the memory is already used up. Where a process of the host holds the disk, the sandbox
   * goes on with a copy.
   */
  async again(opened: OpenHost, record: SandboxRecord, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    await this.#assertRestorable(opened, record)
    const start = async (from: SandboxRecord) => {
      await this.#context.images.assertPresent(from)
      await allDone([limitDisk(opened.bundles, from, spec.diskMb), makeBundle(opened.bundles, from, spec)])
      await this.#run(opened, from, spec, signal)
      await this.#forgetMemory(from)
    }
    const startOrMove = async () => {
      try {
        await start(record)
      } catch (error) {
        if (!(error instanceof DiskBusy)) throw error
        await this.#context.running.stop(opened.cgroups, record.id, record.slot)
        await start(await moveDisk(this.#context, opened.bundles, record, spec.diskMb))
      }
    }
    await this.semaphore.use(startOrMove, { signal })
  }

  /** Throws `full_checkpoint_unavailable` before anything is touched. */
  async #assertRestorable(opened: OpenHost, { memory }: SandboxRecord): Promise<void> {
    if (memory === undefined) return
    await assertProcessorFits(assertCriu(opened), this.#context.pool.path(memory.folder))
  }

  /** The processes have gone on, so the saved memory no longer fits the disk. */
  async #forgetMemory(record: SandboxRecord): Promise<void> {
    const { inventory, pool } = this.#context
    const { memory, ...started } = record
    if (memory === undefined) return
    await inventory.sandboxes.put(started)
    await removeFence(pool, record)
    this.#supervisor.removeUnused()
  }

  async #run(opened: OpenHost, record: SandboxRecord, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const { running, lazy } = this.#context
    const { memory } = record
    if (memory === undefined) return running.start(opened.bundles, record, signal)
    const resumption = {
      criu: assertCriu(opened),
      cgroups: opened.cgroups,
      memory,
      lazy: lazy.suits(opened.criu, memory, spec),
      noteResuming: () => this.#noteResuming(record),
    }
    await running.resume(opened.bundles, record, resumption, signal)
  }

  /** Returns when the record on disk says that a restore has begun (`criu/fence.ts`). */
  async #noteResuming(record: SandboxRecord): Promise<void> {
    const { memory } = record
    const resuming = bootId()
    if (memory === undefined || memory.resuming === resuming) return
    await this.#context.inventory.sandboxes.put({ ...record, memory: { ...memory, resuming } })
  }
}

/**
 * Replaces a disk that a process of the host holds, in the root of the sandbox or in its mount namespace, by a snapshot: overlay
 * refuses to mount one upper layer twice. Inode numbers and limit stay. Returns the record in force. The old disk is removed;
 * its space comes back when its last holder ends.
 */
async function moveDisk(
  context: DriverContext,
  host: BundleHost,
  record: SandboxRecord,
  diskMb: number,
): Promise<SandboxRecord> {
  const { inventory, pool, log } = context
  const moved: SandboxRecord = { ...record, disk: await inventory.nextDisk(record) }
  try {
    await pool.createSubvolume(diskOf(moved), pool.path(diskOf(record)))
    await host.hostd.runTool(['adopt-index', '--work', pool.path(`${diskOf(moved)}/work`)])
    await limitDisk(host, moved, diskMb)
    await inventory.sandboxes.put(moved)
  } catch (error) {
    await cleanUp(context, record.id, () => pool.remove(diskOf(moved)))
    throw error
  }
  log(`someone on the host holds the root that sandbox ${record.id} had: it goes on with a copy of its disk`)
  await cleanUp(context, record.id, () => pool.remove(diskOf(record)))
  return moved
}
