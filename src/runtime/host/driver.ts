import type { Duplex } from 'node:stream'
import { ServiceError, isServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import type {
  Alignment,
  CheckpointKind,
  DiskReport,
  DriverCapabilities,
  DiskTrees,
  DriverEgress,
  ImageSource,
  ImageTarget,
  ImportedImage,
  KnownResources,
  ReconcileReport,
  RuntimeDriver,
  SandboxExit,
  SandboxShares,
  SandboxSpec,
  SandboxUsage,
  StepMounts,
  VolumeSpec,
  VolumeState,
} from '../../sandbox/ports/runtime-driver.ts'
import { assertCriu } from '../criu/program.ts'
import { diskOf, layerOf, asReported } from '../disk/index.ts'
import { checkId } from '../host-names.ts'
import { gatewayName, gatewayPort, metadataPort } from '../network/index.ts'
import { alignSandbox } from './alignment.ts'
import { PoolBackups } from './backup-cut.ts'
import { createContext, type DriverContext, type OciDriverOptions, type OpenHost } from './context.ts'
import { dialSocket } from './dial.ts'
import { dropStaleMemory } from './fence.ts'
import { ImageTransfers } from './image-transfers.ts'
import { openHost, releaseHost } from './open-host.ts'
import { usageOf } from './usage.ts'
import { createVolume, snapshotVolume, volumeOf } from './volumes.ts'

/** A bound below the 500 layers that overlay takes. */
const layersMax = 450
/** Where memory is not kept, processes get this long to end by themselves before a hibernation. */
const hibernateGraceMs = 3_000

/** Throws `invalid_request` for an illegal subnet. */
export function createOciDriver(options: OciDriverOptions): RuntimeDriver & { readonly backups: PoolBackups } {
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

  /** Works while the driver is open. */
  readonly backups: PoolBackups
  readonly #context: DriverContext
  #opened: OpenHost | undefined
  #onExit: (exit: SandboxExit) => void = () => undefined
  #transfers = new ImageTransfers()

  constructor(context: DriverContext) {
    this.#context = context
    this.backups = new PoolBackups(context)
    this.name = context.runtime.name
  }

  capabilitiesOf(): DriverCapabilities {
    return this.capabilities
  }

  async open(known: KnownResources): Promise<ReconcileReport> {
    if (this.#opened !== undefined) throw new ServiceError('conflict', 'the runtime is open already')
    const { host, report } = await openHost(this.#context, known, (exit) => this.#onExit(exit))
    const reason = host.criu.path === undefined ? host.criu.reason : undefined
    this.capabilities = { fullCheckpoints: reason === undefined, ...defined({ fullCheckpointsReason: reason }) }
    this.#opened = host
    this.#transfers = new ImageTransfers()
    host.supervisor.start()
    return report
  }

  async close(): Promise<void> {
    const opened = this.#opened
    if (opened === undefined) return
    await this.#transfers.close()
    await opened.supervisor.stop()
    this.#opened = undefined
    await releaseHost(this.#context, opened.lock)
  }

  prepare(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const { cpuCount, memoryMb, diskMb } = spec
    return this.#locked(checkId(spec.id), () =>
      this.#hostWithSpace().firstStart.start(spec, { warm: { cpuCount, memoryMb, diskMb } }, signal),
    )
  }

  async isPrepared(spec: SandboxSpec): Promise<boolean> {
    const host = this.#opened
    if (host?.inventory.sandboxes.get(spec.id)?.warm === undefined) return false
    // Ignore an error: a create fails by itself when its image or checkpoint is unknown by now.
    return host.firstStart.isFit(spec).catch(() => false)
  }

  create(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const id = checkId(spec.id)
    return this.#locked(id, async () => {
      const { inventory, firstStart } = this.#hostWithSpace()
      const isTakenOver = inventory.sandboxes.get(id)?.warm && (await firstStart.takeOver(spec, signal))
      if (!isTakenOver) await firstStart.start(spec, {}, signal)
    })
  }

  hibernate(sandboxId: string): Promise<{ sizeBytes: number }> {
    return this.#locked(sandboxId, async () => {
      const { inventory, running, pool, log, criu, memory: saver, supervisor } = this.#hostToSave(sandboxId)
      const record = inventory.sandbox(sandboxId)
      // A sandbox that ended by itself is reported as an exit; its memory is gone, so it cannot hibernate.
      const isUp = running.isUp(sandboxId)
      if (running.runs.has(sandboxId) && !isUp) throw hasEnded(sandboxId)
      if (isUp && criu.path !== undefined) await saver.saveForHibernation(record)
      else await running.stop(sandboxId, record.slot, hibernateGraceMs)
      const { memory } = inventory.sandbox(sandboxId)
      // A gigabyte takes seconds to reach the disk, and a wake must not wait for that.
      if (memory !== undefined) supervisor.flush()
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
      host.inventory.sandbox(spec.id)
      if (host.running.isUp(spec.id)) return
      host.space.assertRuns()
      await host.launcher.wake(spec, signal)
    })
  }

  hasMemory(sandboxId: string): boolean {
    return this.#opened?.inventory.sandboxes.get(sandboxId)?.memory?.bytes !== undefined
  }

  hookFailure(sandboxId: string): string | undefined {
    return this.#opened?.launcher.hookFailures.get(sandboxId)
  }

  isMemoryKept(sandboxId: string, checkpointId: string): boolean {
    if (this.#opened === undefined || !this.hasMemory(sandboxId)) return false
    const { sandboxes, checkpoints } = this.#opened.inventory
    return checkpoints.get(checkpointId)?.memory?.source === sandboxes.get(sandboxId)?.memory?.folder
  }

  restore(spec: SandboxSpec, checkpointId: string, signal?: AbortSignal): Promise<void> {
    return this.#locked(spec.id, () => this.#hostToSave(spec.id).inPlace.restore({ spec, checkpointId, signal }))
  }

  restart(spec: SandboxSpec, options: { graceMs?: number; signal?: AbortSignal } = {}): Promise<void> {
    return this.#locked(spec.id, async () => {
      const host = this.#host()
      host.space.assertRuns()
      await host.inPlace.restart({ spec, ...options })
    })
  }

  resize(spec: SandboxSpec): Promise<void> {
    return this.#locked(spec.id, async () => {
      const { inventory, running, limits } = this.#host()
      const record = inventory.sandbox(spec.id)
      if (running.isUp(spec.id)) await limits.limitProcesses(spec)
      await limits.limitDisk(record, spec.diskMb)
      await limits.show(spec)
    })
  }

  align(spec: SandboxSpec): Promise<Alignment> {
    return this.#locked(spec.id, () => alignSandbox(this.#host(), spec))
  }

  delete(sandboxId: string): Promise<void> {
    return this.#context.locks.run(sandboxId, async () => {
      const { firstStart, launcher, stepMounts } = this.#host()
      await firstStart.remove(sandboxId)
      await stepMounts.forget(sandboxId)
      launcher.hookFailures.delete(sandboxId)
    })
  }

  checkpoint(sandboxId: string, checkpointId: string, kind: CheckpointKind): Promise<{ sizeBytes: number }> {
    checkId(checkpointId)
    return this.#locked(sandboxId, async () => {
      const host = this.#hostToSave(sandboxId)
      const { inventory, pool, running } = host
      // A failed wake may not have recorded that the disk is newer than the memory.
      const found = inventory.sandbox(sandboxId)
      const record = running.isUp(sandboxId) ? found : await dropStaleMemory(host, found)
      const hasMemory = record.memory?.bytes !== undefined
      if (kind === 'full' && !hasMemory) assertCriu(host)
      if (kind === 'full' && !hasMemory && !running.isUp(sandboxId)) {
        throw new ServiceError('conflict', `sandbox ${sandboxId} does not run`)
      }
      if (record.layers.length >= layersMax)
        throw new ServiceError('conflict', `this disk is based on ${layersMax} checkpoints, which is the most`)
      const { sizeBytes } = await inventory.addCheckpoint(checkpointId, async () => {
        const memory = kind === 'full' ? await host.memory.saveForCheckpoint(record, checkpointId) : undefined
        if (memory === undefined) await pool.snapshot(diskOf(record), layerOf(checkpointId))
        const bytes = await pool.referencedBytes(layerOf(checkpointId))
        const inodeEnd = await pool.nextInode(diskOf(record))
        const layer = { checkpointId, rangeStart: record.rangeStart, ...defined({ inodeEnd }) }
        // Made now, so that the first fork need not wait for it.
        if (inodeEnd !== undefined) await host.templates.above(inodeEnd)
        const layers = [layer, ...record.layers]
        const sizes = { sizeBytes: bytes + (memory?.bytes ?? 0) }
        return { id: checkpointId, kind, sandboxId, base: record.base, layers, ...sizes, ...defined({ memory }) }
      })
      return { sizeBytes }
    })
  }

  async deleteCheckpoint(checkpointId: string): Promise<void> {
    const { inventory } = this.#host()
    await inventory.checkpoints.remove(checkId(checkpointId))
    await inventory.removeUnused()
  }

  async emptyQuarantine(): Promise<void> {
    const { locks, quarantineKeptMs } = this.#context
    await locks.run('the quarantine', () => this.#host().inventory.removeExpired(quarantineKeptMs))
  }

  createVolume(spec: VolumeSpec): Promise<void> {
    return this.#locked(checkId(spec.id), () => createVolume(this.#hostWithSpace().pool, spec))
  }

  async deleteVolume(id: string): Promise<void> {
    await this.#host().pool.remove(volumeOf(id))
  }

  snapshotVolume(volumeId: string, snapshotId: string): Promise<void> {
    return this.#locked(checkId(snapshotId), () => snapshotVolume(this.#hostWithSpace().pool, volumeId, snapshotId))
  }

  async volumeState(id: string, { flush = false } = {}): Promise<VolumeState | undefined> {
    const { pool } = this.#host()
    const volume = volumeOf(id)
    if (!(await pool.has(volume))) return undefined
    return { usedBytes: await pool.referencedBytes(volume, flush), generation: await pool.generation(volume) }
  }

  assertImportable(reference: string, field?: 'image.oci' | 'reference'): void {
    this.#context.registries.parse(reference, field)
  }

  async importImage(
    checkpointId: string,
    source: ImageSource,
    signal?: AbortSignal,
    owner?: string,
  ): Promise<ImportedImage> {
    checkId(checkpointId)
    const { importer } = this.#hostWithSpace()
    return await this.#transfers.run(signal, (ended) => importer.import({ checkpointId, source, signal: ended, owner }))
  }

  async pushImage(
    archive: AsyncIterable<Uint8Array>,
    target: ImageTarget,
    signal?: AbortSignal,
  ): Promise<{ digest: string }> {
    const { pusher } = this.#hostWithSpace()
    return await this.#transfers.run(signal, (ended) => pusher.push(archive, target, ended))
  }

  get stepMounts(): StepMounts {
    return this.#host().stepMounts
  }

  async dial(sandboxId: string, signal?: AbortSignal, owner?: string): Promise<Duplex> {
    const { running, names, hostd, space, connections, supervisor } = this.#host()
    // The guest of a frozen sandbox does not answer.
    space.assertRuns()
    const connect = async () => {
      if (!running.runs.has(sandboxId)) throw new ServiceError('unavailable', `sandbox ${sandboxId} does not run`)
      return dialSocket(hostd, names.guestSocket(sandboxId), signal)
    }
    try {
      const socket = await connections.open(sandboxId, connect, { signal, owner })
      const { bytesWritten, bytesRead } = socket
      socket.once('close', () => {
        const isUnanswered = socket.bytesWritten > bytesWritten && socket.bytesRead === bytesRead
        if (isUnanswered) supervisor.probeNow(sandboxId)
      })
      return socket
    } catch (error) {
      supervisor.probeNow(sandboxId)
      throw error
    }
  }

  async connect(sandboxId: string, port: number, signal?: AbortSignal, owner?: string): Promise<Duplex | undefined> {
    const { running, hostd, space, connections } = this.#host()
    space.assertRuns()
    const connect = async () => {
      const process = running.runs.get(sandboxId)
      if (process === undefined) throw new ServiceError('unavailable', `sandbox ${sandboxId} does not run`)
      return hostd.connectInside(process, port)
    }
    try {
      return await connections.open(sandboxId, connect, { signal, owner, kind: 'port' })
    } catch (error) {
      if (isServiceError(error)) throw error
      signal?.throwIfAborted()
      if ((error as NodeJS.ErrnoException).code === 'ETIMEDOUT') {
        throw new ServiceError('nothing_listening', `nothing listens on port ${port}`, { cause: error })
      }
      // The guest knows listeners on other addresses, or says why there are none.
      return undefined
    }
  }

  async usage(sandboxId: string): Promise<SandboxUsage | undefined> {
    return await usageOf(this.#host(), sandboxId)
  }

  get egress(): DriverEgress {
    return this.#context.egress
  }

  get trees(): DiskTrees {
    return this.#host().trees
  }

  get shares(): SandboxShares {
    return this.#host().shares
  }

  disk(): DiskReport {
    return this.#context.space.report
  }

  onExit(listener: (exit: SandboxExit) => void): void {
    this.#onExit = listener
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
    return this.#context.locks.run(id, async () => {
      try {
        return await work()
      } catch (error) {
        const reported = asReported(error)
        if (reported !== error) throw reported
        const isOfProcesses = !isServiceError(error) || error.code === 'conflict'
        const running = this.#opened?.running
        if (!isOfProcesses || running?.runs.has(id) !== true || running.isUp(id)) throw error
        throw hasEnded(id, error)
      }
    })
  }

  /** The host, for operations that write data. Throws `no_capacity` while the disk takes no more. */
  #hostWithSpace(): OpenHost {
    const host = this.#host()
    host.space.assertTakesData()
    return host
  }

  /** Likewise, for operations on what a sandbox is. Throws `conflict` while a step of a build has something mounted in it. */
  #hostToSave(sandboxId: string): OpenHost {
    const host = this.#hostWithSpace()
    host.stepMounts.assertNone(sandboxId)
    return host
  }

  #host(): OpenHost {
    if (this.#opened === undefined) throw new ServiceError('unavailable', 'the runtime is not open')
    return this.#opened
  }
}

function hasEnded(id: string, cause?: unknown): ServiceError {
  return new ServiceError('unavailable', `sandbox ${id} has just ended`, { cause })
}
