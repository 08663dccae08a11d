import { randomBytes } from 'node:crypto'
import { basename } from 'node:path'
import { ServiceError } from '../../errors.ts'
import type { Semaphore } from '../../lib/async/semaphore.ts'
import type { Quarantined } from '../../sandbox/ports/runtime-driver.ts'
import { type DiskPool, diskOf, layerOf, type Layer } from '../disk/index.ts'
import { exists } from '../exists.ts'
import type { HostTool } from '../hostd/index.ts'
import { idsPerSandbox } from '../oci/container-config.ts'
import type { HostNames } from '../host-names.ts'
import { removeFolders } from '../cleanup.ts'
import { Quarantine, sandboxOfDisk, type QuarantineItem } from './quarantine.ts'
import { readCheckpointRecord, readSandboxRecord, Records } from './records.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'
import { Allocator, References } from './references.ts'

/** Ids of the host from here on belong to sandboxes; distributions give users' ranges below. */
const idRangeFirst = 1_000_000_000
const idRangeCount = Math.floor((2 ** 32 - 1 - idRangeFirst) / idsPerSandbox)

/** Where in the pool the memory of a checkpoint lies. */
export function checkpointMemory(checkpointId: string): string {
  return `memory/checkpoints/${checkpointId}`
}

/** A new folder for each dump: the removal of the last one may still be under way. */
export function savedMemory(sandboxId: string): string {
  return `memory/saved/${sandboxId}.${randomBytes(4).toString('hex')}`
}

export interface InventoryOptions {
  names: Pick<HostNames, 'dataDir' | 'hash'>
  hostd: HostTool
  pool: Pick<DiskPool, 'path' | 'list' | 'remove'>
  /** How many addresses the subnet has for sandboxes. */
  slots: number
  /** See `context.ts`. Absent in tests alone. */
  changes?: Pick<Semaphore, 'use'>
  log: (message: string) => void
}

/** All records, in force and in quarantine, and what they own: id ranges, address slots, layers, memory. */
export class Inventory {
  readonly sandboxes: Records<SandboxRecord>
  readonly checkpoints: Records<CheckpointRecord>
  readonly quarantine: Quarantine
  readonly #references = new References()
  readonly #options: InventoryOptions
  readonly #ranges: Allocator
  readonly #slots: Allocator
  /** Records that are not in force (yet, or any more), but whose disk and memory must stay. */
  readonly #held = new Set<{ record: SandboxRecord }>()
  /** Snapshots that no record names yet. */
  readonly #pendingLayers = new Set<string>()
  /** Removals under way, by path. */
  readonly #removing = new Map<string, Promise<void>>()

  constructor(options: InventoryOptions) {
    const { dataDir, hash } = options.names
    const { changes } = options
    this.#options = options
    this.sandboxes = new Records<SandboxRecord>(`${dataDir}/sandboxes`, readSandboxRecord, this.#references, changes)
    this.checkpoints = new Records<CheckpointRecord>(
      `${dataDir}/checkpoints`,
      readCheckpointRecord,
      this.#references,
      changes,
    )
    this.quarantine = new Quarantine(dataDir, this.#references)
    // Servers with other data directories begin elsewhere, so that their ranges seldom meet.
    this.#ranges = new Allocator('user ids for sandboxes and checkpoints', idRangeCount, parseInt(hash, 16))
    this.#slots = new Allocator('addresses of sandboxes (ATOLL_SUBNET)', options.slots, 0)
  }

  /** Reads all records and changes nothing. Returns those in force that cannot be read. */
  async load(): Promise<Quarantined[]> {
    await this.quarantine.load()
    const unreadable: Quarantined[] = []
    for (const kind of ['sandbox', 'checkpoint'] as const) {
      for (const found of await this.recordsOf(kind).load()) unreadable.push({ kind, reason: 'unreadable', ...found })
    }
    return unreadable
  }

  recordsOf(kind: Quarantined['kind']): Records<SandboxRecord> | Records<CheckpointRecord> {
    return kind === 'sandbox' ? this.sandboxes : this.checkpoints
  }

  /** Throws `not_found`. */
  sandbox(id: string): SandboxRecord {
    return this.sandboxes.get(id) ?? notFound(`sandbox ${id}`)
  }

  /** Throws `not_found`. */
  checkpoint(id: string): CheckpointRecord {
    return this.checkpoints.get(id) ?? notFound(`checkpoint ${id}`)
  }

  /**
   * An id range and an address slot that are free. The caller puts its record before it awaits anything. Ranges of layers
   * count as taken: no later sandbox may own files of a checkpoint. Throws `no_capacity`.
   */
  claim(): { rangeStart: number; slot: number } {
    const { slots, ranges } = this.#references
    // Slot 0 of the subnet is the gateway's.
    const slot = 1 + this.#slots.take((number) => slots.has(1 + number))
    const rangeOf = (number: number) => idRangeFirst + number * idsPerSandbox
    return { rangeStart: rangeOf(this.#ranges.take((number) => ranges.has(rangeOf(number)))), slot }
  }

  /** A name for the disk of a new sandbox: its id, unless a disk in quarantine has that. */
  async freshDisk(id: string): Promise<{ disk?: string }> {
    return this.quarantine.has('sandbox', id) ? { disk: await this.nextDisk({ id }) } : {}
  }

  /** An unused name, for a disk that replaces the sandbox's own. */
  async nextDisk({ id, disk }: Pick<SandboxRecord, 'id' | 'disk'>): Promise<string> {
    const taken = new Set(await this.#options.pool.list('sandboxes'))
    let number = Number(disk?.slice(id.length + 1) ?? 0) + 1
    while (taken.has(`${id}.${number}`)) number += 1
    return `${id}.${number}`
  }

  /** Whether a disk of the pool must stay: a record names it, or its id is in quarantine (item `but` not counted). */
  keepsDisk(name: string, but?: QuarantineItem): boolean {
    const id = sandboxOfDisk(name)
    if (this.quarantine.has('sandbox', id, but)) return true
    const record = this.sandboxes.get(id)
    if (record !== undefined && diskOf(record) === `sandboxes/${name}`) return true
    return [...this.#held].some((held) => diskOf(held.record) === `sandboxes/${name}`)
  }

  /** Moves a record, or a disk or layer without one, to quarantine. All that it references stays. */
  async moveToQuarantine(what: Quarantined): Promise<void> {
    const records = this.recordsOf(what.kind)
    const file = what.reason === 'unrecorded' ? undefined : records.file(what.id)
    await this.quarantine.put(what, file, records.get(what.id))
    records.release(what.id)
  }

  /** Returns the record of an item that can be put in force again. Throws `conflict` with the reason otherwise. */
  async recordToTakeBack({ kind, id, file, record, fault }: QuarantineItem): Promise<SandboxRecord | CheckpointRecord> {
    if (record === undefined) throw new ServiceError('conflict', `the record in ${file} cannot be read: ${fault}`)
    if (await exists(this.recordsOf(kind).file(id)))
      throw new ServiceError('conflict', `there is another ${kind} ${id}`)
    if (!('slot' in record)) return record
    const { slot, rangeStart } = record
    const rival = this.sandboxes.all().find((other) => other.slot === slot || other.rangeStart === rangeStart)
    if (rival === undefined) return record
    throw new ServiceError('conflict', `sandbox ${rival.id} has the address or the user ids of sandbox ${id} meanwhile`)
  }

  /** Puts a record in force again. Throws `conflict`. */
  async takeBack(item: QuarantineItem): Promise<void> {
    const record = await this.recordToTakeBack(item)
    this.#references.add(record)
    try {
      await this.quarantine.takeBack(item, this.recordsOf(item.kind).file(item.id))
      if ('slot' in record) this.sandboxes.adopt(record)
      else this.checkpoints.adopt(record)
    } finally {
      this.#references.remove(record)
    }
  }

  /** Removes an item with its disks. Layers and memory that it referenced go with the next `removeUnused`. */
  async removeFromQuarantine(item: QuarantineItem): Promise<void> {
    const { pool } = this.#options
    const names = item.kind === 'sandbox' ? await pool.list('sandboxes') : []
    for (const name of names) {
      const isItsOwn = sandboxOfDisk(name) === item.id && !this.keepsDisk(name, item)
      if (isItsOwn) await pool.remove(`sandboxes/${name}`)
    }
    await this.quarantine.remove(item)
  }

  /** Removes items that have been in quarantine for `keptMs`. Never throws: a failed removal is logged and tried by the next call. */
  async removeExpired(keptMs: number | undefined): Promise<void> {
    if (keptMs === undefined) return
    const { log } = this.#options
    const until = Date.now() - keptMs
    const expired = this.quarantine.items.filter(({ since }) => since.getTime() <= until)
    for (const item of expired) {
      const { kind, id, since } = item
      try {
        await this.removeFromQuarantine(item)
        log(`${kind} ${id}, in quarantine since ${since.toISOString()}, is removed`)
      } catch (error) {
        log(`${kind} ${id} cannot be removed from quarantine now: ${String(error)}`)
      }
    }
    if (expired.length > 0) await this.removeUnused()
  }

  /** Runs `make`, which makes a layer and returns the checkpoint's record; a failure leaves neither. Throws `conflict`. */
  async addCheckpoint(checkpointId: string, make: () => Promise<CheckpointRecord>): Promise<CheckpointRecord> {
    const refuse = (why: string) => new ServiceError('conflict', `checkpoint ${checkpointId} ${why}`)
    if (this.checkpoints.get(checkpointId) !== undefined || this.#pendingLayers.has(checkpointId))
      throw refuse('exists')
    if (this.quarantine.has('checkpoint', checkpointId)) throw refuse('is in quarantine')
    if (this.isReferenced(checkpointId)) throw refuse('was removed and sandboxes are still based on it')
    this.#pendingLayers.add(checkpointId)
    const made = [layerOf(checkpointId), checkpointMemory(checkpointId)]
    try {
      for (const path of made) await this.#removing.get(path)
      const record = await make()
      await this.checkpoints.put(record)
      return record
    } catch (error) {
      await this.checkpoints.remove(checkpointId)
      for (const path of made) {
        this.#references.found(path)
        await this.#remove(path)
      }
      throw error
    } finally {
      this.#pendingLayers.delete(checkpointId)
    }
  }

  /** Whether any record names the layer of a checkpoint. */
  isReferenced(checkpointId: string): boolean {
    return this.#references.has(layerOf(checkpointId))
  }

  /** Keeps all that a sandbox references until the returned function is called, whatever becomes of its record. */
  hold(record: SandboxRecord): () => void {
    // One record may be held more than once.
    const held = { record }
    this.#held.add(held)
    this.#references.add(record)
    return () => {
      if (this.#held.delete(held)) this.#references.remove(record)
    }
  }

  /** The highest `inodeEnd` that records have for a layer: a copied layer has higher numbers than at first. */
  inodeEndOf(checkpointId: string): number | undefined {
    const records = [...this.sandboxes.all(), ...this.checkpoints.all()]
    const named = records.flatMap(({ layers }) => layers.find((layer) => layer.checkpointId === checkpointId) ?? [])
    const ends = named.flatMap(({ inodeEnd }) => inodeEnd ?? [])
    return ends.length === 0 ? undefined : Math.max(...ends)
  }

  /**
   * Keeps layers that are about to be made, or used again, until the returned function is called. First waits for removals of them that are
   * under way.
   */
  async holdLayers(layers: readonly Layer[]): Promise<() => void> {
    const held: CheckpointRecord = { id: '', kind: 'disk_only', base: '', layers: [...layers], sizeBytes: 0 }
    this.#references.add(held)
    for (const { checkpointId } of layers) await this.#removing.get(layerOf(checkpointId))
    return () => this.#references.remove(held)
  }

  /**
   * Removes layers and saved memory whose last reference went since `open`. Every layer stays while a record in quarantine
   * cannot be read. Never throws: a failed removal is logged, stops no other, and is tried again by the next call.
   */
  async removeUnused(): Promise<void> {
    for (const path of this.#references.unused) await this.#removeOnce(path)
  }

  /** Like `removeUnused`, for all that lies in the pool, once all records have been loaded. */
  async removeAllUnused(): Promise<void> {
    const { pool, log } = this.#options
    for (const folder of ['layers', 'memory/checkpoints', 'memory/saved']) {
      const names = await pool.list(folder).catch((error: unknown) => {
        log(`unused entries of ${folder} cannot be listed now: ${String(error)}`)
        return []
      })
      for (const name of names) this.#references.found(`${folder}/${name}`)
    }
    await this.removeUnused()
  }

  /** Removes a path. A second call for the same path waits for the first. */
  async #removeOnce(path: string): Promise<void> {
    const begun = this.#removing.get(path)
    if (begun !== undefined || !this.#isUnused(path)) return begun
    const removed = this.#remove(path).finally(() => this.#removing.delete(path))
    this.#removing.set(path, removed)
    await removed
  }

  #isUnused(path: string): boolean {
    const { quarantine } = this
    const name = basename(path)
    const isLayer = path === layerOf(name)
    const isPending = this.#pendingLayers.has(name) && (isLayer || path === checkpointMemory(name))
    const mayBeQuarantined = isLayer ? quarantine.hasUnreadable : quarantine.ownsName(name)
    return !isPending && !mayBeQuarantined && !this.#references.has(path)
  }

  async #remove(path: string): Promise<void> {
    const { hostd, pool, log } = this.#options
    try {
      await (path === layerOf(basename(path)) ? pool.remove(path) : removeFolders(hostd, [pool.path(path)]))
      this.#references.forget(path)
    } catch (error) {
      log(`${path} cannot be removed now: ${String(error)}`)
    }
  }
}

function notFound(what: string): never {
  throw new ServiceError('not_found', `there is no ${what}`)
}
