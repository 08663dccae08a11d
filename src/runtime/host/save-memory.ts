import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import type { FreezeReason } from '../../sandbox/ports/runtime-driver.ts'
import { cleanUp, removeFolders } from '../cleanup.ts'
import { connectionsClosed, dumpContainer, type Dump } from '../criu/dump.ts'
import { imagesBytes, linkImages } from '../criu/image-files.ts'
import { assertCriu } from '../criu/program.ts'
import { bootId } from '../process.ts'
import { diskOf, layerOf } from './bundle.ts'
import type { OpenHost } from './context.ts'
import { removeFence } from './fence.ts'
import { hostToolIn } from './image-folder.ts'
import { checkpointMemory, savedMemory } from './inventory.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'

/** Ends a running sandbox and keeps its memory under its own record; a failure leaves it running. */
export async function saveForHibernation(host: OpenHost, record: SandboxRecord): Promise<void> {
  const { hostd, pool, network, inventory, running } = host
  const { id, slot } = record
  const memory = { folder: savedMemory(id), address: network.address(slot), keepConnections: true, unflushed: bootId() }
  const images = pool.path(memory.folder)
  await removeFence(pool, record)
  await inventory.sandboxes.put({ ...record, memory })
  try {
    await dump(host, record, 'hibernate', { images, leaveRunning: false })
  } catch (error) {
    await cleanUp(host, id, () => removeFolders(hostd, [images]))
    await cleanUp(host, id, () => inventory.sandboxes.put(record))
    throw error
  }
  await inventory.sandboxes.put({ ...record, memory: { ...memory, bytes: await imagesBytes(images) } })
  await cleanUp(host, id, () => running.stop(host.cgroups, id, slot))
}

/** Makes the layer and the memory of a full checkpoint, in step with each other. The caller removes them after a failure. */
export async function saveForCheckpoint(
  host: OpenHost,
  record: SandboxRecord,
  checkpointId: string,
): Promise<NonNullable<CheckpointRecord['memory']>> {
  const { pool, network, hostd } = host
  const folder = checkpointMemory(checkpointId)
  const images = pool.path(folder)
  if (record.memory?.bytes === undefined) {
    const snapshot = { from: pool.path(diskOf(record)), to: pool.path(layerOf(checkpointId)) }
    await dump(host, record, 'checkpoint', { images, leaveRunning: true, snapshot })
  } else {
    await linkImages(hostd, pool.path(record.memory.folder), images, record)
    await pool.snapshot(diskOf(record), layerOf(checkpointId))
  }
  const address = record.memory?.address ?? network.address(record.slot)
  const { guest, agent } = record
  const bytes = await imagesBytes(images)
  const saved = { folder, address, bytes, keepConnections: false, guest, unflushed: bootId() }
  const source = record.memory?.bytes === undefined ? undefined : record.memory.folder
  return { ...saved, ...defined({ agent, source }) }
}

async function dump(
  host: OpenHost,
  { id, slot }: SandboxRecord,
  reason: FreezeReason,
  options: Omit<Dump, 'criu' | 'hostTool'>,
): Promise<void> {
  const { names, hostd, network, running, lazy, connections } = host
  await lazy.loaded(id)
  await host.semaphore.use(async () => {
    const pid = running.runs.get(id)?.pid
    if (pid === undefined) throw new ServiceError('conflict', `sandbox ${id} does not run`)
    const thaw = await connections.freeze(id, reason)
    try {
      await running.markUnverified(id)
      await hostd.cut(names.guestSocket(id))
      await connectionsClosed(hostd, pid)
      // Ending processes must not reset their connections.
      if (!options.leaveRunning) await network.silence(slot, true)
      const program = { criu: assertCriu(host), hostTool: hostToolIn(host.images.path) }
      await dumpContainer(host, id, { ...program, ...options })
    } catch (error) {
      if (!options.leaveRunning) await cleanUp(host, id, () => network.silence(slot, false))
      throw error
    } finally {
      thaw()
      if (running.isUp(id)) await running.markVerified(id)
    }
  })
}
