import { createHash } from 'node:crypto'
import { TimeSlice } from '../../lib/async/time-slice.ts'
import type { Entry } from './entries.ts'

/** Digests are kept as bytes, one behind the other. */
export const digestBytes = 32
/** Of the text that is hashed at once. */
const pieceLength = 64 * 1024

/** The entries of a context in memory, in the order of their keys. A key is found by halving: no other structure is kept for it. */
export class Tree {
  readonly entries: readonly Entry[]
  /** Of the contents, in order. */
  readonly digests: Buffer

  constructor(entries: readonly Entry[], digests: Buffer) {
    this.entries = entries
    this.digests = digests
  }

  /** In hex. */
  digestAt(blob: number): string {
    return this.digests.toString('hex', blob * digestBytes, (blob + 1) * digestBytes)
  }

  find(key: string): Entry | undefined {
    const entry = this.entries[this.#firstFrom(key)]
    return entry?.key === key ? entry : undefined
  }

  /** All entries below a folder, without some of them and what is below those. The key of the root is empty. */
  *below(key: string, skipped?: ReadonlySet<string>): Generator<Entry> {
    const [begin, end] = this.#rangeBelow(key)
    for (let at = begin; at < end;) {
      const entry = this.entries[at]!
      if (skipped?.has(entry.key)) at = this.#after(at)
      else {
        yield entry
        at += 1
      }
    }
  }

  /** The entries of a folder. */
  *children(key: string): Generator<Entry> {
    const [begin, end] = this.#rangeBelow(key)
    for (let at = begin; at < end; at = this.#after(at)) yield this.entries[at]!
  }

  /** SHA-256 in hex of an entry with all below it: types, modes, contents and targets, not times, nor its own name. */
  async digestOf(root: Entry): Promise<string> {
    const hash = createHash('sha256')
    const slice = new TimeSlice()
    const nameAt = root.key === '' ? 0 : root.key.length + 1
    let piece = this.#hashedOf(root, '')
    for (const entry of root.type === 'directory' ? this.below(root.key) : []) {
      await slice.next()
      piece += this.#hashedOf(entry, entry.key.slice(nameAt))
      if (piece.length < pieceLength) continue
      hash.update(piece, 'latin1')
      piece = ''
    }
    return hash.update(piece, 'latin1').digest('hex')
  }

  /** NUL ends each field: none has one but the name, which is the last. */
  #hashedOf({ type, mode, blob, target = '' }: Entry, name: string): string {
    const content = blob === undefined ? target : this.digestAt(blob)
    return `${type}\0${mode.toString(8)}\0${content}\0${name.replaceAll('\0', '/')}\0`
  }

  #rangeBelow(key: string): [begin: number, end: number] {
    if (key === '') return [0, this.entries.length]
    // No key has a letter between that of the separator and the next one.
    return [this.#firstFrom(`${key}\0`), this.#firstFrom(`${key}\x01`)]
  }

  /** Behind an entry and all below it. */
  #after(at: number): number {
    const { type, key } = this.entries[at]!
    return type === 'directory' ? this.#rangeBelow(key)[1] : at + 1
  }

  /** The first entry whose key is not before this one. */
  #firstFrom(key: string): number {
    let [low, high] = [0, this.entries.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.entries[middle]!.key < key) low = middle + 1
      else high = middle
    }
    return low
  }
}
