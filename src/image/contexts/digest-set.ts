import { TimeSlice } from '../../lib/async/time-slice.ts'
import { digestBytes } from './tree.ts'

/** 16 MiB, enough for some ten million digests. */
const bitsMax = 2 ** 27
const bitsPerDigest = 16
/** Numbers of 32 bits that are taken of each digest. */
const numbersPerDigest = 4

/**
 * A set of digests in a bounded memory, a Bloom filter: what was added is in it, and of what was not, a small part seems to be. So contents that are
 * used stay, and nearly all others go.
 */
export class DigestSet {
  readonly #bits: Uint8Array

  /** `count`: how many will be added, about. */
  constructor(count: number) {
    let bits = 1024
    while (bits < bitsMax && bits < count * bitsPerDigest) bits *= 2
    this.#bits = new Uint8Array(bits / 8)
  }

  async addAll(digests: Buffer): Promise<void> {
    const slice = new TimeSlice()
    for (let at = 0; at < digests.length; at += digestBytes) {
      await slice.next()
      for (const bit of this.#bitsOf(digests, at)) this.#bits[bit >>> 3]! |= 1 << (bit & 7)
    }
  }

  has(digest: Buffer): boolean {
    return (
      digest.length === digestBytes &&
      this.#bitsOf(digest, 0).every((bit) => (this.#bits[bit >>> 3]! & (1 << (bit & 7))) !== 0)
    )
  }

  /** A digest is as good as random; what a client invents costs its own organisation space alone. */
  #bitsOf(digests: Buffer, at: number): number[] {
    const numbers: number[] = []
    for (let part = 0; part < numbersPerDigest; part += 1) {
      numbers.push(digests.readUInt32LE(at + 4 * part) % (this.#bits.length * 8))
    }
    return numbers
  }
}
