/** The end of a stream, in memory that does not grow with the stream, however small its pieces are. */
export class Tail {
  readonly #bytesMax: number
  #space = new Uint8Array()
  #length = 0
  #isCut = false

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /** Something came before `text`. */
  get isCut(): boolean {
    return this.#isCut || this.#length > this.#bytesMax
  }

  get text(): string {
    return new TextDecoder().decode(this.#space.subarray(Math.max(0, this.#length - this.#bytesMax), this.#length))
  }

  add(data: Uint8Array): void {
    const last = data.subarray(Math.max(0, data.length - this.#bytesMax))
    // Cut at twice the bound, so that the kept end moves once per bound of new bytes.
    if (this.#length + last.length > 2 * this.#bytesMax) {
      this.#space.copyWithin(0, this.#length - this.#bytesMax, this.#length)
      this.#length = this.#bytesMax
      this.#isCut = true
    }
    const needed = this.#length + last.length
    if (needed > this.#space.length) {
      const larger = new Uint8Array(Math.min(Math.max(needed, 2 * this.#space.length), 2 * this.#bytesMax))
      larger.set(this.#space.subarray(0, this.#length))
      this.#space = larger
    }
    this.#space.set(last, this.#length)
    this.#length = needed
    if (last.length < data.length) this.#isCut = true
  }
}
