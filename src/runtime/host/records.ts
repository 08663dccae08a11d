import { randomBytes } from 'node:crypto'
import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { defined } from '../../lib/defined.ts'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { syncFolder } from '../../lib/sync-folder.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import type { CheckpointKind, SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import type { DiskOwner, Layer } from '../disk/index.ts'
import { readNow } from '../read-now.ts'
import { isImageReference, type Images } from './image-folder.ts'

/** All that a sandbox owns and references. Written before anything is made, removed after everything is gone. */
export interface SandboxRecord extends Images, DiskOwner {
  /** The first of its ids on the host. */
  rangeStart: number
  /** Index of its address in the subnet. */
  slot: number
  /** Newest first, above the base. */
  layers: Layer[]
  /** What the next start restores. Absent while it runs, and when the next start boots. */
  memory?: SavedMemory
  /** The content of `/run/atoll/fork-generation` in it: {@link newGeneration}. */
  generation: string
  /** The sizes of a warm sandbox: no database knows it, and `open` removes it. Absent once it has an owner. */
  warm?: Pick<SandboxSpec, 'cpuCount' | 'memoryMb' | 'diskMb'>
}

/** Memory on disk, in step with the disk that the record names. */
export interface SavedMemory {
  /** Folder of the images, relative to the pool. */
  folder: string
  /** The address that its connections were made from. */
  address: string
  /** Bytes of the images. Absent while they are written. */
  bytes?: number
  /** Connections to the outside may still have their peers: a wake keeps the address. */
  keepConnections: boolean
  /** In a checkpoint: the processes are those of another sandbox, or of another time. */
  isFork?: boolean
  /** The boot of the machine in which a restore of it has begun; see `fence.ts`. */
  resuming?: string
  /** The boot of the machine in which it was saved. Absent when it and its disk have reached the disk of the host. */
  unflushed?: string
}

export interface CheckpointRecord {
  id: string
  kind: CheckpointKind
  /** Its source. Absent in imported images. */
  sandboxId?: string
  base: string
  /** Newest first; the first is the checkpoint's own, unless it is an imported image. */
  layers: Layer[]
  sizeBytes: number
  /**
   * In a full checkpoint: its memory, and what its processes have mapped besides the disk. `sharing`: with how many earlier checkpoints its
   * pages share space, see `share-memory.ts`. `source`: the folder of the sandbox's saved memory from which it was made; absent for a dump.
   */
  memory?: SavedMemory & {
    bytes: number
    guest: string
    agent?: string
    sharing?: number
    source?: string
  }
}

/** 32 hex digits, new for each sandbox and each restore in place. */
export function newGeneration(): string {
  return randomBytes(16).toString('hex')
}

/**
 * What a sandbox that starts from a checkpoint, at once and in this `boot`, takes over from it. Mapped programs must be those of
 * the saved memory.
 */
export function basedOn(
  from: CheckpointRecord,
  images: Pick<SandboxRecord, 'guest' | 'agent'>,
  boot: string,
): Omit<SandboxRecord, 'id' | 'rangeStart' | 'slot'> {
  const { base, layers, memory } = from
  const { guest, agent } = memory ?? images
  const onDisk = { base, layers, guest, generation: newGeneration(), ...defined({ agent }) }
  if (memory === undefined) return onDisk
  const { folder, address, bytes, keepConnections, unflushed } = memory
  const restored = { folder, address, bytes, keepConnections, isFork: true, resuming: boot }
  return { ...onDisk, memory: { ...restored, ...defined({ unflushed }) } }
}

/** A checkpoint without its memory. */
export function withoutMemory({ memory: _memory, ...record }: CheckpointRecord): CheckpointRecord {
  return record
}

/**
 * The format of record files; each change that an older or a newer server would misread raises it. A file of another format is
 * unreadable, and its sandbox or checkpoint goes to quarantine whole.
 */
export const recordFormat = 1

/** The text of a record file. */
export function textOf(record: object): string {
  return JSON.stringify({ format: recordFormat, ...record })
}

/** Reads the text of a record file; `fault` says why it is no record of `id`. */
export type ReadRecord<T> = (text: string, id: string) => { record: T } | { fault: string }

export const readSandboxRecord: ReadRecord<SandboxRecord> = (text, id) =>
  checked<SandboxRecord>(text, id, (record) => ({
    ...faultyParts(record),
    ...faultyImages(record),
    generation: typeof record.generation !== 'string',
    rangeStart: !Number.isInteger(record.rangeStart),
    slot: !Number.isInteger(record.slot),
  }))

export const readCheckpointRecord: ReadRecord<CheckpointRecord> = (text, id) =>
  checked<CheckpointRecord>(text, id, (record) => ({
    ...faultyParts(record),
    ...(record.memory === undefined ? {} : faultyImages(record.memory)),
  }))

function checked<T extends { id: string }>(
  text: string,
  id: string,
  faulty: (record: T) => Record<string, boolean>,
): ReturnType<ReadRecord<T>> {
  const parsed = parse<T & { format?: unknown }>(text)
  if (typeof parsed !== 'object' || parsed === null) return { fault: 'it is damaged' }
  const { format, ...rest } = parsed
  if (format === undefined) return { fault: 'it has no format: a version of Atoll before 0.1.0 has written it' }
  if (format !== recordFormat) {
    return { fault: `it has format ${JSON.stringify(format)}, and this version reads format ${recordFormat}` }
  }
  const record = rest as unknown as T
  if (record.id !== id) return { fault: `it is that of ${JSON.stringify(record.id)}` }
  const names = Object.entries(faulty(record)).flatMap(([name, isFaulty]) => (isFaulty ? [name] : []))
  return names.length === 0 ? { record } : { fault: `it lacks a valid ${names.join(', ')}` }
}

function faultyImages({ guest, agent }: Pick<SandboxRecord, 'guest' | 'agent'>): Record<string, boolean> {
  return { guest: !isImageReference(guest), agent: agent !== undefined && !isImageReference(agent) }
}

function faultyParts({ base, layers, memory }: SandboxRecord | CheckpointRecord): Record<string, boolean> {
  const areLayers =
    Array.isArray(layers) && layers.every((layer: Partial<Layer> | null) => typeof layer?.checkpointId === 'string')
  const isMemory = memory === undefined || typeof memory.folder === 'string'
  return { base: !isImageReference(base), layers: !areLayers, memory: !isMemory }
}

const fileEnding = '.json'
const temporaryEnding = '.json.new'

/** The ids that record files of a folder carry, whether they can be read or not. */
export async function recordedIds(folder: string): Promise<string[]> {
  const names = await readdir(folder).catch(() => [])
  return names.filter((name) => name.endsWith(fileEnding)).map((name) => name.slice(0, -fileEnding.length))
}

/** Called for each record before it comes into force, and when it is neither in force nor in the folder any more. */
export interface RecordKeeper<T> {
  add(record: T): void
  remove(record: T): void
}

/** One JSON file per record in one folder; all are kept in memory too. Writes and removals survive a loss of power. */
export class Records<T extends { id: string }> {
  readonly #folder: string
  readonly #read: ReadRecord<T>
  readonly #keeper: RecordKeeper<T> | undefined
  readonly #records = new Map<string, T>()
  /** The records in the folder; a later `put` may be under way. */
  readonly #written = new Map<string, T>()
  /** Serialise writes of one record. */
  readonly #locks = new KeyedMutex()
  /** See `changes` in `context.ts`. */
  readonly #changes: Pick<Semaphore, 'use'>

  constructor(
    folder: string,
    read: ReadRecord<T>,
    keeper?: RecordKeeper<T>,
    changes: Pick<Semaphore, 'use'> = new Semaphore({}),
  ) {
    this.#folder = folder
    this.#read = read
    this.#keeper = keeper
    this.#changes = changes
  }

  /** Reads the folder and changes nothing in it. Returns those that cannot be read. */
  async load(): Promise<{ id: string; fault: string }[]> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    for (const id of this.#written.keys()) this.release(id)
    this.#records.clear()
    const unreadable: { id: string; fault: string }[] = []
    for (const id of await recordedIds(this.#folder)) {
      const found = this.#read(readNow(this.file(id)) ?? '', id)
      if ('fault' in found) unreadable.push({ id, fault: found.fault })
      else this.adopt(found.record)
    }
    return unreadable
  }

  /** Removes the files of writes that were cut off. The records that they should have replaced are in force. */
  async removeTemporaryFiles(): Promise<void> {
    const names = (await readdir(this.#folder)).filter((name) => name.endsWith(temporaryEnding))
    for (const name of names) await rm(`${this.#folder}/${name}`, { force: true })
  }

  /** Adds a record whose file has come into the folder. */
  adopt(record: T): void {
    this.#keeper?.add(record)
    this.#records.set(record.id, record)
    this.#setWritten(record.id, record)
  }

  /** Drops a record whose file has left the folder. */
  release(id: string): void {
    this.#records.delete(id)
    this.#setWritten(id, undefined)
  }

  get(id: string): T | undefined {
    return this.#records.get(id)
  }

  all(): T[] {
    return [...this.#records.values()]
  }

  /**
   * Puts a record in force in memory at once, so that the next caller finds its numbers taken, and writes it. When the write fails, the record
   * that was written before is in force again, unless another was put meanwhile.
   */
  async put(record: T): Promise<void> {
    this.#keeper?.add(record)
    this.#records.set(record.id, record)
    await this.#locks.run(record.id, () => this.#replace(record))
  }

  /** Changes an existing record, once all that was put has been written; `change` returns undefined to leave it. */
  async update(id: string, change: (record: T) => T | undefined): Promise<void> {
    await this.#locks.run(id, async () => {
      const written = this.#written.get(id)
      // A newer record waits to be written.
      if (written === undefined || written !== this.#records.get(id)) return
      const changed = change(written)
      if (changed === undefined) return
      this.#keeper?.add(changed)
      this.#records.set(id, changed)
      await this.#replace(changed)
    })
  }

  async remove(id: string): Promise<void> {
    await this.#locks.run(id, async () => {
      await this.#changes.use(async () => {
        await rm(this.file(id), { force: true })
        await syncFolder(this.#folder)
      })
      this.release(id)
    })
  }

  file(id: string): string {
    return `${this.#folder}/${id}${fileEnding}`
  }

  async #replace(record: T): Promise<void> {
    const { id } = record
    try {
      const temporary = `${this.#folder}/${id}${temporaryEnding}`
      await this.#changes.use(async () => {
        await writeFile(temporary, textOf(record), { mode: 0o600, flush: true })
        await rename(temporary, this.file(id))
        await syncFolder(this.#folder)
      })
      this.#setWritten(id, record)
    } catch (error) {
      const before = this.#written.get(id)
      if (this.#records.get(id) === record) {
        if (before === undefined) this.#records.delete(id)
        else this.#records.set(id, before)
      }
      this.#keeper?.remove(record)
      throw error
    }
  }

  /** Releases the record that was written before, which a failed write would have put back. */
  #setWritten(id: string, record: T | undefined): void {
    const before = this.#written.get(id)
    if (record === undefined) this.#written.delete(id)
    else this.#written.set(id, record)
    if (before !== undefined) this.#keeper?.remove(before)
  }
}

function parse<T>(text: string): T | undefined {
  try {
    return JSON.parse(text) as T
  } catch {
    return undefined
  }
}
