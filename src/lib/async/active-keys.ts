/** Keys that were used within the last `ms`: owners that compete at present. */
export class ActiveKeys {
  readonly #ms: number
  readonly #now: () => number
  /** Oldest first. */
  readonly #usedAt = new Map<string, number>()

  constructor(ms: number, now: () => number = () => performance.now()) {
    this.#ms = ms
    this.#now = now
  }

  note(key: string): void {
    this.#usedAt.delete(key)
    this.#usedAt.set(key, this.#now())
  }

  get count(): number {
    const since = this.#now() - this.#ms
    for (const [key, at] of this.#usedAt) {
      if (at > since) break
      this.#usedAt.delete(key)
    }
    return this.#usedAt.size
  }
}
