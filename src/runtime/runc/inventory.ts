import { randomBytes } from 'node:crypto'
import { ServiceError } from '../../errors.ts'
import type { Quarantined } from '../../sandbox/driver.ts'
import type { DiskPool } from '../disk/index.ts'
import { exists } from '../exists.ts'
import { diskOf, layerOf } from './bundle.ts'
import { Claims } from './claims.ts'
import { idsPerSandbox } from './config.ts'
import type { HostNames } from './names.ts'
import { Quarantine, sandboxOfDisk } from './quarantine.ts'
import type { QuarantineItem } from './quarantine.ts'
import { readCheckpointRecord, readSandboxRecord, Records } from './records.ts'
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

/** What exists and what it holds: records, in force and in quarantine, id ranges, address slots, layers. */
export class Inventory {
  readonly sandboxes: Records<SandboxRecord>
  readonly checkpoints: Records<CheckpointRecord>
  readonly quarantine: Quarantine
  readonly #pool: DiskPool
  readonly #log: (message: string) => void
  readonly #ranges: Claims
  readonly #slots: Claims
  /** Records that are not to be had yet or any more, but whose disk and memory may still be wanted. */
  readonly #held = new Set<SandboxRecord>()
  /** Snapshots that no record names yet. */
  readonly #pendingLayers = new Set<string>()

  constructor(names: HostNames, pool: DiskPool, slots: number, log: (message: string) => void) {
    this.sandboxes = new Records(`${names.dataDir}/sandboxes`, readSandboxRecord)
    this.checkpoints = new Records(`${names.dataDir}/checkpoints`, readCheckpointRecord)
    this.quarantine = new Quarantine(names.dataDir)
    this.#pool = pool
    this.#log = log
    // Servers with other data directories begin elsewhere, so that their ranges seldom meet.
    this.#ranges = new Claims('user ids for sandboxes and checkpoints', idRangeCount, parseInt(names.hash, 16))
    this.#slots = new Claims('addresses of sandboxes (ATOLL_SUBNET)', slots, 0)
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
    const sandboxes = [...this.sandboxes.all(), ...this.quarantine.sandboxRecords]
    const owners = [...sandboxes, ...this.#layers()]
    const ranges = new Set(owners.map((owner) => (owner.rangeStart - idRangeFirst) / idsPerSandbox))
    // Place 0 of the subnet is the gateway's.
    const slot = 1 + this.#slots.take(new Set(sandboxes.map((record) => record.slot - 1)))
    return { rangeStart: idRangeFirst + this.#ranges.take(ranges) * idsPerSandbox, slot }
  }

  /** A name for the disk of a new sandbox: its id, unless a disk in quarantine has that. */
  async freshDisk(id: string): Promise<{ disk?: string }> {
    if (!this.quarantine.has('sandbox', id)) return {}
    const taken = new Set(await this.#pool.list('sandboxes'))
    let number = 1
    while (taken.has(`${id}.${number}`)) number += 1
    return { disk: `${id}.${number}` }
  }

  /** Whether a disk of the pool stays: it is that of a record, or carries an id that is in quarantine, `but` one item there. */
  keepsDisk(name: string, but?: QuarantineItem): boolean {
    const id = sandboxOfDisk(name)
    if (this.quarantine.has('sandbox', id, but)) return true
    const record = this.sandboxes.get(id)
    if (record !== undefined && diskOf(record) === `sandboxes/${name}`) return true
    return [...this.#held].some((held) => diskOf(held) === `sandboxes/${name}`)
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
    await this.quarantine.takeBack(item, (isSandbox ? this.sandboxes : this.checkpoints).file(item.id))
    if (isSandbox) this.sandboxes.adopt(record)
    else this.checkpoints.adopt(record)
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

  /** Whether any record names the layer of a checkpoint. */
  isStoodOn(checkpointId: string): boolean {
    return this.#layers().some((layer) => layer.checkpointId === checkpointId)
  }

  /** What a sandbox stands on stays until the returned function is called, whatever becomes of its record. */
  hold(record: SandboxRecord): () => void {
    this.#held.add(record)
    return () => this.#held.delete(record)
  }

  /**
   * A layer, or a saved memory, stays while a checkpoint or a sandbox needs it, and every layer while a record in quarantine cannot be
   * read. Never throws: what cannot be removed is logged, keeps nothing else from it, and is tried again by the next call.
   */
  async removeUnused(): Promise<void> {
    for (const name of this.quarantine.isBlind ? [] : await this.#list('layers')) {
      const used = this.#pendingLayers.has(name) || this.#layers().some((layer) => layer.checkpointId === name)
      if (!used) await this.#tryRemoving(layerOf(name), (layer) => this.#pool.remove(layer))
    }
    for (const folder of ['memory/checkpoints', 'memory/saved']) {
      for (const name of await this.#list(folder)) {
        const pending = folder === 'memory/checkpoints' && this.#pendingLayers.has(name)
        const named = this.#memories().includes(`${folder}/${name}`) || this.quarantine.ownsName(name)
        const used = pending || named
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
    return [...this.checkpoints.all(), ...this.sandboxes.all(), ...this.#held, ...this.quarantine.records]
  }
}
