/** Bound of the input that was sent and not taken yet. The guest buffers up to twice as much. */
const windowBytes = 256 * 1024
const partBytes = 64 * 1024

/**
 * Input on its way to a process, by absolute offsets: *taken* ≤ *sent* ≤ *queued*. What was not taken is kept, so that it
 * can be sent again on another connection.
 */
export class InputQueue {
  #chunks: Uint8Array[] = []
  #taken = 0
  #sent = 0
  #queued = 0
  #ended = false
  #endSent = false

  get taken(): number {
    return this.#taken
  }

  get waitingBytes(): number {
    return this.#queued - this.#taken
  }

  /** Whether the guest has taken all that was sent. */
  get settled(): boolean {
    return this.#sent === this.#taken
  }

  get ended(): boolean {
    return this.#ended
  }

  get endSent(): boolean {
    return this.#endSent
  }

  /** Returns the offset at which all of it is taken. `data` must not change before that. */
  push(data: Uint8Array): number {
    if (data.length > 0) this.#chunks.push(data)
    this.#queued += data.length
    return this.#queued
  }

  end(): void {
    this.#ended = true
  }

  /** What is to be sent next, as far as the window allows; it counts as sent. */
  next(): Uint8Array | 'end' | undefined {
    if (this.#sent === this.#queued) {
      if (!this.#ended || this.#endSent) return undefined
      this.#endSent = true
      return 'end'
    }
    const room = windowBytes - (this.#sent - this.#taken)
    if (room <= 0) return undefined
    let skip = this.#sent - this.#taken
    for (const chunk of this.#chunks) {
      if (skip < chunk.length) {
        const part = chunk.subarray(skip, skip + Math.min(room, partBytes))
        this.#sent += part.length
        return part
      }
      skip -= chunk.length
    }
    return undefined
  }

  /** Notes that the guest has taken `bytes` more; false when that is more than was sent. */
  take(bytes: number): boolean {
    if (this.#taken + bytes > this.#sent) return false
    this.#taken += bytes
    let left = bytes
    for (let chunk = this.#chunks[0]; left > 0 && chunk !== undefined; chunk = this.#chunks[0]) {
      if (chunk.length > left) {
        this.#chunks[0] = chunk.subarray(left)
        return true
      }
      left -= chunk.length
      this.#chunks.shift()
    }
    return true
  }

  /** Continues on a new connection at `taken`, the guest's count. False when that is impossible. */
  resume(taken: number, ended: boolean): boolean {
    if (taken < this.#taken || !this.take(taken - this.#taken)) return false
    if (ended && !(this.#endSent && this.#taken === this.#queued)) return false
    this.#sent = this.#taken
    this.#endSent = ended
    return true
  }
}
