/** Intervals of one kind, so that one can tell whether any of them fell into an interval of the caller. */
export class Intervals {
  #open = 0
  #begun = 0

  /** Opens one. The result closes it, and says whether another was open meanwhile. More often is harmless. */
  begin(): () => boolean {
    const wasOpen = this.isOpen
    this.#open += 1
    this.#begun += 1
    const begun = this.#begun
    let ended = false
    return () => {
      if (!ended) this.#open -= 1
      ended = true
      return wasOpen || this.#begun !== begun
    }
  }

  get isOpen(): boolean {
    return this.#open > 0
  }

  /** The result says whether one was open at any moment from now until it is asked. */
  watch(): () => boolean {
    const wasOpen = this.isOpen
    const begun = this.#begun
    return () => wasOpen || this.#begun !== begun
  }
}

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
