import { ServiceError } from '../../errors.ts'
import { type SandboxSpec, RestartedOnDiskError } from '../../sandbox/ports/runtime-driver.ts'
import { bootId } from '../boot.ts'
import { diskOf, limitDisk, makeDisk } from './bundle.ts'
import { standsOn } from './records.ts'
import { demandCriu } from './open-host.ts'
import type { OpenHost } from './open-host.ts'
import type { Parts } from './parts.ts'
import type { SandboxRecord } from './records.ts'
import type { Starts } from './starts.ts'
import { removeMark } from './resumed.ts'
import { cleanUp, toldAs } from './steps.ts'
import { demandStartable } from './whole.ts'

/**
 * Puts a sandbox back to a checkpoint: a new disk over the checkpoint's layers, then one write of the record that decides
 * between before and after. All that can be looked at is looked at before, since the processes of a sandbox that runs end
 * first: to save them for the case of a failure would cost each restore as much as itself. A failure behind that brings the
 * old record back, and what ran is started on its old disk.
 */
export async function restoreInPlace(
  parts: Parts,
  starts: Starts,
  opened: OpenHost,
  { spec, checkpointId, signal }: { spec: SandboxSpec; checkpointId: string; signal?: AbortSignal | undefined },
): Promise<void> {
  const { inventory, running, pool, images } = parts
  const { id } = spec
  const before = inventory.sandbox(id)
  const { slot, rangeStart } = before
  const from = inventory.checkpoint(checkpointId)
  const criu = from.memory === undefined ? undefined : demandCriu(opened)
  await demandStartable(pool, from, spec, criu)
  const disk = await inventory.nextDisk(before)
  const after: SandboxRecord = { id, rangeStart, slot, disk, ...standsOn(from, before, bootId()) }
  await images.assertPresent(after)
  const release = inventory.hold(before)
  try {
    await makeDisk(opened.bundles, after)
    // Its record reaches the disk of the host at once, and may name nothing that does not.
    await pool.settle(diskOf(after))
    // A server that is killed from here on may find it in use.
    await limitDisk(opened.bundles, after, spec.diskMb)
    // It may have been removed meanwhile. From here to `put` nothing waits that others could use for that.
    inventory.checkpoint(checkpointId)
    const releaseAfter = inventory.hold(after)
    const ran = running.isUp(id)
    try {
      await running.stop(opened.cgroups, id, slot)
      await inventory.sandboxes.put(after)
      await starts.again(opened, after, spec, signal)
    } catch (error) {
      let isRestarted = false
      await cleanUp(parts, id, async () => {
        await running.stop(opened.cgroups, id, slot)
        await inventory.sandboxes.put(before)
        if (ran) await starts.again(opened, before, spec)
        isRestarted = ran
      })
      throw isRestarted && signal?.aborted !== true ? onOldDisk(parts, id, toldAs(error)) : error
    } finally {
      releaseAfter()
    }
  } finally {
    release()
    await removeOtherDisks(parts, [before, after])
  }
}

/** Ends all processes and starts the sandbox anew on its disk, without the memory that was saved. */
export async function restartInPlace(
  parts: Parts,
  starts: Starts,
  opened: OpenHost,
  { spec, graceMs, signal }: { spec: SandboxSpec; graceMs: number; signal?: AbortSignal | undefined },
): Promise<void> {
  const { inventory, running, images } = parts
  const { id } = spec
  const { memory, ...record } = inventory.sandbox(id)
  await images.assertPresent(record)
  await running.stop(opened.cgroups, id, record.slot, graceMs)
  if (memory !== undefined) await inventory.sandboxes.put(record)
  try {
    await starts.again(opened, record, spec, signal)
  } catch (error) {
    await cleanUp(parts, id, () => running.stop(opened.cgroups, id, record.slot))
    throw error
  } finally {
    await inventory.removeUnused()
  }
}

/** The fault of a restore after which a sandbox that ran has its disk, and not its processes. */
function onOldDisk({ log }: Parts, id: string, error: unknown): RestartedOnDiskError {
  const known = error instanceof ServiceError
  if (!known) log(`restoring sandbox ${id} in place failed: ${String(error)}`)
  const code = known ? error.code : 'unavailable'
  const why = known ? error.message : 'the checkpoint could not be started'
  const message = `${why}; the sandbox was started anew on the disk that it had`
  return new RestartedOnDiskError(code, message, { cause: error })
}

/** Of the disks of these records only that of the record in force stays. What cannot be removed now goes with the next `open`. */
async function removeOtherDisks(parts: Parts, records: readonly SandboxRecord[]): Promise<void> {
  const { inventory, pool } = parts
  for (const record of records) {
    const inForce = inventory.sandboxes.get(record.id)
    if (inForce !== undefined && diskOf(inForce) === diskOf(record)) continue
    await cleanUp(parts, record.id, async () => {
      await pool.remove(diskOf(record))
      await removeMark(pool, record)
    })
  }
  await inventory.removeUnused()
}
