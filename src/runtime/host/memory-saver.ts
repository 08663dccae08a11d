import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import type { Semaphore } from '../../lib/async/semaphore.ts'
import type { FreezeReason } from '../../sandbox/ports/runtime-driver.ts'
import { bootId } from '../process.ts'
import { imagesBytes, linkImages } from '../criu/image-files.ts'
import { diskOf, layerOf } from './bundle.ts'
import { idsPerSandbox } from '../oci/container-config.ts'
import { connectionsClosed, dumpContainer, type Dump, type DumpHost } from '../criu/dump.ts'
import { checkpointMemory, savedMemory } from './inventory.ts'
import type { DriverContext } from './context.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'
import { removeFence } from './fence.ts'
import { cleanUp, removeFolders } from '../cleanup.ts'

/** Saves the memory of sandboxes: for hibernation under the sandbox's own record, for a checkpoint under that one's. */
export class MemorySaver {
  readonly #context: DriverContext
  /** Bounds dumps and starts together. */
  readonly #semaphore: Semaphore

  constructor(context: DriverContext, semaphore: Semaphore) {
    this.#context = context
    this.#semaphore = semaphore
  }

  /** Ends a running sandbox and keeps its memory; a failure leaves it running. */
  async save(host: DumpHost, record: SandboxRecord): Promise<void> {
    const { pool, network, inventory, running } = this.#context
    const { id, slot } = record
    const memory = {
      folder: savedMemory(id),
      address: network.address(slot),
      keepConnections: true,
      unflushed: bootId(),
    }
    const images = pool.path(memory.folder)
    await removeFence(pool, record)
    await inventory.sandboxes.put({ ...record, memory })
    try {
      await this.#dump(host, record, 'hibernate', { images, leaveRunning: false })
    } catch (error) {
      await cleanUp(this.#context, id, () => removeFolders(host.hostd, [images]))
      await cleanUp(this.#context, id, () => inventory.sandboxes.put(record))
      throw error
    }
    await inventory.sandboxes.put({ ...record, memory: { ...memory, bytes: await imagesBytes(images) } })
    await cleanUp(this.#context, id, () => running.stop(host.cgroups, id, slot))
  }

  /** Makes the layer and the memory of a full checkpoint, in step with each other. The caller removes them after a failure. */
  async freeze(
    host: DumpHost,
    record: SandboxRecord,
    checkpointId: string,
  ): Promise<NonNullable<CheckpointRecord['memory']>> {
    const { pool, network } = this.#context
    const folder = checkpointMemory(checkpointId)
    const images = pool.path(folder)
    if (record.memory?.bytes === undefined) {
      const snapshot = { from: pool.path(diskOf(record)), to: pool.path(layerOf(checkpointId)) }
      await this.#dump(host, record, 'checkpoint', { images, leaveRunning: true, snapshot })
    } else {
      const owner = { rangeStart: record.rangeStart, rangeCount: idsPerSandbox, hostname: record.id }
      await linkImages(pool.path(record.memory.folder), images, owner)
      await pool.snapshot(diskOf(record), layerOf(checkpointId))
    }
    const address = record.memory?.address ?? network.address(record.slot)
    const { guest, agent, resolvConfBytes } = record
    const bytes = await imagesBytes(images)
    const saved = { folder, address, bytes, keepConnections: false, guest, unflushed: bootId() }
    return { ...saved, ...defined({ agent, resolvConfBytes }) }
  }

  async #dump(host: DumpHost, { id, slot }: SandboxRecord, reason: FreezeReason, dump: Dump): Promise<void> {
    const { names, hostd, network, running, lazy, connections } = this.#context
    await lazy.whole(id)
    await this.#semaphore.use(async () => {
      const pid = running.pidOf(id)
      if (pid === undefined) throw new ServiceError('conflict', `sandbox ${id} does not run`)
      const thaw = await connections.freeze(id, reason)
      try {
        await running.markUnverified(id)
        await hostd.cut(names.guestSocket(id))
        await connectionsClosed(hostd, pid)
        // Ending processes must not reset their connections.
        if (!dump.leaveRunning) await network.silence(slot, true)
        await dumpContainer(host, id, dump)
      } catch (error) {
        if (!dump.leaveRunning) await cleanUp(this.#context, id, () => network.silence(slot, false))
        throw error
      } finally {
        thaw()
        if (running.isUp(id)) await running.markVerified(id)
      }
    })
  }
}
