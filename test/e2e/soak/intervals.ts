/** Intervals of one kind. Tells a caller whether any of them overlapped an interval of its own. */
export class Intervals {
  #open = 0
  #begun = 0

  /** Opens one. The result closes it and says whether another overlapped it; repeated calls are harmless. */
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

  /** The result says whether one was open at any moment between this call and its own. */
  watch(): () => boolean {
    const wasOpen = this.isOpen
    const begun = this.#begun
    return () => wasOpen || this.#begun !== begun
  }
}

/** A time limit that starts to run when the kills have ended: before that the server is away up to half of the time. */
export class Deadline {
  readonly #killing: AbortSignal
  readonly #ms: number
  #since = Date.now()

  /** `killing` aborts after the last kill. */
  constructor(killing: AbortSignal, ms: number) {
    this.#killing = killing
    this.#ms = ms
  }

  get isOver(): boolean {
    if (!this.#killing.aborted) this.#since = Date.now()
    return Date.now() - this.#since > this.#ms
  }
}
