import { type SandboxSpec, RestartedOnDiskError } from '../../sandbox/ports/runtime-driver.ts'
import { asReported, cleanUp, reportOf } from '../cleanup.ts'
import { assertCriu } from '../criu/program.ts'
import { bootId } from '../process.ts'
import { diskOf, limitDisk, makeDisk } from './bundle.ts'
import type { OpenHost } from './context.ts'
import { removeFence } from './fence.ts'
import { assertStartable } from './integrity.ts'
import type { Launcher } from './launcher.ts'
import { basedOn, type SandboxRecord } from './records.ts'

/**
 * Puts a sandbox back to a checkpoint: a new disk over the checkpoint's layers, then one write of the record, which is the
 * commit point. All checks come before that, since the processes of a running sandbox end first: to save them in case of a
 * failure would double the cost of each restore. A later failure puts the old record back, and a sandbox that ran boots on its
 * old disk.
 */
export async function restoreInPlace(
  host: OpenHost,
  launcher: Launcher,
  { spec, checkpointId, signal }: { spec: SandboxSpec; checkpointId: string; signal?: AbortSignal | undefined },
): Promise<void> {
  const { inventory, running, pool, images, cgroups } = host
  const { id } = spec
  const before = inventory.sandbox(id)
  const { slot, rangeStart } = before
  const from = inventory.checkpoint(checkpointId)
  const criu = from.memory === undefined ? undefined : assertCriu(host)
  await assertStartable(pool, from, spec, criu)
  const disk = await inventory.nextDisk(before)
  const after: SandboxRecord = { id, rangeStart, slot, disk, ...basedOn(from, before, bootId()) }
  await images.assertPresent(after)
  const release = inventory.hold(before)
  try {
    await makeDisk(host, after)
    // The record reaches the disk of the host at once, so the disk that it names must be there before.
    await pool.settle(diskOf(after))
    // A server that is killed from here on may find the disk in use.
    await limitDisk(host, after, spec.diskMb)
    // The checkpoint may have been deleted meanwhile. Nothing from here to `put` lets another call delete it.
    inventory.checkpoint(checkpointId)
    const releaseAfter = inventory.hold(after)
    const ran = running.isUp(id)
    try {
      await running.stop(cgroups, id, slot)
      await inventory.sandboxes.put(after)
      await launcher.again(host, after, spec, signal)
    } catch (error) {
      let isRestarted = false
      await cleanUp(host, id, async () => {
        await running.stop(cgroups, id, slot)
        await inventory.sandboxes.put(before)
        if (ran) await launcher.again(host, before, spec)
        isRestarted = ran
      })
      throw isRestarted && signal?.aborted !== true ? onOldDisk(host, id, asReported(error)) : error
    } finally {
      releaseAfter()
    }
  } finally {
    release()
    await removeOtherDisks(host, [before, after])
  }
}

/** Ends all processes and starts the sandbox anew on its disk, without the memory that was saved. */
export async function restartInPlace(
  host: OpenHost,
  launcher: Launcher,
  { spec, graceMs, signal }: { spec: SandboxSpec; graceMs?: number; signal?: AbortSignal | undefined },
): Promise<void> {
  const { inventory, running, images, cgroups } = host
  const { id } = spec
  const { memory, ...record } = inventory.sandbox(id)
  await images.assertPresent(record)
  await running.stop(cgroups, id, record.slot, graceMs)
  if (memory !== undefined) await inventory.sandboxes.put(record)
  try {
    await launcher.again(host, record, spec, signal)
  } catch (error) {
    await cleanUp(host, id, () => running.stop(cgroups, id, record.slot))
    throw error
  } finally {
    await inventory.removeUnused()
  }
}

/** The error of a restore after which a sandbox that ran has booted on its old disk. */
function onOldDisk(host: OpenHost, id: string, error: unknown): RestartedOnDiskError {
  const words = { failed: `restoring sandbox ${id} in place`, fallback: 'the checkpoint could not be started' }
  const { code, message } = reportOf(host, error, words)
  const consequence = 'the sandbox was started anew on the disk that it had'
  return new RestartedOnDiskError(code, `${message}; ${consequence}`, { cause: error })
}

/** Removes the disks of these records but that of the record in force. The next `open` retries a failed removal. */
async function removeOtherDisks(host: OpenHost, records: readonly SandboxRecord[]): Promise<void> {
  const { inventory, pool } = host
  for (const record of records) {
    const inForce = inventory.sandboxes.get(record.id)
    if (inForce !== undefined && diskOf(inForce) === diskOf(record)) continue
    await cleanUp(host, record.id, async () => {
      await pool.remove(diskOf(record))
      await removeFence(pool, record)
    })
  }
  await inventory.removeUnused()
}
