import { agentLineBytesMax } from './agent.ts'

const noBytes = Buffer.alloc(0)

/** One line of a byte stream, or the fact that one was too long and was dropped. */
export type SplitLine =
  | { type: 'line'; text: string; endOffset: number }
  | { type: 'too_long'; byteLength: number; endOffset: number }

/**
 * Splits chunks of one stream into lines, and holds at most twice `lineBytesMax` bytes. `endOffset` is the offset after the line's newline,
 * by the offsets given to `push`: once the line is handled, everything before it can be acknowledged.
 */
export class LineSplitter {
  readonly #lineBytesMax: number
  /** Larger than `#heldBytes`: a list of parts would cost far more than its bytes, because a part can be one byte. */
  #held: Buffer = noBytes
  #heldBytes = 0
  #tooLong = false
  #offset = 0

  constructor(lineBytesMax: number = agentLineBytesMax) {
    this.#lineBytesMax = lineBytesMax
  }

  /** `offset` is where `chunk` begins; by default after the chunk before. Omits empty lines. */
  push(chunk: Uint8Array, offset: number = this.#offset): SplitLine[] {
    const lines: SplitLine[] = []
    let start = 0
    for (let newline = chunk.indexOf(10); newline !== -1; newline = chunk.indexOf(10, start)) {
      this.#hold(chunk.subarray(start, newline))
      start = newline + 1
      const line = this.#take(offset + start)
      if (line) lines.push(line)
    }
    this.#hold(chunk.subarray(start))
    this.#offset = offset + chunk.byteLength
    return lines
  }

  #hold(part: Uint8Array): void {
    const start = this.#heldBytes
    this.#heldBytes += part.byteLength
    if (this.#heldBytes > this.#lineBytesMax) {
      this.#tooLong = true
      this.#held = noBytes
      return
    }
    if (this.#heldBytes > this.#held.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#heldBytes, 2 * this.#held.length))
      this.#held.copy(larger, 0, 0, start)
      this.#held = larger
    }
    this.#held.set(part, start)
  }

  #take(endOffset: number): SplitLine | undefined {
    const byteLength = this.#heldBytes
    const held = this.#held
    const tooLong = this.#tooLong
    this.#held = noBytes
    this.#heldBytes = 0
    this.#tooLong = false
    if (tooLong) return { type: 'too_long', byteLength, endOffset }
    if (byteLength === 0) return undefined
    return { type: 'line', text: held.toString('utf8', 0, byteLength), endOffset }
  }
}
