import { randomBytes } from 'node:crypto'
import { ServiceError } from '../../errors.ts'
import type { DiskPool } from '../disk/index.ts'
import { layerOf } from './bundle.ts'
import { Claims } from './claims.ts'
import { idsPerSandbox } from './config.ts'
import type { HostNames } from './names.ts'
import { Records } from './records.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'
import { removeFolder } from './remove-folder.ts'

/** Ids of the host from here on belong to sandboxes; distributions give users' ranges below. */
const idRangeFirst = 1_000_000_000
const idRangeCount = Math.floor((2 ** 32 - 1 - idRangeFirst) / idsPerSandbox)

/** Where in the pool the memory of a checkpoint lies. */
export function checkpointMemory(checkpointId: string): string {
  return `memory/checkpoints/${checkpointId}`
}

/** Another folder each time: that of the last one may still be on its way out. */
export function savedMemory(sandboxId: string): string {
  return `memory/saved/${sandboxId}.${randomBytes(4).toString('hex')}`
}

/** What exists and what it holds: records, id ranges, places in the subnet, layers. */
export class Inventory {
  readonly sandboxes: Records<SandboxRecord>
  readonly checkpoints: Records<CheckpointRecord>
  readonly #pool: DiskPool
  readonly #log: (message: string) => void
  readonly #ranges: Claims
  readonly #slots: Claims
  /** Records that are not to be had yet or any more, but whose disk and memory may still be wanted. */
  readonly #held = new Set<SandboxRecord>()
  /** Snapshots that no record names yet. */
  readonly #pendingLayers = new Set<string>()

  constructor(names: HostNames, pool: DiskPool, slots: number, log: (message: string) => void) {
    this.sandboxes = new Records(`${names.dataDir}/sandboxes`)
    this.checkpoints = new Records(`${names.dataDir}/checkpoints`)
    this.#pool = pool
    this.#log = log
    // Servers with other data directories begin elsewhere, so that their ranges seldom meet.
    this.#ranges = new Claims('user ids', idRangeCount, parseInt(names.hash, 16))
    this.#slots = new Claims('addresses', slots, 0)
  }

  /** Throws `not_found`. */
  sandbox(id: string): SandboxRecord {
    const record = this.sandboxes.get(id)
    if (record === undefined) throw new ServiceError('not_found', `there is no sandbox ${id}`)
    return record
  }

  /** Throws `not_found`. */
  checkpoint(id: string): CheckpointRecord {
    const record = this.checkpoints.get(id)
    if (record === undefined) throw new ServiceError('not_found', `there is no checkpoint ${id}`)
    return record
  }

  /**
   * A range and a place that nobody has. The caller puts its record before it waits for anything. Ranges of layers count:
   * no later sandbox may own files of a checkpoint. Throws `no_capacity`.
   */
  claim(): { rangeStart: number; slot: number } {
    const sandboxes = this.sandboxes.all()
    const owners = [...sandboxes, ...this.#layers()]
    const ranges = new Set(owners.map((owner) => (owner.rangeStart - idRangeFirst) / idsPerSandbox))
    // Place 0 of the subnet is the bridge's.
    const slot = 1 + this.#slots.take(new Set(sandboxes.map((record) => record.slot - 1)))
    return { rangeStart: idRangeFirst + this.#ranges.take(ranges) * idsPerSandbox, slot }
  }

  /** Runs `make`, which makes a layer and the checkpoint's record; if it fails neither is left. Throws `conflict`. */
  async addCheckpoint(checkpointId: string, make: () => Promise<CheckpointRecord>): Promise<CheckpointRecord> {
    if (this.checkpoints.get(checkpointId) !== undefined || this.#pendingLayers.has(checkpointId)) {
      throw new ServiceError('conflict', `checkpoint ${checkpointId} exists`)
    }
    if (this.#layers().some((layer) => layer.checkpointId === checkpointId)) {
      throw new ServiceError('conflict', `checkpoint ${checkpointId} was removed and sandboxes still stand on it`)
    }
    this.#pendingLayers.add(checkpointId)
    try {
      const record = await make()
      await this.checkpoints.put(record)
      return record
    } catch (error) {
      await this.checkpoints.remove(checkpointId)
      await this.#pool.remove(layerOf(checkpointId))
      await removeFolder(this.#pool.path(checkpointMemory(checkpointId)))
      throw error
    } finally {
      this.#pendingLayers.delete(checkpointId)
    }
  }

  /** What a sandbox stands on stays until the returned function is called, whatever becomes of its record. */
  hold(record: SandboxRecord): () => void {
    this.#held.add(record)
    return () => this.#held.delete(record)
  }

  /**
   * A layer, or a saved memory, stays while a checkpoint or a sandbox needs it. Never throws: what cannot be removed is logged,
   * keeps nothing else from it, and is tried again by the next call.
   */
  async removeUnused(): Promise<void> {
    for (const name of await this.#list('layers')) {
      const used = this.#pendingLayers.has(name) || this.#layers().some((layer) => layer.checkpointId === name)
      if (!used) await this.#tryRemoving(layerOf(name), (layer) => this.#pool.remove(layer))
    }
    for (const folder of ['memory/checkpoints', 'memory/saved']) {
      for (const name of await this.#list(folder)) {
        const pending = folder === 'memory/checkpoints' && this.#pendingLayers.has(name)
        const used = pending || this.#memories().includes(`${folder}/${name}`)
        if (!used) await this.#tryRemoving(`${folder}/${name}`, (path) => removeFolder(this.#pool.path(path)))
      }
    }
  }

  async #list(folder: string): Promise<string[]> {
    return this.#pool.list(folder).catch((error: unknown) => {
      this.#log(`what is unused in ${folder} cannot be looked for now: ${String(error)}`)
      return []
    })
  }

  async #tryRemoving(path: string, remove: (path: string) => Promise<void>): Promise<void> {
    await remove(path).catch((error: unknown) => this.#log(`${path} cannot be removed now: ${String(error)}`))
  }

  #memories(): string[] {
    return this.#owners().flatMap((record) => record.memory?.folder ?? [])
  }

  #layers() {
    return this.#owners().flatMap((record) => record.layers)
  }

  #owners(): (CheckpointRecord | SandboxRecord)[] {
    return [...this.checkpoints.all(), ...this.sandboxes.all(), ...this.#held]
  }
}
