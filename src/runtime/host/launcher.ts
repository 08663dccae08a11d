import { availableParallelism } from 'node:os'
import { Semaphore } from '../../lib/async/semaphore.ts'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { bootId } from '../boot.ts'
import { assertProcessorFits } from '../criu/processor.ts'
import { DiskBusy, limitDisk, makeBundle, makeDisk } from './bundle.ts'
import { moveDisk } from '../disk/move-disk.ts'
import { demandCriu } from './open-host.ts'
import type { OpenHost } from './open-host.ts'
import type { Parts } from './context.ts'
import type { SandboxRecord } from './records.ts'
import { removeMark } from '../criu/fence.ts'
import { allDone } from './cleanup.ts'
import type { Watch } from './supervisor.ts'

/** More sandboxes than this do not start faster together, they only wait longer for their guests. */
const startsAtOnce = Math.max(4, 2 * availableParallelism())

/** Starts sandboxes whose records are written. The caller cleans up after a failure. */
export class Starts {
  /** Passed by dumps too: they are as much work. */
  readonly gate = new Semaphore({ permits: startsAtOnce })
  readonly #parts: Parts
  readonly #watch: Watch

  constructor(parts: Parts, watch: Watch) {
    this.#parts = parts
    this.#watch = watch
  }

  /**
   * Makes the disk of a sandbox, and starts it. The limit of a new disk takes a moment, in which processes are made that could
   * write; none is used before it holds.
   */
  async first(opened: OpenHost, record: SandboxRecord, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    await this.#assertRestorable(opened, record)
    const start = async () => {
      await this.#parts.images.assertPresent(record)
      await allDone([makeDisk(opened.bundles, record), makeBundle(opened.bundles, record, spec)])
      await allDone([limitDisk(opened.bundles, record, spec.diskMb), this.#run(opened, record, spec, signal)])
      await this.#forgetMemory(record)
    }
    await this.gate.use(start, { signal })
  }

  /**
   * Starts a sandbox on the disk that it has; it goes on with the memory that its record names, if it names one. The limit of
   * the disk comes first: it can take long and fail, and must not do so when the memory is already used up. Where someone
   * holds the disk it goes on with a copy.
   */
  async again(opened: OpenHost, record: SandboxRecord, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    await this.#assertRestorable(opened, record)
    const start = async (from: SandboxRecord) => {
      await this.#parts.images.assertPresent(from)
      await allDone([limitDisk(opened.bundles, from, spec.diskMb), makeBundle(opened.bundles, from, spec)])
      await this.#run(opened, from, spec, signal)
      await this.#forgetMemory(from)
    }
    const startOrMove = async () => {
      try {
        await start(record)
      } catch (error) {
        if (!(error instanceof DiskBusy)) throw error
        await this.#parts.running.stop(opened.cgroups, record.id, record.slot)
        await start(await moveDisk(this.#parts, opened.bundles, record, spec.diskMb))
      }
    }
    await this.gate.use(startOrMove, { signal })
  }

  /** Throws `full_checkpoint_unavailable` while nothing is touched. */
  async #assertRestorable(opened: OpenHost, { memory }: SandboxRecord): Promise<void> {
    if (memory === undefined) return
    await assertProcessorFits(demandCriu(opened), this.#parts.pool.path(memory.folder))
  }

  /** The processes that the memory was of have gone on. */
  async #forgetMemory(record: SandboxRecord): Promise<void> {
    const { inventory, pool } = this.#parts
    const { memory, ...started } = record
    if (memory === undefined) return
    await inventory.sandboxes.put(started)
    await removeMark(pool, record)
    this.#watch.removeUnused()
  }

  async #run(opened: OpenHost, record: SandboxRecord, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const { running, lazy } = this.#parts
    const { memory } = record
    if (memory === undefined) return running.start(opened.bundles, record, signal)
    const resumption = {
      criu: demandCriu(opened),
      cgroups: opened.cgroups,
      memory,
      lazy: lazy.suits(opened.criu, memory, spec),
      fence: () => this.#fence(record),
    }
    await running.resume(opened.bundles, record, resumption, signal)
  }

  /** Returns when the disk says that a restore has begun (`resumed.ts`). */
  async #fence(record: SandboxRecord): Promise<void> {
    const { memory } = record
    const resuming = bootId()
    if (memory === undefined || memory.resuming === resuming) return
    await this.#parts.inventory.sandboxes.put({ ...record, memory: { ...memory, resuming } })
  }
}
