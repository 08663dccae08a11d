import { ServiceError } from '../../errors.ts'
import type { Semaphore } from '../../lib/async/semaphore.ts'
import { defined } from '../../lib/defined.ts'
import type { FreezeReason } from '../../sandbox/ports/runtime-driver.ts'
import { cleanUp, removeFolders } from '../cleanup.ts'
import { connectionsClosed, dumpContainer, type Dump, type DumpHost } from '../criu/dump.ts'
import { imagesBytes, linkImages } from '../criu/image-files.ts'
import { assertCriu } from '../criu/program.ts'
import { diskOf, layerOf } from '../disk/index.ts'
import { hostToolIn } from '../host-names.ts'
import type { Hostd } from '../hostd/index.ts'
import { bootId } from '../process.ts'
import type { Connections } from './connections.ts'
import { removeFence } from './fence.ts'
import { checkpointMemory, savedMemory } from './inventory.ts'
import type { Machine } from './machine.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'
import type { RunningSandboxes } from './running.ts'

interface MemorySaverOptions
  extends DumpHost, Pick<Machine, 'criu' | 'images' | 'pool' | 'network' | 'inventory' | 'lazy' | 'log'> {
  hostd: Hostd
  running: RunningSandboxes
  connections: Connections
  /** Bounds starts and dumps together. */
  semaphore: Semaphore
}

/** Saves the memory of running sandboxes, with a disk in step with it. */
export class MemorySaver {
  readonly #options: MemorySaverOptions

  constructor(options: MemorySaverOptions) {
    this.#options = options
  }

  /** Ends a running sandbox and keeps its memory under its own record; a failure leaves it running. */
  async saveForHibernation(record: SandboxRecord): Promise<void> {
    const { hostd, pool, network, inventory, running } = this.#options
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
      await this.#dump(record, 'hibernate', { images, leaveRunning: false })
    } catch (error) {
      await cleanUp(this.#options, id, () => removeFolders(hostd, [images]))
      await cleanUp(this.#options, id, () => inventory.sandboxes.put(record))
      throw error
    }
    await inventory.sandboxes.put({ ...record, memory: { ...memory, bytes: await imagesBytes(images) } })
    await cleanUp(this.#options, id, () => running.stop(id, slot))
  }

  /** Makes the layer and the memory of a full checkpoint, in step with each other. The caller removes them after a failure. */
  async saveForCheckpoint(
    record: SandboxRecord,
    checkpointId: string,
  ): Promise<NonNullable<CheckpointRecord['memory']>> {
    const { pool, network, hostd } = this.#options
    const folder = checkpointMemory(checkpointId)
    const images = pool.path(folder)
    if (record.memory?.bytes === undefined) {
      const snapshot = { from: pool.path(diskOf(record)), to: pool.path(layerOf(checkpointId)) }
      await this.#dump(record, 'checkpoint', { images, leaveRunning: true, snapshot })
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

  async #dump(
    { id, slot }: SandboxRecord,
    reason: FreezeReason,
    options: Omit<Dump, 'criu' | 'hostTool'>,
  ): Promise<void> {
    const { names, hostd, network, running, lazy, connections, semaphore, images } = this.#options
    await lazy.loaded(id)
    await semaphore.use(async () => {
      const pid = running.runs.get(id)?.pid
      if (pid === undefined) throw new ServiceError('conflict', `sandbox ${id} does not run`)
      const thaw = await connections.freeze(id, reason)
      try {
        await running.markUnverified(id)
        await hostd.cut(names.guestSocket(id))
        await connectionsClosed(hostd, pid)
        // Ending processes must not reset their connections.
        if (!options.leaveRunning) await network.silence(slot, true)
        const program = { criu: assertCriu(this.#options), hostTool: hostToolIn(images.path) }
        await dumpContainer(this.#options, id, { ...program, ...options })
      } catch (error) {
        if (!options.leaveRunning) await cleanUp(this.#options, id, () => network.silence(slot, false))
        throw error
      } finally {
        thaw()
        if (running.isUp(id)) await running.markVerified(id)
      }
    })
  }
}
