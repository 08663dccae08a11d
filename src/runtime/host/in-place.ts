import { ServiceError, isServiceError } from '../../errors.ts'
import { type SandboxSpec, RestartedOnDiskError } from '../../sandbox/ports/runtime-driver.ts'
import { cleanUp, reportOf } from '../cleanup.ts'
import { assertCriu } from '../criu/program.ts'
import { asReported, diskOf } from '../disk/index.ts'
import { bootId } from '../process.ts'
import { makeDisk } from './bundle.ts'
import { removeFence } from './fence.ts'
import { assertStartable } from './integrity.ts'
import type { Launcher } from './launcher.ts'
import type { Limits } from './limits.ts'
import type { Machine } from './machine.ts'
import { basedOn, type SandboxRecord } from './records.ts'
import type { RunningSandboxes } from './running.ts'
import type { MemorySaver } from './save-memory.ts'

interface InPlaceOptions extends Pick<
  Machine,
  'hostd' | 'inventory' | 'images' | 'pool' | 'templates' | 'criu' | 'log'
> {
  running: RunningSandboxes
  limits: Limits
  memory: MemorySaver
  launcher: Launcher
}

/** What has become of a sandbox whose restore failed. */
type Outcome = 'goes on' | 'on its disk' | 'asleep'

const consequences: Record<Outcome, string> = {
  'goes on': 'the sandbox is as it was, and its processes go on',
  'on its disk': 'the sandbox was started anew on the disk that it had',
  asleep: 'the sandbox hibernates, since it could not be brought back at once',
}

/** Gives sandboxes another disk, or other processes, under the same id and address. */
export class InPlace {
  readonly #options: InPlaceOptions

  constructor(options: InPlaceOptions) {
    this.#options = options
  }

  /**
   * Puts a sandbox back to a checkpoint: a new disk over the checkpoint's layers, then one write of the record, which is the
   * commit point. All checks come before that. A running sandbox hibernates first, as two of one id and address cannot run; that costs
   * each restore a dump. A later failure puts the old record back, and a sandbox that ran goes on from its memory. Where a host cannot
   * keep memory it boots on its old disk.
   */
  async restore({
    spec,
    checkpointId,
    signal,
  }: {
    spec: SandboxSpec
    checkpointId: string
    signal?: AbortSignal | undefined
  }): Promise<void> {
    const { inventory, running, pool, images, limits, launcher } = this.#options
    const { id } = spec
    const before = inventory.sandbox(id)
    const { slot, rangeStart } = before
    const from = inventory.checkpoint(checkpointId)
    const criu = from.memory === undefined ? undefined : assertCriu(this.#options).path
    await assertStartable(this.#options, from, spec, criu)
    const disk = await inventory.nextDisk(before)
    const after: SandboxRecord = { id, rangeStart, slot, disk, ...basedOn(from, before, bootId()) }
    await images.assertPresent(after)
    const release = inventory.hold(before)
    try {
      await makeDisk(this.#options, after)
      // The record reaches the disk of the host at once, so the disk that it names must be there before.
      await pool.settle(diskOf(after))
      // A server that is killed from here on may find the disk in use.
      await limits.limitDisk(after, spec.diskMb)
      // The checkpoint may have been deleted meanwhile. Nothing from here to `put` lets another call delete it.
      inventory.checkpoint(checkpointId)
      const releaseAfter = inventory.hold(after)
      const ran = running.isUp(id)
      try {
        if (ran && this.#options.criu.path !== undefined) await this.#savePresent(before)
        const present = inventory.sandbox(id)
        const releasePresent = inventory.hold(present)
        try {
          await running.stop(id, slot)
          await inventory.sandboxes.put(after)
          await launcher.again(after, spec, signal, true)
        } catch (error) {
          const outcome = await this.#goBack({ present, ran, spec })
          throw outcome === undefined || signal?.aborted === true
            ? error
            : failedWith(this.#options, id, asReported(error), outcome)
        } finally {
          releasePresent()
        }
      } finally {
        releaseAfter()
      }
    } finally {
      release()
      await this.#removeOtherDisks([before, after])
    }
  }

  /** Ends all processes and starts the sandbox anew on its disk, without the memory that was saved. */
  async restart({
    spec,
    graceMs,
    signal,
  }: {
    spec: SandboxSpec
    graceMs?: number
    signal?: AbortSignal | undefined
  }): Promise<void> {
    const { inventory, running, images, launcher } = this.#options
    const { id } = spec
    const { memory, ...record } = inventory.sandbox(id)
    await images.assertPresent(record)
    await running.stop(id, record.slot, graceMs)
    if (memory !== undefined) await inventory.sandboxes.put(record)
    try {
      await launcher.again(record, spec, signal)
    } catch (error) {
      await cleanUp(this.#options, id, () => running.stop(id, record.slot))
      throw error
    } finally {
      await inventory.removeUnused()
    }
  }

  /** Throws `conflict` when the memory cannot be saved, and then the sandbox runs on. */
  async #savePresent(before: SandboxRecord): Promise<void> {
    try {
      await this.#options.memory.saveForHibernation(before)
    } catch (error) {
      if (!isServiceError(error, 'conflict')) throw error
      const message = `${error.message}. A restore keeps the present until it has succeeded; a power cycle gives it up`
      throw new ServiceError('conflict', message, { cause: error })
    }
  }

  /** Puts the earlier record in force again. Undefined for a sandbox that did not run. */
  async #goBack({
    present,
    ran,
    spec,
  }: {
    present: SandboxRecord
    ran: boolean
    spec: SandboxSpec
  }): Promise<Outcome | undefined> {
    const { inventory, running, launcher } = this.#options
    const { id, slot, memory } = present
    let isBack = false
    await cleanUp(this.#options, id, async () => {
      await running.stop(id, slot)
      await inventory.sandboxes.put(present)
      if (ran) await launcher.wake(spec)
      isBack = true
    })
    if (!ran) return undefined
    if (!isBack) return 'asleep'
    return memory === undefined ? 'on its disk' : 'goes on'
  }

  /** Removes the disks of these records but that of the record in force. The next `open` retries a failed removal. */
  async #removeOtherDisks(records: readonly SandboxRecord[]): Promise<void> {
    const { inventory, pool } = this.#options
    for (const record of records) {
      const inForce = inventory.sandboxes.get(record.id)
      if (inForce !== undefined && diskOf(inForce) === diskOf(record)) continue
      await cleanUp(this.#options, record.id, async () => {
        await pool.remove(diskOf(record))
        await removeFence(pool, record)
      })
    }
    await inventory.removeUnused()
  }
}

function failedWith(host: Pick<InPlaceOptions, 'log'>, id: string, error: unknown, outcome: Outcome): ServiceError {
  const words = { failed: `restoring sandbox ${id} in place`, fallback: 'the checkpoint could not be started' }
  const { code, message } = reportOf(host, error, words)
  const told = [code, `${message}; ${consequences[outcome]}`, { cause: error }] as const
  return outcome === 'on its disk' ? new RestartedOnDiskError(...told) : new ServiceError(...told)
}
