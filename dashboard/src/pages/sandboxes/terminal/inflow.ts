interface Sink {
  /** Resolves when more may be given. */
  write: (bytes: Uint8Array) => Promise<void>
}

/** A browser cannot hold up the sender of a WebSocket, so what the screen is too slow for waits here. */
const waitingBytesMax = 8 * 1024 * 1024

/** Gives output to a screen as fast as that takes it, and holds a bounded amount meanwhile. */
export class Inflow {
  readonly #sink: Sink
  readonly #waiting: Uint8Array[] = []
  #waitingBytes = 0
  #written = Promise.resolve()
  #isWriting = false

  constructor(sink: Sink) {
    this.#sink = sink
  }

  /** False: more waits than may, so what comes next must not be read now. */
  take(bytes: Uint8Array): boolean {
    this.#waiting.push(bytes)
    this.#waitingBytes += bytes.length
    if (!this.#isWriting) this.#written = this.#write()
    return this.#waitingBytes <= waitingBytesMax
  }

  /** Resolves when all was given. */
  async drain(): Promise<void> {
    await this.#written
  }

  /** Forgets what waits. */
  clear(): void {
    this.#waiting.length = 0
    this.#waitingBytes = 0
  }

  async #write(): Promise<void> {
    this.#isWriting = true
    for (let bytes = this.#waiting.shift(); bytes !== undefined; bytes = this.#waiting.shift()) {
      this.#waitingBytes -= bytes.length
      await this.#sink.write(bytes)
    }
    this.#isWriting = false
  }
}
