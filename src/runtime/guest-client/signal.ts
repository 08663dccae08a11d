/** Lets several waiters go on whenever something has changed; each then looks for itself. */
export class Signal {
  #next = Promise.withResolvers<void>()

  wait(): Promise<void> {
    return this.#next.promise
  }

  notify(): void {
    this.#next.resolve()
    this.#next = Promise.withResolvers<void>()
  }
}
