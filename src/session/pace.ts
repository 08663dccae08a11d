/** Pages of stored events that all streams together read between two looks at what else the server has to do. */
const pagesPerTick = 4

/**
 * Lets replays of long histories take turns with everything else: the embedded database answers without ever leaving the
 * thread, so that a reader which goes from page to page would keep it for itself.
 */
export class Pace {
  readonly #waiting: (() => void)[] = []

  /** Resolves when the next page may be read; first come, first served. */
  async next(): Promise<void> {
    const turn = Promise.withResolvers<void>()
    if (this.#waiting.push(turn.resolve) === 1) setImmediate(() => this.#tick())
    await turn.promise
  }

  #tick(): void {
    for (const resolve of this.#waiting.splice(0, pagesPerTick)) resolve()
    if (this.#waiting.length > 0) setImmediate(() => this.#tick())
  }
}
