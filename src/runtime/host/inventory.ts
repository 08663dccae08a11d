import { randomBytes } from 'node:crypto'
import { ServiceError } from '../../errors.ts'
import type { Quarantined } from '../../sandbox/ports/runtime-driver.ts'
import type { DiskPool } from '../disk/index.ts'
import { exists } from '../exists.ts'
import type { HostTool } from '../hostd/index.ts'
import { diskOf, layerOf } from './bundle.ts'
import { idsPerSandbox } from '../oci/container-config.ts'
import type { HostNames } from '../host-names.ts'
import { Quarantine, sandboxOfDisk, type QuarantineItem } from './quarantine.ts'
import { readCheckpointRecord, readSandboxRecord, Records } from './records.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'
import { Allocator, References } from './references.ts'
import { removeFolders } from '../cleanup.ts'

/** Ids of the host from here on belong to sandboxes; distributions give users' ranges below. */
const idRangeFirst = 1_000_000_000
const idRangeCount = Math.floor((2 ** 32 - 1 - idRangeFirst) / idsPerSandbox)

/** Where in the pool the memory of a checkpoint lies. */
export function checkpointMemory(checkpointId: string): string {
  return `memory/checkpoints/${checkpointId}`
}

/** A new folder each time: the removal of the last one may still be under way. */
export function savedMemory(sandboxId: string): string {
  return `memory/saved/${sandboxId}.${randomBytes(4).toString('hex')}`
}

export interface InventoryOptions {
  names: HostNames
  hostd: HostTool
  pool: DiskPool
  /** How many addresses the subnet has for sandboxes. */
  slots: number
  log: (message: string) => void
}

/** All records, in force and in quarantine, and what they own: id ranges, address slots, layers, memory. */
export class Inventory {
  readonly sandboxes: Records<SandboxRecord>
  readonly checkpoints: Records<CheckpointRecord>
  readonly quarantine: Quarantine
  readonly #references = new References()
  readonly #hostd: HostTool
  readonly #pool: DiskPool
  readonly #log: (message: string) => void
  readonly #ranges: Allocator
  readonly #slots: Allocator
  /** Records that are not in force (yet, or any more), but whose disk and memory must stay. */
  readonly #held = new Set<{ record: SandboxRecord }>()
  /** Snapshots that no record names yet. */
  readonly #pendingLayers = new Set<string>()
  /** Removals under way, by path. */
  readonly #removing = new Map<string, Promise<void>>()

  constructor({ names, hostd, pool, slots, log }: InventoryOptions) {
    this.sandboxes = new Records<SandboxRecord>(`${names.dataDir}/sandboxes`, readSandboxRecord, this.#references)
    this.checkpoints = new Records<CheckpointRecord>(
      `${names.dataDir}/checkpoints`,
      readCheckpointRecord,
      this.#references,
    )
    this.quarantine = new Quarantine(names.dataDir, this.#references)
    this.#hostd = hostd
    this.#pool = pool
    this.#log = log
    // Servers with other data directories begin elsewhere, so that their ranges seldom meet.
    this.#ranges = new Allocator('user ids for sandboxes and checkpoints', idRangeCount, parseInt(names.hash, 16))
    this.#slots = new Allocator('addresses of sandboxes (ATOLL_SUBNET)', slots, 0)
  }

  /** Reads all records and changes nothing. Returns those in force that cannot be read. */
  async load(): Promise<Quarantined[]> {
    await this.quarantine.load()
    const reason = 'unreadable'
    const sandboxes = (await this.sandboxes.load()).map((id) => ({ kind: 'sandbox', id, reason }) as const)
    const checkpoints = (await this.checkpoints.load()).map((id) => ({ kind: 'checkpoint', id, reason }) as const)
    return [...sandboxes, ...checkpoints]
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
   * An id range and an address slot that are free. The caller puts its record before it awaits anything. Ranges of layers
   * count as taken: no later sandbox may own files of a checkpoint. Throws `no_capacity`.
   */
  claim(): { rangeStart: number; slot: number } {
    const { slots, ranges } = this.#references
    // Slot 0 of the subnet is the gateway's.
    const slotOf = (number: number) => 1 + number
    const rangeOf = (number: number) => idRangeFirst + number * idsPerSandbox
    const slot = slotOf(this.#slots.take({ has: (number) => slots.has(slotOf(number)) }))
    return { rangeStart: rangeOf(this.#ranges.take({ has: (number) => ranges.has(rangeOf(number)) })), slot }
  }

  /** A name for the disk of a new sandbox: its id, unless a disk in quarantine has that. */
  async freshDisk(id: string): Promise<{ disk?: string }> {
    return this.quarantine.has('sandbox', id) ? { disk: await this.nextDisk({ id }) } : {}
  }

  /** An unused name, for a disk that replaces the sandbox's own. */
  async nextDisk({ id, disk }: Pick<SandboxRecord, 'id' | 'disk'>): Promise<string> {
    const taken = new Set(await this.#pool.list('sandboxes'))
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
    const records = what.kind === 'sandbox' ? this.sandboxes : this.checkpoints
    const file = what.reason === 'unrecorded' ? undefined : records.file(what.id)
    await this.quarantine.put(what, file, records.get(what.id))
    records.release(what.id)
  }

  /** Returns the record of an item that can be put in force again. Throws `conflict` with the reason otherwise. */
  async recordToTakeBack({ kind, id, file, record }: QuarantineItem): Promise<SandboxRecord | CheckpointRecord> {
    if (record === undefined) throw new ServiceError('conflict', `the record in ${file} cannot be read`)
    const records = kind === 'sandbox' ? this.sandboxes : this.checkpoints
    if (await exists(records.file(id))) throw new ServiceError('conflict', `there is another ${kind} ${id}`)
    if (!('slot' in record)) return record
    const { slot, rangeStart } = record
    const rival = this.sandboxes.all().find((other) => other.slot === slot || other.rangeStart === rangeStart)
    if (rival === undefined) return record
    throw new ServiceError('conflict', `sandbox ${rival.id} has the address or the user ids of sandbox ${id} meanwhile`)
  }

  /** Puts a record in force again. Throws `conflict`. */
  async takeBack(item: QuarantineItem): Promise<void> {
    const record = await this.recordToTakeBack(item)
    const isSandbox = 'slot' in record
    this.#references.add(record)
    try {
      await this.quarantine.takeBack(item, (isSandbox ? this.sandboxes : this.checkpoints).file(item.id))
      if (isSandbox) this.sandboxes.adopt(record)
      else this.checkpoints.adopt(record)
    } finally {
      this.#references.remove(record)
    }
  }

  /** Removes an item with its disks. Layers and memory that it referenced go with the next `removeUnused`. */
  async removeFromQuarantine(item: QuarantineItem): Promise<void> {
    const names = item.kind === 'sandbox' ? await this.#pool.list('sandboxes') : []
    for (const name of names) {
      const isItsOwn = sandboxOfDisk(name) === item.id && !this.keepsDisk(name, item)
      if (isItsOwn) await this.#pool.remove(`sandboxes/${name}`)
    }
    await this.quarantine.remove(item)
  }

  /** Removes for good what has lain in quarantine for `keptMs`. Never throws: what cannot be removed is logged and stays for the next call. */
  async removeExpired(keptMs: number | undefined): Promise<void> {
    if (keptMs === undefined) return
    const until = Date.now() - keptMs
    const expired = this.quarantine.items.filter(({ since }) => since.getTime() <= until)
    for (const item of expired) {
      const { kind, id, since } = item
      try {
        await this.removeFromQuarantine(item)
        this.#log(`${kind} ${id}, in quarantine since ${since.toISOString()}, is removed`)
      } catch (error) {
        this.#log(`${kind} ${id} cannot be removed from quarantine now: ${String(error)}`)
      }
    }
    if (expired.length > 0) await this.removeUnused()
  }

  /** Runs `make`, which makes a layer and returns the checkpoint's record; a failure leaves neither. Throws `conflict`. */
  async addCheckpoint(checkpointId: string, make: () => Promise<CheckpointRecord>): Promise<CheckpointRecord> {
    if (this.checkpoints.get(checkpointId) !== undefined || this.#pendingLayers.has(checkpointId)) {
      throw new ServiceError('conflict', `checkpoint ${checkpointId} exists`)
    }
    if (this.quarantine.has('checkpoint', checkpointId)) {
      throw new ServiceError('conflict', `checkpoint ${checkpointId} is in quarantine`)
    }
    if (this.isReferenced(checkpointId)) {
      throw new ServiceError('conflict', `checkpoint ${checkpointId} was removed and sandboxes are still based on it`)
    }
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

  /**
   * Removes layers and saved memory whose last reference went since `open`. Every layer stays while a record in quarantine
   * cannot be read. Never throws: a failed removal is logged, stops no other, and is tried again by the next call.
   */
  async removeUnused(): Promise<void> {
    for (const path of this.#references.unused) await this.#removeOnce(path)
  }

  /** The same for all that lies in the pool, once all records have been loaded. */
  async removeAllUnused(): Promise<void> {
    for (const folder of ['layers', 'memory/checkpoints', 'memory/saved']) {
      for (const name of await this.#list(folder)) this.#references.found(`${folder}/${name}`)
    }
    await this.removeUnused()
  }

  /** A second call for the same path waits for the first. */
  async #removeOnce(path: string): Promise<void> {
    const begun = this.#removing.get(path)
    if (begun !== undefined || !this.#isUnused(path)) return begun
    const removed = this.#remove(path).finally(() => this.#removing.delete(path))
    this.#removing.set(path, removed)
    await removed
  }

  #isUnused(path: string): boolean {
    const name = path.slice(path.lastIndexOf('/') + 1)
    const isLayer = path === layerOf(name)
    const isPending = this.#pendingLayers.has(name) && (isLayer || path === checkpointMemory(name))
    const { quarantine } = this
    const mayBeQuarantined = isLayer ? quarantine.hasUnreadable : quarantine.ownsName(name)
    return !isPending && !mayBeQuarantined && !this.#references.has(path)
  }

  async #remove(path: string): Promise<void> {
    const name = path.slice(path.lastIndexOf('/') + 1)
    const remove =
      path === layerOf(name) ? this.#pool.remove(path) : removeFolders(this.#hostd, [this.#pool.path(path)])
    await remove.then(
      () => this.#references.forget(path),
      (error: unknown) => this.#log(`${path} cannot be removed now: ${String(error)}`),
    )
  }

  async #list(folder: string): Promise<string[]> {
    return this.#pool.list(folder).catch((error: unknown) => {
      this.#log(`unused entries of ${folder} cannot be listed now: ${String(error)}`)
      return []
    })
  }
}
