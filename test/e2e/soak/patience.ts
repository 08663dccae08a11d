/** How long something may take, counted from when nobody kills any more: before that a server may be away half of the time. */
export class Patience {
  readonly #killing: AbortSignal
  readonly #ms: number
  #since = Date.now()

  /** `killing` aborts when the last one was killed. */
  constructor(killing: AbortSignal, ms: number) {
    this.#killing = killing
    this.#ms = ms
  }

  get isOver(): boolean {
    if (!this.#killing.aborted) this.#since = Date.now()
    return Date.now() - this.#since > this.#ms
  }
}
