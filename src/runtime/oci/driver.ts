import type { Duplex } from 'node:stream'
import { ServiceError, isServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import type {
  CheckpointKind,
  DriverCapabilities,
  ImageSource,
  ImportedImage,
  KnownResources,
  ReconcileReport,
  RuntimeDriver,
  SandboxExit,
  SandboxSpec,
  SandboxUsage,
  VolumeSpec,
  VolumeState,
} from '../../sandbox/ports/runtime-driver.ts'
import { allDone, asReported, cleanUp } from '../cleanup.ts'
import { assertCriu } from '../criu/program.ts'
import { checkId } from '../host-names.ts'
import { diskOf, layerOf, limitDisk } from '../host/bundle.ts'
import { createContext, type DriverContext, type OciDriverOptions, type OpenHost } from '../host/context.ts'
import { dialSocket } from '../host/dial.ts'
import { clearResuming, dropStaleMemory, onDiskAlone, removeFence } from '../host/fence.ts'
import { restartInPlace, restoreInPlace } from '../host/in-place.ts'
import { writeDiskUse, writeLimits } from '../host/limit-files.ts'
import { Launcher } from '../host/launcher.ts'
import { openHost, releaseHost } from '../host/open-host.ts'
import { basedOn, freshEtc, type SandboxRecord } from '../host/records.ts'
import { saveForCheckpoint, saveForHibernation } from '../host/save-memory.ts'
import { Supervisor } from '../host/supervisor.ts'
import { createVolume, snapshotVolume, volumeOf } from '../host/volumes.ts'
import { gatewayName, gatewayPort, metadataPort } from '../network/index.ts'
import { bootId } from '../process.ts'
import { resourcesOf } from './container-config.ts'

/** A bound below the 500 layers that overlay takes. */
const layersMax = 450
/** Where memory is not kept, processes get this long to end by themselves before a hibernation. */
const hibernateGraceMs = 3_000

/** Throws `invalid_request` for an illegal subnet. */
export function createOciDriver(options: OciDriverOptions): RuntimeDriver {
  return new OciDriver(createContext(options))
}

/**
 * The sandboxes of one host as OCI containers. `supervisor.ts` has what the driver does unasked. States:
 *
 *     new ── open ──► open ── close ──► new
 *
 * The record of a sandbox or checkpoint is written before anything else of it is made, and removed after everything else:
 * the next `open` repairs what a crash between any two steps leaves. A lock per sandbox serialises work on it.
 */
class OciDriver implements RuntimeDriver {
  readonly name: string
  capabilities: DriverCapabilities = { fullCheckpoints: false, fullCheckpointsReason: 'the runtime is not open' }

  readonly #context: DriverContext
  readonly #supervisor: Supervisor
  readonly #launcher: Launcher
  #opened: OpenHost | undefined
  /** Aborted by `close`. */
  #imports = new AbortController()
  readonly #importing = new Set<Promise<ImportedImage>>()

  constructor(context: DriverContext) {
    this.#context = context
    this.name = context.runtime.name
    this.#supervisor = new Supervisor(context)
    this.#launcher = new Launcher(this.#supervisor)
  }

  capabilitiesOf(): DriverCapabilities {
    return this.capabilities
  }

  async open(known: KnownResources): Promise<ReconcileReport> {
    if (this.#opened !== undefined) throw new ServiceError('conflict', 'the runtime is open already')
    const { host, report } = await openHost(this.#context, known)
    const reason = host.criu.path === undefined ? host.criu.reason : undefined
    this.capabilities = { fullCheckpoints: reason === undefined, ...defined({ fullCheckpointsReason: reason }) }
    this.#opened = host
    this.#imports = new AbortController()
    this.#supervisor.start(host)
    return report
  }

  async close(): Promise<void> {
    const opened = this.#opened
    if (opened === undefined) return
    this.#imports.abort(new ServiceError('unavailable', 'the runtime is closed'))
    await Promise.allSettled(this.#importing)
    await this.#supervisor.stop()
    this.#opened = undefined
    await releaseHost(this.#context, opened.lock)
  }

  prepare(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const { cpuCount, memoryMb, diskMb } = spec
    return this.#locked(checkId(spec.id), () =>
      this.#start(this.#host(), spec, { warm: { cpuCount, memoryMb, diskMb } }, signal),
    )
  }

  async isPrepared(spec: SandboxSpec): Promise<boolean> {
    const host = this.#opened
    if (host?.inventory.sandboxes.get(spec.id)?.warm === undefined) return false
    // What is unknown now would not be created either.
    return this.#isFit(host, spec).catch(() => false)
  }

  create(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const id = checkId(spec.id)
    return this.#locked(id, async () => {
      const host = this.#host()
      const isTakenOver = host.inventory.sandboxes.get(id)?.warm && (await this.#takeOver(host, spec, signal))
      if (!isTakenOver) await this.#start(host, spec, {}, signal)
    })
  }

  hibernate(sandboxId: string): Promise<{ sizeBytes: number }> {
    return this.#locked(sandboxId, async () => {
      const host = this.#host()
      const { inventory, running, pool, log, cgroups, criu } = host
      const record = inventory.sandbox(sandboxId)
      // A sandbox that ended by itself is reported as an exit; its memory is gone, so it cannot hibernate.
      const isUp = running.isUp(sandboxId)
      if (running.runs.has(sandboxId) && !isUp) throw hasEnded(sandboxId)
      if (isUp && criu.path !== undefined) await saveForHibernation(host, record)
      else await running.stop(cgroups, sandboxId, record.slot, hibernateGraceMs)
      const { memory } = inventory.sandbox(sandboxId)
      // A gigabyte takes seconds to reach the disk, and a wake must not wait for that.
      if (memory !== undefined) this.#supervisor.flush()
      const diskBytes = await pool.referencedBytes(diskOf(record), memory === undefined).catch((error: unknown) => {
        // The sandbox hibernates already: an unknown size is no failure.
        log(`the disk size of sandbox ${sandboxId} is not known: ${String(error)}`)
        return 0
      })
      return { sizeBytes: diskBytes + (memory?.bytes ?? 0) }
    })
  }

  wake(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    return this.#locked(spec.id, async () => {
      const host = this.#host()
      const { inventory, running } = host
      const { slot } = inventory.sandbox(spec.id)
      if (running.isUp(spec.id)) return
      const stop = () => running.stop(host.cgroups, spec.id, slot)
      const dropStale = () => dropStaleMemory(host, inventory.sandbox(spec.id))
      await stop()
      // An earlier wake may have failed without writing that down.
      const record = await dropStale()
      try {
        await this.#launcher.again(host, record, spec, signal)
      } catch (error) {
        await cleanUp(host, spec.id, async () => void (await dropStale()))
        await cleanUp(host, spec.id, async () => {
          await stop()
          // CRIU may set its fence until it has ended.
          await dropStale()
          await clearResuming(inventory.sandboxes, spec.id)
        })
        if (record.memory === undefined || inventory.sandbox(spec.id).memory !== undefined) throw error
        this.#supervisor.removeUnused()
        throw onDiskAlone(host, spec.id, asReported(error))
      }
    })
  }

  restore(spec: SandboxSpec, checkpointId: string, signal?: AbortSignal): Promise<void> {
    return this.#locked(spec.id, () => restoreInPlace(this.#host(), this.#launcher, { spec, checkpointId, signal }))
  }

  restart(spec: SandboxSpec, options: { graceMs?: number; signal?: AbortSignal } = {}): Promise<void> {
    return this.#locked(spec.id, () => restartInPlace(this.#host(), this.#launcher, { spec, ...options }))
  }

  resize(spec: SandboxSpec): Promise<void> {
    return this.#locked(spec.id, async () => {
      const host = this.#host()
      const { inventory, running } = host
      const record = inventory.sandbox(spec.id)
      if (running.isUp(spec.id)) await this.#limitProcesses(host, spec)
      await limitDisk(host, record, spec.diskMb)
      await writeLimits(host, spec)
    })
  }

  delete(sandboxId: string): Promise<void> {
    return this.#context.locks.run(sandboxId, () => this.#remove(sandboxId))
  }

  checkpoint(sandboxId: string, checkpointId: string, kind: CheckpointKind): Promise<{ sizeBytes: number }> {
    checkId(checkpointId)
    return this.#locked(sandboxId, async () => {
      const host = this.#host()
      const { inventory, pool, running } = host
      const record = inventory.sandbox(sandboxId)
      if (kind === 'full') assertCriu(host)
      if (kind === 'full' && !running.isUp(sandboxId) && record.memory?.bytes === undefined) {
        throw new ServiceError('conflict', `sandbox ${sandboxId} does not run`)
      }
      if (record.layers.length >= layersMax) {
        const message = `this disk is based on ${record.layers.length} checkpoints, which is the most`
        throw new ServiceError('conflict', message)
      }
      const { sizeBytes } = await inventory.addCheckpoint(checkpointId, async () => {
        const memory = kind === 'full' ? await saveForCheckpoint(host, record, checkpointId) : undefined
        if (memory === undefined) await pool.snapshot(diskOf(record), layerOf(checkpointId))
        const bytes = await pool.referencedBytes(layerOf(checkpointId))
        const { base, rangeStart } = record
        const inodeEnd = await pool.nextInode(diskOf(record))
        const layer = { checkpointId, rangeStart, ...defined({ inodeEnd }) }
        // Made now, so that the first fork need not wait for it.
        if (inodeEnd !== undefined) await host.templates.above(inodeEnd)
        const layers = [layer, ...record.layers]
        const sizes = { sizeBytes: bytes + (memory?.bytes ?? 0) }
        return { id: checkpointId, kind, sandboxId, base, layers, ...sizes, ...defined({ memory }) }
      })
      return { sizeBytes }
    })
  }

  async deleteCheckpoint(checkpointId: string): Promise<void> {
    const { inventory } = this.#host()
    await inventory.checkpoints.remove(checkId(checkpointId))
    await inventory.removeUnused()
  }

  createVolume(spec: VolumeSpec): Promise<void> {
    return this.#locked(checkId(spec.id), () => createVolume(this.#host(), spec))
  }

  async deleteVolume(id: string): Promise<void> {
    await this.#host().pool.remove(volumeOf(id))
  }

  snapshotVolume(volumeId: string, snapshotId: string): Promise<void> {
    return this.#locked(checkId(snapshotId), () => snapshotVolume(this.#host(), volumeId, snapshotId))
  }

  async volumeState(id: string, { flush = false } = {}): Promise<VolumeState | undefined> {
    const { pool } = this.#host()
    const volume = volumeOf(id)
    if (!(await pool.has(volume))) return undefined
    const usedBytes = await pool.referencedBytes(volume, flush)
    return { usedBytes, generation: await pool.generation(volume) }
  }

  assertImportable(reference: string): void {
    this.#context.importer.assertImportable(reference)
  }

  async importImage(checkpointId: string, source: ImageSource, signal?: AbortSignal): Promise<ImportedImage> {
    checkId(checkpointId)
    const host = this.#host()
    const closed = this.#imports.signal
    const ended = signal === undefined ? closed : AbortSignal.any([signal, closed])
    const imported = host.importer.import(host, { checkpointId, source, signal: ended })
    this.#importing.add(imported)
    try {
      return await imported
    } catch (error) {
      throw asReported(error)
    } finally {
      this.#importing.delete(imported)
    }
  }

  async dial(sandboxId: string, signal?: AbortSignal): Promise<Duplex> {
    const { running, names, hostd, connections } = this.#context
    const connect = async () => {
      if (!running.runs.has(sandboxId)) throw new ServiceError('unavailable', `sandbox ${sandboxId} does not run`)
      return dialSocket(hostd, names.guestSocket(sandboxId), signal)
    }
    try {
      const socket = await connections.open(sandboxId, connect, signal)
      const { bytesWritten, bytesRead } = socket
      socket.once('close', () => {
        const isUnanswered = socket.bytesWritten > bytesWritten && socket.bytesRead === bytesRead
        if (isUnanswered) this.#supervisor.probeNow(sandboxId)
      })
      return socket
    } catch (error) {
      this.#supervisor.probeNow(sandboxId)
      throw error
    }
  }

  async connect(sandboxId: string, port: number, signal?: AbortSignal): Promise<Duplex | undefined> {
    const { running, hostd, connections } = this.#context
    const connect = async () => {
      const process = running.runs.get(sandboxId)
      if (process === undefined) throw new ServiceError('unavailable', `sandbox ${sandboxId} does not run`)
      return hostd.connectInside(process, port)
    }
    try {
      return await connections.open(sandboxId, connect, signal)
    } catch (error) {
      if (isServiceError(error)) throw error
      signal?.throwIfAborted()
      if ((error as NodeJS.ErrnoException).code === 'ETIMEDOUT') {
        throw new ServiceError('nothing_listening', `nothing listens on port ${port}`, { cause: error })
      }
      // The guest knows the listeners on other addresses, and says why there is none.
      return undefined
    }
  }

  async usage(sandboxId: string): Promise<SandboxUsage | undefined> {
    const { inventory, running, pool, cgroups, names, network } = this.#host()
    const record = inventory.sandboxes.get(sandboxId)
    if (record === undefined || !running.isUp(sandboxId)) return undefined
    const diskBytes = await pool.countedBytes(diskOf(record))
    if (diskBytes !== undefined) await writeDiskUse(names, sandboxId, diskBytes)
    const usage = cgroups.usage(names.cgroup(sandboxId))
    const traffic = network.traffic(record.slot)
    // It may have ended meanwhile, and its slot may have another owner.
    if (usage === undefined || traffic === undefined || !running.isUp(sandboxId)) return undefined
    return { ...usage, diskBytes, networkReceivedBytes: traffic.receivedBytes, networkSentBytes: traffic.sentBytes }
  }

  onExit(listener: (exit: SandboxExit) => void): void {
    this.#supervisor.onExit(listener)
  }

  gateway(): { listenHost: string; listenPort: number; insideHost: string } {
    return { listenHost: this.#context.network.subnet.gatewayAddress, listenPort: gatewayPort, insideHost: gatewayName }
  }

  metadata(): { listenHost: string; listenPort: number } {
    return { listenHost: this.#context.network.subnet.gatewayAddress, listenPort: metadataPort }
  }

  sandboxAt(peerAddress: string): string | undefined {
    const { network, inventory } = this.#context
    const slot = network.subnet.slotOf(peerAddress)
    return slot === undefined ? undefined : inventory.sandboxes.all().find((record) => record.slot === slot)?.id
  }

  /** Runs work under the lock of one sandbox. Reports a disk that fills up meanwhile as `no_capacity`, a sandbox that ends as `unavailable`. */
  #locked<Result>(id: string, work: () => Promise<Result>): Promise<Result> {
    const { locks, running } = this.#context
    return locks.run(id, async () => {
      try {
        return await work()
      } catch (error) {
        const reported = asReported(error)
        if (reported !== error) throw reported
        const isOfProcesses = !isServiceError(error) || error.code === 'conflict'
        if (!isOfProcesses || !running.runs.has(id) || running.isUp(id)) throw error
        throw hasEnded(id, error)
      }
    })
  }

  /** A cold start. A failure leaves nothing. */
  async #start(
    host: OpenHost,
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
      ...(from === undefined ? { ...current, layers: [], ...freshEtc } : basedOn(from, current, bootId())),
      ...kind,
    }
    const recorded = inventory.sandboxes.put(record)
    try {
      await recorded
      await this.#launcher.first(host, record, spec, signal)
    } catch (error) {
      await cleanUp(this.#context, id, () => this.#remove(id))
      throw error
    }
  }

  /** Throws `conflict` when the processes hold more memory than that. */
  async #limitProcesses({ lazy, names, runtime, cgroups, traits }: OpenHost, spec: SandboxSpec): Promise<void> {
    // Pages that are still to come count too.
    await lazy.loaded(spec.id)
    const resources = resourcesOf(spec, traits)
    const group = names.cgroup(spec.id)
    await cgroups.assertMemoryFits(group, resources.memory.limit)
    await runtime.update(spec.id, resources)
    // Last, and not by the runtime: where it refuses the memory, it may have changed the processors before.
    cgroups.processors?.change(group, spec.cpuCount)
  }

  /** Gives a prepared sandbox the limits of its owner and writes down that it has one. False: it is unfit, and gone. */
  async #takeOver(host: OpenHost, spec: SandboxSpec, signal: AbortSignal | undefined): Promise<boolean> {
    const { inventory } = host
    const { id } = spec
    try {
      signal?.throwIfAborted()
      const isFit = await this.#isFit(host, spec)
      const { warm: has, ...record } = inventory.sandbox(id)
      if (isFit) {
        const isSized = spec.cpuCount === has?.cpuCount && spec.memoryMb === has.memoryMb
        await allDone([
          ...(isSized ? [] : [this.#limitProcesses(host, spec)]),
          ...(spec.diskMb === has?.diskMb ? [] : [limitDisk(host, record, spec.diskMb)]),
          inventory.sandboxes.put(record),
        ])
        await writeLimits(host, spec)
        return true
      }
    } catch (error) {
      await cleanUp(this.#context, id, () => this.#remove(id))
      throw error
    }
    await this.#remove(id)
    return false
  }

  /** Whether a prepared sandbox runs, from what a start would take now. */
  async #isFit({ inventory, images, running }: OpenHost, spec: SandboxSpec): Promise<boolean> {
    const { id, image, from, volumes = [] } = spec
    // They are mounted before the guest starts.
    if (volumes.length > 0) return false
    const record = inventory.sandbox(id)
    const current = await images.current(image)
    if (!running.isUp(id) || current.guest !== record.guest || current.agent !== record.agent) return false
    if (from === undefined) return record.layers.length === 0 && record.base === current.base
    const { base, layers } = inventory.checkpoint(from.checkpointId)
    return base === record.base && layers[0]?.checkpointId === record.layers[0]?.checkpointId
  }

  async #remove(id: string): Promise<void> {
    const { inventory, running, pool, network, cgroups } = this.#host()
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

  #host(): OpenHost {
    if (this.#opened === undefined) throw new ServiceError('unavailable', 'the runtime is not open')
    return this.#opened
  }
}

function hasEnded(id: string, cause?: unknown): ServiceError {
  return new ServiceError('unavailable', `sandbox ${id} has just ended`, { cause })
}
