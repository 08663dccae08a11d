import { agentLineBytesMax } from './agent.ts'

const noBytes = Buffer.alloc(0)
const newline = 10

/** Bytes kept of a line that is too long, to identify it. */
const headBytes = 256

/** One line of a byte stream, or the fact that one was too long and was dropped, with its beginning. */
export type SplitLine = { type: 'line'; text: string; endOffset: number } | LongLine

/** A line before it is decoded. Its bytes do not change any more. */
export type RawLine = { type: 'line'; bytes: Buffer; endOffset: number } | LongLine

interface LongLine {
  type: 'too_long'
  byteLength: number
  head: string
  endOffset: number
}

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
  push(chunk: Uint8Array, offset?: number): SplitLine[] {
    const lines: SplitLine[] = []
    for (const line of this.split(chunk, offset)) {
      if (line.type === 'too_long') lines.push(line)
      else lines.push({ type: 'line', text: line.bytes.toString('utf8'), endOffset: line.endOffset })
    }
    return lines
  }

  /** Like `push`, one line after the other: a chunk may have a hundred thousand. The chunk is taken when the last one was. */
  *split(chunk: Uint8Array, offset: number = this.#offset): Generator<RawLine, void, void> {
    let start = 0
    for (;;) {
      // Empty lines by themselves would hold the event loop for a while.
      if (this.#heldBytes === 0) while (chunk[start] === newline) start++
      const end = chunk.indexOf(newline, start)
      if (end === -1) break
      this.#hold(chunk.subarray(start, end))
      start = end + 1
      const line = this.#take(offset + start)
      if (line) yield line
    }
    this.#hold(chunk.subarray(start))
    this.#offset = offset + chunk.byteLength
  }

  #hold(part: Uint8Array): void {
    const start = this.#heldBytes
    this.#heldBytes += part.byteLength
    if (this.#tooLong) return
    if (this.#heldBytes > this.#lineBytesMax) {
      this.#tooLong = true
      const head = Buffer.concat([this.#held.subarray(0, Math.min(start, headBytes)), part.subarray(0, headBytes)])
      this.#held = head.subarray(0, headBytes)
      return
    }
    if (this.#heldBytes > this.#held.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#heldBytes, 2 * this.#held.length))
      this.#held.copy(larger, 0, 0, start)
      this.#held = larger
    }
    this.#held.set(part, start)
  }

  #take(endOffset: number): RawLine | undefined {
    const byteLength = this.#heldBytes
    const held = this.#held
    const tooLong = this.#tooLong
    this.#held = noBytes
    this.#heldBytes = 0
    this.#tooLong = false
    if (tooLong) return { type: 'too_long', byteLength, head: held.toString('utf8'), endOffset }
    if (byteLength === 0) return undefined
    return { type: 'line', bytes: held.subarray(0, byteLength), endOffset }
  }
}
