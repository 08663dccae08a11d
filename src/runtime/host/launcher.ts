import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { allDone, cleanUp } from '../cleanup.ts'
import { assertProcessorFits } from '../criu/restore.ts'
import { assertCriu } from '../criu/program.ts'
import { bootId } from '../process.ts'
import { DiskBusy, diskOf, limitDisk, makeBundle, makeDisk } from './bundle.ts'
import type { OpenHost } from './context.ts'
import { fenceOf, removeFence } from './fence.ts'
import { runForkHooks } from './fork-hooks.ts'
import type { SandboxRecord } from './records.ts'
import type { Supervisor } from './supervisor.ts'

/** Starts sandboxes whose records are written. The caller cleans up after a failure. */
export class Launcher {
  readonly #supervisor: Supervisor

  /** What failed of the hooks of a sandbox, until its next start. */
  readonly hookFailures = new Map<string, string>()

  constructor(supervisor: Supervisor) {
    this.#supervisor = supervisor
  }

  /** Makes the disk of a sandbox, and starts it. The disk limit is set meanwhile; no caller uses the sandbox before it holds. */
  async first(host: OpenHost, record: SandboxRecord, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    await assertRestorable(host, record)
    const start = async (hasDisk: boolean) => {
      await host.images.assertPresent(record)
      const disk = hasDisk ? [] : [makeDisk(host, record)]
      await allDone([...disk, makeBundle(host, record, spec)])
      await allDone([limitDisk(host, record, spec.diskMb), this.#run(host, record, spec, signal)])
      await this.#forgetMemory(host, record)
    }
    await host.semaphore.use(() => withKernelFiles(host, record, start), { signal })
    if (spec.from !== undefined) await this.#runHooks(host, record)
  }

  /**
   * Starts a sandbox on its disk, from the memory that its record names, if any. The disk limit comes first: it can take long
   * and fail, and must not do so when the memory is already used up. Where a process of the host holds the disk, the sandbox
   * goes on with a copy.
   */
  async again(
    host: OpenHost,
    record: SandboxRecord,
    spec: SandboxSpec,
    signal?: AbortSignal,
    isFork = record.memory?.isFork === true,
  ): Promise<void> {
    await assertRestorable(host, record)
    const start = async (from: SandboxRecord) => {
      await host.images.assertPresent(from)
      const diskBytes = await host.pool.countedBytes(diskOf(from))
      await allDone([limitDisk(host, from, spec.diskMb), makeBundle(host, from, spec, diskBytes)])
      await this.#run(host, from, spec, signal)
      await this.#forgetMemory(host, from)
    }
    const startOrMove = async () => {
      try {
        await withKernelFiles(host, record, () => start(record))
      } catch (error) {
        if (!(error instanceof DiskBusy)) throw error
        await host.running.stop(host.cgroups, record.id, record.slot)
        await start(await moveDisk(host, record, spec.diskMb))
      }
    }
    await host.semaphore.use(startOrMove, { signal })
    if (isFork) await this.#runHooks(host, record)
  }

  /** Without a permit: hooks take as long as they like. */
  async #runHooks(host: OpenHost, record: SandboxRecord): Promise<void> {
    const failure = await runForkHooks(host, record)
    if (failure !== undefined) this.hookFailures.set(record.id, failure)
  }

  /** The processes have gone on, so the saved memory no longer fits the disk. */
  async #forgetMemory({ inventory, pool }: OpenHost, record: SandboxRecord): Promise<void> {
    const { memory, ...started } = record
    if (memory === undefined) return
    await inventory.sandboxes.put(started)
    await removeFence(pool, record)
    this.#supervisor.removeUnused()
  }

  async #run(host: OpenHost, record: SandboxRecord, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const { running, lazy, inventory, criu } = host
    const { memory } = record
    this.hookFailures.delete(record.id)
    if (memory === undefined) {
      await running.start(host, record, spec.volumes ?? [], signal)
      return
    }
    const noteResuming = async () => {
      const resuming = bootId()
      if (memory.resuming !== resuming) await inventory.sandboxes.put({ ...record, memory: { ...memory, resuming } })
    }
    await running.resume(
      host,
      record,
      { memory, lazy: lazy.suits(criu, memory, spec), isFork: memory.isFork === true, noteResuming },
      signal,
    )
  }
}

/** Repeats a start that failed while the files of the kernel that it shows went away, unless processes of saved memory have gone on. */
async function withKernelFiles(
  host: OpenHost,
  record: SandboxRecord,
  start: (isRepeated: boolean) => Promise<void>,
): Promise<void> {
  const { lxcfs, pool, running, cgroups } = host
  const { generation } = lxcfs
  try {
    await start(false)
  } catch (error) {
    if (error instanceof DiskBusy || (lxcfs.isFine && lxcfs.generation === generation)) throw error
    if (await pool.has(fenceOf(record))) throw error
    await running.stop(cgroups, record.id, record.slot)
    await start(true)
  }
}

/** Throws `full_checkpoint_unavailable` before anything is touched. */
async function assertRestorable(host: OpenHost, { memory }: SandboxRecord): Promise<void> {
  if (memory !== undefined) await assertProcessorFits(assertCriu(host).path, host.pool.path(memory.folder))
}

/**
 * Replaces a disk that a process of the host holds, in the root of the sandbox or in its mount namespace, by a snapshot: overlay
 * refuses to mount one upper layer twice. Inode numbers and limit stay. Returns the record in force. The old disk is removed;
 * its space comes back when its last holder ends.
 */
async function moveDisk(host: OpenHost, record: SandboxRecord, diskMb: number): Promise<SandboxRecord> {
  const { inventory, pool, hostd, log } = host
  const moved: SandboxRecord = { ...record, disk: await inventory.nextDisk(record) }
  try {
    await pool.createSubvolume(diskOf(moved), pool.path(diskOf(record)))
    await hostd.runTool({ op: 'adopt-index', work: pool.path(`${diskOf(moved)}/work`) })
    await limitDisk(host, moved, diskMb)
    await inventory.sandboxes.put(moved)
  } catch (error) {
    await cleanUp(host, record.id, () => pool.remove(diskOf(moved)))
    throw error
  }
  log(`someone on the host holds the root that sandbox ${record.id} had: it goes on with a copy of its disk`)
  await cleanUp(host, record.id, () => pool.remove(diskOf(record)))
  return moved
}
