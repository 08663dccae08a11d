import { layerOf } from './bundle.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'

/** What nobody stands on any more is removed by these names alone, whatever a damaged record says. */
const removable = /^(?:layers|memory\/checkpoints|memory\/saved)\/(?!\.\.?$)[^/]+$/

/** How many records name each of many things. */
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
 * What the records of a data directory stand on, counted as they come and go, so that nobody has to look through all of them:
 *
 *     named ── the last record that names it goes ──► unused ── it is gone from the disk ──► forgotten
 *       ▲                                                │
 *       └───────────── a record names it ────────────────┘
 *
 * A record that is replaced is put before the other one goes, so that what both name is never unused. Records do not change.
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

  /** What may still be there, in the order in which it was let go of. */
  get unused(): string[] {
    return [...this.#unused]
  }

  /** It is in the pool. */
  found(path: string): void {
    if (!this.#paths.has(path)) this.#unused.add(path)
  }

  /** It is in the pool no more. */
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
