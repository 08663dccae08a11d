import type { Duplex } from 'node:stream'
import { ServiceError, isServiceError } from '../../errors.ts'
import type {
  CheckpointKind,
  DriverCapabilities,
  KnownResources,
  ReconcileReport,
  RuntimeDriver,
  SandboxExit,
  SandboxSpec,
} from '../../sandbox/ports/runtime-driver.ts'
import { bootId } from '../boot.ts'
import { gatewayName, gatewayPort } from '../network/index.ts'
import { diskOf, layerOf, limitDisk } from './bundle.ts'
import { resourcesOf } from './config.ts'
import { updateContainer } from './container.ts'
import { dialSocket } from './dial.ts'
import type { DumpHost } from './dump.ts'
import { expireHourly } from './expiry.ts'
import { restartInPlace, restoreInPlace } from './in-place.ts'
import { Memory } from './memory.ts'
import { checkId } from './names.ts'
import { demandCriu, openHost, releaseHost } from './open-host.ts'
import type { OpenHost } from './open-host.ts'
import { makeParts } from './parts.ts'
import type { Parts, RuncDriverOptions } from './parts.ts'
import { freshEtc, standsOn } from './records.ts'
import type { SandboxRecord } from './records.ts'
import { giveUpStale, onDiskAlone, removeFence, removeMark } from './resumed.ts'
import { Starts } from './starts.ts'
import { cleanUp, toldAs } from './steps.ts'
import { Watch } from './watch.ts'

/** A bound below the 500 layers that overlay takes. */
const layersMax = 450
/** While memory is not kept, processes may put their affairs in order before a hibernation. */
const hibernateGraceMs = 3_000

/** Throws `invalid_request` for a subnet that is none. */
export function createRuncDriver(options: RuncDriverOptions): RuntimeDriver {
  return new RuncDriver(makeParts(options))
}

/**
 * Sandboxes of one host as OCI containers: what the port asks for. What the driver does by itself is in `watch.ts`. Its
 * states:
 *
 *     new ── open ──► open ── close ──► new
 *
 * The record of a sandbox or checkpoint is written before anything else of it is made, and removed after everything else:
 * a crash between any two steps is mended by the next `open`. Work on one sandbox is done in turns.
 */
class RuncDriver implements RuntimeDriver {
  readonly name = 'runc'
  capabilities: DriverCapabilities = { fullCheckpoints: false, fullCheckpointsReason: 'the runtime is not open' }

  readonly #parts: Parts
  readonly #watch: Watch
  readonly #starts: Starts
  readonly #memory: Memory
  #opened: OpenHost | undefined
  #expiry: NodeJS.Timeout | undefined

  constructor(parts: Parts) {
    this.#parts = parts
    this.#watch = new Watch(parts)
    this.#starts = new Starts(parts, this.#watch)
    this.#memory = new Memory(parts, this.#starts.gate)
  }

  capabilitiesOf(): DriverCapabilities {
    return this.capabilities
  }

  async open(known: KnownResources): Promise<ReconcileReport> {
    if (this.#opened !== undefined) throw new ServiceError('conflict', 'the runtime is open already')
    const { opened, report } = await openHost(this.#parts, known)
    const { criu } = opened
    this.capabilities =
      criu.path === undefined
        ? { fullCheckpoints: false, fullCheckpointsReason: criu.reason }
        : { fullCheckpoints: true }
    this.#opened = opened
    this.#watch.start(opened)
    this.#expiry = expireHourly(this.#parts)
    return report
  }

  async close(): Promise<void> {
    const opened = this.#opened
    if (opened === undefined) return
    clearInterval(this.#expiry)
    await this.#watch.stop()
    this.#opened = undefined
    await releaseHost(this.#parts, opened.lock)
  }

  create(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const id = checkId(spec.id)
    return this.#turn(id, async () => {
      const opened = this.#host()
      const { inventory, images } = this.#parts
      signal?.throwIfAborted()
      const current = await images.current(spec.image)
      const disk = await inventory.freshDisk(id)
      // From here to `put` nothing waits: what is claimed cannot be claimed twice, nor the checkpoint's layers be removed.
      if (inventory.sandboxes.get(id) !== undefined) throw new ServiceError('conflict', `sandbox ${id} exists`)
      const from = spec.from === undefined ? undefined : inventory.checkpoint(spec.from.checkpointId)
      const record: SandboxRecord = {
        id,
        ...disk,
        ...inventory.claim(),
        ...(from === undefined ? { ...current, layers: [], ...freshEtc } : standsOn(from, current, bootId())),
      }
      const recorded = inventory.sandboxes.put(record)
      try {
        await recorded
        await this.#starts.first(opened, record, spec, signal)
      } catch (error) {
        await cleanUp(this.#parts, id, () => this.#remove(id))
        throw error
      }
    })
  }

  hibernate(sandboxId: string): Promise<{ sizeBytes: number }> {
    return this.#turn(sandboxId, async () => {
      const { cgroups, criu } = this.#host()
      const { inventory, running, pool, log } = this.#parts
      const record = inventory.sandbox(sandboxId)
      // It has ended by itself, which must be told; with its memory gone it is not what hibernates.
      const isUp = running.isUp(sandboxId)
      if (running.has(sandboxId) && !isUp) throw hasEnded(sandboxId)
      if (isUp && criu.path !== undefined) await this.#memory.save(this.#dumpHost(), record)
      else await running.stop(cgroups, sandboxId, record.slot, hibernateGraceMs)
      const { memory } = inventory.sandbox(sandboxId)
      // A gigabyte takes seconds to reach the disk, and who wakes the sandbox must not wait for that.
      if (memory !== undefined) this.#watch.flush()
      const diskBytes = await pool.referencedBytes(diskOf(record), memory === undefined).catch((error: unknown) => {
        // It hibernates already, whatever its size is.
        log(`how much the disk of sandbox ${sandboxId} takes is not known: ${String(error)}`)
        return 0
      })
      return { sizeBytes: diskBytes + (memory?.bytes ?? 0) }
    })
  }

  wake(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    return this.#turn(spec.id, async () => {
      const opened = this.#host()
      const { inventory, running } = this.#parts
      const { slot } = inventory.sandbox(spec.id)
      if (running.isUp(spec.id)) return
      const stop = () => running.stop(opened.cgroups, spec.id, slot)
      const giveUpMemory = () => giveUpStale(this.#parts, inventory.sandboxes, inventory.sandbox(spec.id))
      await stop()
      // A failure of an earlier wake may not have been written down.
      const record = await giveUpMemory()
      try {
        await this.#starts.again(opened, record, spec, signal)
      } catch (error) {
        await cleanUp(this.#parts, spec.id, async () => void (await giveUpMemory()))
        await cleanUp(this.#parts, spec.id, async () => {
          await stop()
          // Until it has ended CRIU may leave its mark.
          await giveUpMemory()
          await removeFence(inventory.sandboxes, spec.id)
        })
        if (record.memory === undefined || inventory.sandbox(spec.id).memory !== undefined) throw error
        this.#watch.removeUnused()
        throw onDiskAlone(this.#parts, spec.id, toldAs(error))
      }
    })
  }

  restore(spec: SandboxSpec, checkpointId: string, signal?: AbortSignal): Promise<void> {
    return this.#turn(spec.id, () =>
      restoreInPlace(this.#parts, this.#starts, this.#host(), { spec, checkpointId, signal }),
    )
  }

  restart(spec: SandboxSpec, options: { graceMs?: number; signal?: AbortSignal } = {}): Promise<void> {
    const { graceMs = 0, signal } = options
    return this.#turn(spec.id, () => restartInPlace(this.#parts, this.#starts, this.#host(), { spec, graceMs, signal }))
  }

  resize(spec: SandboxSpec): Promise<void> {
    return this.#turn(spec.id, async () => {
      const { bundles, cgroups } = this.#host()
      const { inventory, running, lazy, names } = this.#parts
      const record = inventory.sandbox(spec.id)
      if (running.isUp(spec.id)) {
        // What is still to come counts too.
        await lazy.whole(spec.id)
        await updateContainer(names, cgroups, spec.id, resourcesOf(spec, bundles.traits))
      }
      await limitDisk(bundles, record, spec.diskMb)
    })
  }

  delete(sandboxId: string): Promise<void> {
    return this.#parts.turns.run(sandboxId, () => this.#remove(sandboxId))
  }

  checkpoint(sandboxId: string, checkpointId: string, kind: CheckpointKind): Promise<{ sizeBytes: number }> {
    checkId(checkpointId)
    return this.#turn(sandboxId, async () => {
      const { inventory, pool } = this.#parts
      const { bundles } = this.#host()
      const record = inventory.sandbox(sandboxId)
      if (kind === 'full') this.#demandMemory(record)
      if (record.layers.length >= layersMax) {
        throw new ServiceError('conflict', `this disk stands on ${record.layers.length} checkpoints, which is the most`)
      }
      const { sizeBytes } = await inventory.addCheckpoint(checkpointId, async () => {
        const memory = kind === 'full' ? await this.#memory.freeze(this.#dumpHost(), record, checkpointId) : undefined
        if (memory === undefined) await pool.snapshot(diskOf(record), layerOf(checkpointId))
        const bytes = await pool.referencedBytes(layerOf(checkpointId))
        const { base, rangeStart } = record
        const inodeEnd = await pool.nextInode(diskOf(record))
        const layer = { checkpointId, rangeStart, ...(inodeEnd === undefined ? {} : { inodeEnd }) }
        // Made now, it is there when the first fork starts.
        if (inodeEnd !== undefined) await bundles.seeds.above(inodeEnd)
        const layers = [layer, ...record.layers]
        const whole = { id: checkpointId, kind, sandboxId, base, layers, sizeBytes: bytes + (memory?.bytes ?? 0) }
        return memory === undefined ? whole : { ...whole, memory }
      })
      return { sizeBytes }
    })
  }

  async deleteCheckpoint(checkpointId: string): Promise<void> {
    this.#host()
    const { inventory } = this.#parts
    await inventory.checkpoints.remove(checkId(checkpointId))
    await inventory.removeUnused()
  }

  async dial(sandboxId: string, signal?: AbortSignal): Promise<Duplex> {
    const { running, names, hostd, connections } = this.#parts
    const connect = async () => {
      if (!running.has(sandboxId)) throw new ServiceError('unavailable', `sandbox ${sandboxId} does not run`)
      return dialSocket(hostd, names.guestSocket(sandboxId), signal)
    }
    try {
      const socket = await connections.open(sandboxId, connect, signal)
      const { bytesWritten, bytesRead } = socket
      socket.once('close', () => {
        const isUnanswered = socket.bytesWritten > bytesWritten && socket.bytesRead === bytesRead
        if (isUnanswered) this.#watch.suspect(sandboxId)
      })
      return socket
    } catch (error) {
      this.#watch.suspect(sandboxId)
      throw error
    }
  }

  onExit(listener: (exit: SandboxExit) => void): void {
    this.#watch.onExit(listener)
  }

  gateway(): { listenHost: string; listenPort: number; insideHost: string } {
    return { listenHost: this.#parts.network.subnet.gatewayAddress, listenPort: gatewayPort, insideHost: gatewayName }
  }

  sandboxAt(peerAddress: string): string | undefined {
    const { network, inventory } = this.#parts
    return inventory.sandboxes.all().find((record) => network.subnet.address(record.slot) === peerAddress)?.id
  }

  /** Work on one sandbox, alone. A disk that fills up in the middle of it is told as such, and so is a sandbox that ends. */
  #turn<Result>(id: string, work: () => Promise<Result>): Promise<Result> {
    const { turns, running } = this.#parts
    return turns.run(id, async () => {
      try {
        return await work()
      } catch (error) {
        const told = toldAs(error)
        if (told !== error) throw told
        const isOfProcesses = !isServiceError(error) || error.code === 'conflict'
        if (!isOfProcesses || !running.has(id) || running.isUp(id)) throw error
        throw hasEnded(id, error)
      }
    })
  }

  /** Throws unless the memory of a sandbox can be frozen. */
  #demandMemory({ id, memory }: SandboxRecord): void {
    demandCriu(this.#host())
    if (!this.#parts.running.isUp(id) && memory?.bytes === undefined) {
      throw new ServiceError('conflict', `sandbox ${id} does not run`)
    }
  }

  #dumpHost(): DumpHost {
    const opened = this.#host()
    const { names, hostd } = this.#parts
    return { names, hostd, cgroups: opened.cgroups, criu: demandCriu(opened) }
  }

  async #remove(id: string): Promise<void> {
    const { cgroups } = this.#host()
    const { inventory, running, pool } = this.#parts
    const record = inventory.sandboxes.get(id)
    if (record === undefined) return
    await running.stop(cgroups, id, record.slot)
    await pool.remove(diskOf(record))
    await removeMark(pool, record)
    await inventory.sandboxes.remove(id)
    await inventory.removeUnused()
  }

  #host(): OpenHost {
    if (this.#opened === undefined) throw new ServiceError('unavailable', 'the runtime is not open')
    return this.#opened
  }
}

function hasEnded(id: string, cause?: unknown): ServiceError {
  return new ServiceError('unavailable', `sandbox ${id} has just ended`, { cause })
}
