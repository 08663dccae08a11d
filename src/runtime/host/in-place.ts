import { ServiceError } from '../../errors.ts'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { bootId } from './process.ts'
import { diskOf, limitDisk, makeDisk } from './bundle.ts'
import { standsOn } from './records.ts'
import { assertCriu } from './open-host.ts'
import type { OpenHost } from './open-host.ts'
import type { DriverContext } from './context.ts'
import type { SandboxRecord } from './records.ts'
import type { Launcher } from './launcher.ts'
import { removeFence } from '../criu/fence.ts'
import { cleanUp, asReported } from './cleanup.ts'
import { assertStartable } from './integrity.ts'

/**
 * Puts a sandbox back to a checkpoint: a new disk over the checkpoint's layers, then one write of the record that decides
 * between before and after. All that can be looked at is looked at before, since the processes of a sandbox that runs end
 * first: to save them for the case of a failure would cost each restore as much as itself. A failure behind that brings the
 * old record back, and what ran is started on its old disk.
 */
export async function restoreInPlace(
  context: DriverContext,
  launcher: Launcher,
  opened: OpenHost,
  { spec, checkpointId, signal }: { spec: SandboxSpec; checkpointId: string; signal?: AbortSignal | undefined },
): Promise<void> {
  const { inventory, running, pool, images } = context
  const { id } = spec
  const before = inventory.sandbox(id)
  const { slot, rangeStart } = before
  const from = inventory.checkpoint(checkpointId)
  const criu = from.memory === undefined ? undefined : assertCriu(opened)
  await assertStartable(pool, from, spec, criu)
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
      await launcher.again(opened, after, spec, signal)
    } catch (error) {
      let startedAnew = false
      await cleanUp(context, id, async () => {
        await running.stop(opened.cgroups, id, slot)
        await inventory.sandboxes.put(before)
        if (ran) await launcher.again(opened, before, spec)
        startedAnew = ran
      })
      throw startedAnew && signal?.aborted !== true ? onOldDisk(context, id, asReported(error)) : error
    } finally {
      releaseAfter()
    }
  } finally {
    release()
    await removeOtherDisks(context, [before, after])
  }
}

/** Ends all processes and starts the sandbox anew on its disk, without the memory that was saved. */
export async function restartInPlace(
  context: DriverContext,
  launcher: Launcher,
  opened: OpenHost,
  { spec, graceMs, signal }: { spec: SandboxSpec; graceMs: number; signal?: AbortSignal | undefined },
): Promise<void> {
  const { inventory, running, images } = context
  const { id } = spec
  const { memory, ...record } = inventory.sandbox(id)
  await images.assertPresent(record)
  await running.stop(opened.cgroups, id, record.slot, graceMs)
  if (memory !== undefined) await inventory.sandboxes.put(record)
  try {
    await launcher.again(opened, record, spec, signal)
  } catch (error) {
    await cleanUp(context, id, () => running.stop(opened.cgroups, id, record.slot))
    throw error
  } finally {
    await inventory.removeUnused()
  }
}

/** The fault of a restore after which a sandbox that ran has its disk, and not its processes. */
function onOldDisk({ log }: DriverContext, id: string, error: unknown): ServiceError {
  const known = error instanceof ServiceError
  if (!known) log(`restoring sandbox ${id} in place failed: ${String(error)}`)
  const code = known ? error.code : 'unavailable'
  const why = known ? error.message : 'the checkpoint could not be started'
  const message = `${why}; the sandbox was started anew on the disk that it had`
  return new ServiceError(code, message, { cause: error, details: { startedAnew: true } })
}

/** Of the disks of these records only that of the record in force stays. What cannot be removed now goes with the next `open`. */
async function removeOtherDisks(context: DriverContext, records: readonly SandboxRecord[]): Promise<void> {
  const { inventory, pool } = context
  for (const record of records) {
    const inForce = inventory.sandboxes.get(record.id)
    if (inForce !== undefined && diskOf(inForce) === diskOf(record)) continue
    await cleanUp(context, record.id, async () => {
      await pool.remove(diskOf(record))
      await removeFence(pool, record)
    })
  }
  await inventory.removeUnused()
}
