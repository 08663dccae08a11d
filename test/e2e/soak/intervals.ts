/** Stretches of time of one kind, so that one can tell whether any of them fell into a stretch of one's own. */
export class Windows {
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
