/**
 * Lets long work take turns with everything else that the process has to do: whoever goes from piece to piece waits before
 * each, and so many go on between two looks at what has come meanwhile, first come, first served.
 */
export class FairYield {
  readonly #perTick: number
  readonly #waiting: (() => void)[] = []

  constructor(perTick: number) {
    this.#perTick = perTick
  }

  /** Resolves when the next piece may be done. */
  async next(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    if (this.#waiting.push(resolve) === 1) setImmediate(() => this.#tick())
    await promise
  }

  #tick(): void {
    for (const resolve of this.#waiting.splice(0, this.#perTick)) resolve()
    if (this.#waiting.length > 0) setImmediate(() => this.#tick())
  }
}
