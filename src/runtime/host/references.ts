import { ServiceError } from '../../errors.ts'
import { layerOf } from './bundle.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'

/** Only paths of this form are ever removed, whatever a damaged record says. */
const removable = /^(?:layers|memory\/checkpoints|memory\/saved)\/(?!\.\.?$)[^/]+$/

/** How many records name each thing. */
class Counts<Name> {
  readonly #counts = new Map<Name, number>()

  has(name: Name): boolean {
    return this.#counts.has(name)
  }

  add(name: Name): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1)
  }

  /** Returns whether it was the last. */
  remove(name: Name): boolean {
    const count = (this.#counts.get(name) ?? 0) - 1
    if (count > 0) this.#counts.set(name, count)
    else this.#counts.delete(name)
    return count <= 0
  }
}

/**
 * Reference counts of layers, memory, id ranges and address slots, kept as records come and go:
 *
 *     named ── the last record that names it goes ──► unused ── it is gone from the disk ──► forgotten
 *       ▲                                                │
 *       └───────────── a record names it ────────────────┘
 *
 * A new record is added before the one that it replaces is removed, so that what both name is never unused. Records are immutable.
 */
export class References {
  /** Layers and folders of memory, relative to the pool. */
  readonly #paths = new Counts<string>()
  readonly ranges = new Counts<number>()
  readonly slots = new Counts<number>()
  readonly #unused = new Set<string>()

  add(record: SandboxRecord | CheckpointRecord): void {
    for (const path of pathsOf(record)) {
      this.#paths.add(path)
      this.#unused.delete(path)
    }
    for (const range of rangesOf(record)) this.ranges.add(range)
    if ('slot' in record) this.slots.add(record.slot)
  }

  remove(record: SandboxRecord | CheckpointRecord): void {
    for (const path of pathsOf(record)) {
      if (this.#paths.remove(path) && removable.test(path)) this.#unused.add(path)
    }
    for (const range of rangesOf(record)) this.ranges.remove(range)
    if ('slot' in record) this.slots.remove(record.slot)
  }

  /** Whether any record names a layer or a folder of memory. */
  has(path: string): boolean {
    return this.#paths.has(path)
  }

  /** Paths without a reference that may still exist, oldest first. */
  get unused(): string[] {
    return [...this.#unused]
  }

  /** The path exists in the pool. */
  found(path: string): void {
    if (!this.#paths.has(path)) this.#unused.add(path)
  }

  /** The path is gone from the pool. */
  forget(path: string): void {
    this.#unused.delete(path)
  }
}

function pathsOf({ layers, memory }: SandboxRecord | CheckpointRecord): string[] {
  const paths = layers.map((layer) => layerOf(layer.checkpointId))
  return memory === undefined ? paths : [...paths, memory.folder]
}

function rangesOf(record: SandboxRecord | CheckpointRecord): number[] {
  const ranges = record.layers.map((layer) => layer.rangeStart)
  return 'slot' in record ? [...ranges, record.rangeStart] : ranges
}

/** Allocates numbers `0..count-1` round robin, so that a released number is reused as late as possible. */
export class Allocator {
  readonly #what: string
  readonly #count: number
  #next: number

  constructor(what: string, count: number, first: number) {
    this.#what = what
    this.#count = count
    this.#next = first % count
  }

  /** The next number that is not taken. Throws `no_capacity`. */
  take(isTaken: (number: number) => boolean): number {
    for (let tried = 0; tried < this.#count; tried += 1) {
      const candidate = this.#next
      this.#next = (candidate + 1) % this.#count
      if (!isTaken(candidate)) return candidate
    }
    throw new ServiceError('no_capacity', `this host is out of ${this.#what}`, { details: { retryAfterSeconds: 60 } })
  }
}
