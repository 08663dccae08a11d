import { ServiceError } from '../../errors.ts'
import { layerOf } from '../disk/index.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'

/** Only paths of this form are ever removed, whatever a damaged record says. */
const removable = /^(?:layers|memory\/checkpoints|memory\/saved)\/(?!\.\.?$)[^/]+$/

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
  readonly #paths = new Map<string, number>()
  readonly ranges = new Map<number, number>()
  readonly slots = new Map<number, number>()
  readonly #unused = new Set<string>()

  add(record: SandboxRecord | CheckpointRecord): void {
    for (const path of pathsOf(record)) {
      adjust(this.#paths, path, 1)
      this.#unused.delete(path)
    }
    for (const range of rangesOf(record)) adjust(this.ranges, range, 1)
    if ('slot' in record) adjust(this.slots, record.slot, 1)
  }

  remove(record: SandboxRecord | CheckpointRecord): void {
    for (const path of pathsOf(record)) {
      if (adjust(this.#paths, path, -1) <= 0 && removable.test(path)) this.#unused.add(path)
    }
    for (const range of rangesOf(record)) adjust(this.ranges, range, -1)
    if ('slot' in record) adjust(this.slots, record.slot, -1)
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

/** Returns how many records name a thing after one more, or one less, does. */
function adjust<Name>(counts: Map<Name, number>, name: Name, change: 1 | -1): number {
  const now = (counts.get(name) ?? 0) + change
  if (now > 0) counts.set(name, now)
  else counts.delete(name)
  return now
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
