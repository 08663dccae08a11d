/** Longest head of a WebSocket frame: two bytes, eight of length, four of mask (RFC 6455 § 5.2). */
const headBytesMax = 14

/** Follows the frames of one direction of a WebSocket as its bytes pass, to know when a frame of our own fits between them. */
export class FrameBoundary {
  readonly #head = Buffer.alloc(headBytesMax)
  #headBytes = 0
  #payloadBytes = 0n

  /** Whether all frames that began have passed whole. */
  get isBetween(): boolean {
    return this.#headBytes === 0 && this.#payloadBytes === 0n
  }

  pass(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length) {
      if (this.#payloadBytes > 0n) {
        const left = BigInt(chunk.length - at)
        const step = left < this.#payloadBytes ? left : this.#payloadBytes
        this.#payloadBytes -= step
        at += Number(step)
        continue
      }
      this.#head[this.#headBytes++] = chunk[at++] ?? 0
      if (this.#headBytes < 2 || this.#headBytes < headBytes(this.#head)) continue
      this.#payloadBytes = payloadBytes(this.#head)
      this.#headBytes = 0
    }
  }
}

function headBytes(head: Buffer): number {
  const second = head.readUInt8(1)
  const length = second & 0x7f
  return 2 + (length === 126 ? 2 : length === 127 ? 8 : 0) + ((second & 0x80) === 0 ? 0 : 4)
}

function payloadBytes(head: Buffer): bigint {
  const length = head.readUInt8(1) & 0x7f
  if (length === 126) return BigInt(head.readUInt16BE(2))
  return length === 127 ? head.readBigUInt64BE(2) : BigInt(length)
}

/** An unmasked close frame with nothing but its code. */
export function closeFrame(code: number): Buffer {
  return Buffer.from([0x88, 2, code >> 8, code & 0xff])
}
