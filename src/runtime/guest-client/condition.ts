/** A condition variable: each waiter checks its own condition again after every `notify`. */
export class Condition {
  #next = Promise.withResolvers<void>()

  wait(): Promise<void> {
    return this.#next.promise
  }

  notify(): void {
    this.#next.resolve()
    this.#next = Promise.withResolvers<void>()
  }
}
