/**
 * Shares the event loop between long pieces of work. A worker awaits `next` before each piece; `perTick` of them go on per iteration of
 * the event loop, first come, first served, and everything else that the process has to do runs in between.
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
