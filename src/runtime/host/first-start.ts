import { ServiceError } from '../../errors.ts'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { mayBeWarm } from '../../sandbox/ports/warm-start.ts'
import { allDone, cleanUp } from '../cleanup.ts'
import { bootId } from '../process.ts'
import { diskOf, limitDisk } from './bundle.ts'
import type { OpenHost } from './context.ts'
import { removeFence } from './fence.ts'
import type { Launcher } from './launcher.ts'
import { writeLimits } from './limit-files.ts'
import { limitProcesses } from './limits.ts'
import { basedOn, newGeneration, type SandboxRecord } from './records.ts'

/** A cold start. A failure leaves nothing. */
export async function startFirst(
  host: OpenHost,
  launcher: Launcher,
  spec: SandboxSpec,
  kind: Pick<SandboxRecord, 'warm'>,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { id } = spec
  const { inventory, images } = host
  signal?.throwIfAborted()
  const current = await images.current(spec.image)
  const disk = await inventory.freshDisk(id)
  // Nothing awaits from here to `put`: no other call can claim the same numbers or remove the checkpoint's layers.
  if (inventory.sandboxes.get(id) !== undefined) throw new ServiceError('conflict', `sandbox ${id} exists`)
  const from = spec.from === undefined ? undefined : inventory.checkpoint(spec.from.checkpointId)
  const record: SandboxRecord = {
    id,
    ...disk,
    ...inventory.claim(),
    ...(from === undefined
      ? { ...current, layers: [], generation: newGeneration() }
      : basedOn(from, current, bootId())),
    ...kind,
  }
  const recorded = inventory.sandboxes.put(record)
  try {
    await recorded
    await launcher.first(host, record, spec, signal)
  } catch (error) {
    await cleanUp(host, id, () => removeSandbox(host, id))
    throw error
  }
}

/** Gives a prepared sandbox the limits of its owner and writes down that it has one. False: it is unfit, and gone. */
export async function takeOver(host: OpenHost, spec: SandboxSpec, signal: AbortSignal | undefined): Promise<boolean> {
  const { inventory } = host
  const { id } = spec
  try {
    signal?.throwIfAborted()
    const fits = await isFit(host, spec)
    const { warm: has, ...record } = inventory.sandbox(id)
    if (fits) {
      const isSized = spec.cpuCount === has?.cpuCount && spec.memoryMb === has.memoryMb
      await allDone([
        ...(isSized ? [] : [limitProcesses(host, spec)]),
        ...(spec.diskMb === has?.diskMb ? [] : [limitDisk(host, record, spec.diskMb)]),
        inventory.sandboxes.put(record),
      ])
      await writeLimits(host, spec)
      return true
    }
  } catch (error) {
    await cleanUp(host, id, () => removeSandbox(host, id))
    throw error
  }
  await removeSandbox(host, id)
  return false
}

/** Whether a prepared sandbox runs, from what a start would take now. */
export async function isFit({ inventory, images, running }: OpenHost, spec: SandboxSpec): Promise<boolean> {
  const { id, image, from } = spec
  if (!mayBeWarm(spec)) return false
  const record = inventory.sandbox(id)
  const current = await images.current(image)
  if (!running.isUp(id) || current.guest !== record.guest || current.agent !== record.agent) return false
  if (from === undefined) return record.layers.length === 0 && record.base === current.base
  const { base, layers } = inventory.checkpoint(from.checkpointId)
  return base === record.base && layers[0]?.checkpointId === record.layers[0]?.checkpointId
}

/** Ends a sandbox and removes everything of it, its record last. Harmless for an unknown id. */
export async function removeSandbox(host: OpenHost, id: string): Promise<void> {
  const { inventory, running, pool, network, cgroups } = host
  const record = inventory.sandboxes.get(id)
  if (record === undefined) return
  await running.stop(cgroups, id, undefined)
  // Its processes have said goodbye to their peers by now.
  network.release(record.slot)
  await pool.remove(diskOf(record))
  await removeFence(pool, record)
  await inventory.sandboxes.remove(id)
  await inventory.removeUnused()
}
