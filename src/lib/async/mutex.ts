/**
 * A mutex for each key. Holders of one key run one after another in the order of the calls; different keys run side by side. A
 * failure of one does not touch the next. A key without users costs nothing.
 *
 * It is our own because `async-mutex` has neither keys nor a way to wait for the current holders without becoming one.
 */
export class KeyedMutex {
  readonly #tails = new Map<string, Promise<unknown>>()

  async run<Result>(key: string, work: () => Promise<Result>): Promise<Result> {
    const before = this.#tails.get(key) ?? Promise.resolve()
    const result = before.then(work, work)
    const tail = result.catch(() => undefined)
    this.#tails.set(key, tail)
    try {
      return await result
    } finally {
      if (this.#tails.get(key) === tail) this.#tails.delete(key)
    }
  }

  /** Resolves when the holder and those that wait now are done. */
  async settled(key: string): Promise<void> {
    await this.#tails.get(key)
  }

  /** Resolves when no key has a holder, including holders that come meanwhile. */
  async allSettled(): Promise<void> {
    while (this.#tails.size > 0) await Promise.all(this.#tails.values())
  }

  isLocked(key: string): boolean {
    return this.#tails.has(key)
  }
}
