/**
 * Runs work of one key one after the other and of different keys side by side. A key costs nothing while nobody uses it.
 * The order is that of the calls; a failure of one piece of work does not touch the next.
 */
export class KeyedLock {
  readonly #tails = new Map<string, Promise<unknown>>()

  async run<Result>(key: string, work: () => Promise<Result>): Promise<Result> {
    const before = this.#tails.get(key) ?? Promise.resolve()
    const turn = before.then(work, work)
    const tail = turn.catch(() => undefined)
    this.#tails.set(key, tail)
    try {
      return await turn
    } finally {
      if (this.#tails.get(key) === tail) this.#tails.delete(key)
    }
  }

  /** Resolves when all work that was asked for so far has ended. */
  async idle(key: string): Promise<void> {
    await this.#tails.get(key)
  }

  /** Resolves when no work of any key is left, work included that comes meanwhile. */
  async allIdle(): Promise<void> {
    while (this.#tails.size > 0) await Promise.all(this.#tails.values())
  }

  isBusy(key: string): boolean {
    return this.#tails.has(key)
  }
}
