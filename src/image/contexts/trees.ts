import { Semaphore } from '../../lib/async/semaphore.ts'
import { type IndexHead, readIndex } from './index-file.ts'
import type { Tree } from './tree.ts'

/** Of all trees that are kept for their next use: an entry takes some 300 bytes. */
const entriesMax = 400_000

export interface LoadedIndex {
  head: IndexHead
  tree: Tree
}

/**
 * Indexes in memory, those that were used last. Many builds may hold a context while they wait; only those that read it need its tree. An index
 * never changes.
 */
export class Trees {
  /** By path, the one that was used last at the end. The count is that of a loaded one. */
  readonly #kept = new Map<string, { index: Promise<LoadedIndex>; count?: number }>()
  readonly #loads = new Semaphore({ permits: 2 })
  #entries = 0

  async get(path: string): Promise<LoadedIndex> {
    const known = this.#kept.get(path)
    this.#kept.delete(path)
    const kept = known ?? { index: this.#load(path) }
    this.#kept.set(path, kept)
    return await kept.index
  }

  async #load(path: string): Promise<LoadedIndex> {
    try {
      const index = await this.#loads.use(() => readIndex(path))
      const kept = this.#kept.get(path)
      if (kept !== undefined) kept.count = index.tree.entries.length
      this.#entries += kept?.count ?? 0
      this.#shrink(path)
      return index
    } catch (error) {
      this.#kept.delete(path)
      throw error
    }
  }

  #shrink(newest: string): void {
    for (const [path, { count }] of this.#kept) {
      if (this.#entries <= entriesMax) return
      if (path === newest || count === undefined) continue
      this.#kept.delete(path)
      this.#entries -= count
    }
  }
}
