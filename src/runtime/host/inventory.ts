import { randomBytes } from 'node:crypto'
import { ServiceError } from '../../errors.ts'
import type { Quarantined } from '../../sandbox/ports/runtime-driver.ts'
import type { DiskPool } from '../disk/index.ts'
import { exists } from '../exists.ts'
import type { HostTool } from '../hostd/index.ts'
import { diskOf, layerOf } from './bundle.ts'
import { Allocator } from './allocator.ts'
import { idsPerSandbox } from '../oci/container-config.ts'
import type { HostNames } from './names.ts'
import { Quarantine, sandboxOfDisk } from './quarantine.ts'
import type { QuarantineItem } from './quarantine.ts'
import { readCheckpointRecord, readSandboxRecord, Records } from './records.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'
import { References } from './references.ts'
import { removeFolders } from './cleanup.ts'

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

export interface InventoryOptions {
  names: HostNames
  hostd: HostTool
  pool: DiskPool
  /** How many addresses the subnet has for sandboxes. */
  slots: number
  log: (message: string) => void
}

/** What exists and what it holds: records, in force and in quarantine, id ranges, address slots, layers. */
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
  /** Records that are not to be had yet or any more, but whose disk and memory may still be wanted. */
  readonly #held = new Set<{ record: SandboxRecord }>()
  /** Snapshots that no record names yet. */
  readonly #pendingLayers = new Set<string>()
  /** What is on its way out, by its path. */
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
   * A range and a place that nobody has. The caller puts its record before it waits for anything. Ranges of layers count:
   * no later sandbox may own files of a checkpoint. Throws `no_capacity`.
   */
  claim(): { rangeStart: number; slot: number } {
    const { slots, ranges } = this.#references
    // Place 0 of the subnet is the gateway's.
    const slotOf = (number: number) => 1 + number
    const rangeOf = (number: number) => idRangeFirst + number * idsPerSandbox
    const slot = slotOf(this.#slots.take({ has: (number) => slots.has(slotOf(number)) }))
    return { rangeStart: rangeOf(this.#ranges.take({ has: (number) => ranges.has(rangeOf(number)) })), slot }
  }

  /** A name for the disk of a new sandbox: its id, unless a disk in quarantine has that. */
  async freshDisk(id: string): Promise<{ disk?: string }> {
    return this.quarantine.has('sandbox', id) ? { disk: await this.nextDisk({ id }) } : {}
  }

  /** A name that no disk has, for one that takes the place of the sandbox's own. */
  async nextDisk({ id, disk }: Pick<SandboxRecord, 'id' | 'disk'>): Promise<string> {
    const taken = new Set(await this.#pool.list('sandboxes'))
    let number = Number(disk?.slice(id.length + 1) ?? 0) + 1
    while (taken.has(`${id}.${number}`)) number += 1
    return `${id}.${number}`
  }

  /** Whether a disk of the pool stays: it is that of a record, or carries an id that is in quarantine, `but` one item there. */
  keepsDisk(name: string, but?: QuarantineItem): boolean {
    const id = sandboxOfDisk(name)
    if (this.quarantine.has('sandbox', id, but)) return true
    const record = this.sandboxes.get(id)
    if (record !== undefined && diskOf(record) === `sandboxes/${name}`) return true
    return [...this.#held].some((held) => diskOf(held.record) === `sandboxes/${name}`)
  }

  /** Takes a record out of force, or what there is without one, into quarantine. What it stands on stays. */
  async moveToQuarantine(what: Quarantined): Promise<void> {
    const records = what.kind === 'sandbox' ? this.sandboxes : this.checkpoints
    const file = what.reason === 'unrecorded' ? undefined : records.file(what.id)
    await this.quarantine.put(what, file, records.get(what.id))
    records.release(what.id)
  }

  /** Returns the record of an item that can be put in force again. Throws `conflict` with the reason why it cannot. */
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

  /** Removes an item with its disks. The layers and the memory that it stood on go with the next `removeUnused`. */
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

  /** Runs `make`, which makes a layer and the checkpoint's record; if it fails neither is left. Throws `conflict`. */
  async addCheckpoint(checkpointId: string, make: () => Promise<CheckpointRecord>): Promise<CheckpointRecord> {
    if (this.checkpoints.get(checkpointId) !== undefined || this.#pendingLayers.has(checkpointId)) {
      throw new ServiceError('conflict', `checkpoint ${checkpointId} exists`)
    }
    if (this.quarantine.has('checkpoint', checkpointId)) {
      throw new ServiceError('conflict', `checkpoint ${checkpointId} is in quarantine`)
    }
    if (this.isStoodOn(checkpointId)) {
      throw new ServiceError('conflict', `checkpoint ${checkpointId} was removed and sandboxes still stand on it`)
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
  isStoodOn(checkpointId: string): boolean {
    return this.#references.has(layerOf(checkpointId))
  }

  /** What a sandbox stands on stays until the returned function is called, whatever becomes of its record. */
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
   * Of what was let go of since `open` and is still there, all that nobody stands on: a layer, or a saved memory, stays while a
   * checkpoint or a sandbox needs it, and every layer while a record in quarantine cannot be read. Never throws: what cannot be
   * removed is logged, keeps nothing else from it, and is tried again by the next call.
   */
  async removeUnused(): Promise<void> {
    for (const path of this.#references.unused) await this.#removeOnce(path)
  }

  /** The same for all that is there, once everything has been loaded. */
  async removeAllUnused(): Promise<void> {
    for (const folder of ['layers', 'memory/checkpoints', 'memory/saved']) {
      for (const name of await this.#list(folder)) this.#references.found(`${folder}/${name}`)
    }
    await this.removeUnused()
  }

  /** Whoever asks for it a second time waits for the first. */
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
    const mayBeQuarantined = isLayer ? quarantine.isBlind : quarantine.ownsName(name)
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
      this.#log(`what is unused in ${folder} cannot be looked for now: ${String(error)}`)
      return []
    })
  }
}
