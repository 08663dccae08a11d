import { ServiceError } from '../../errors.ts'

/** Allocates numbers `0..count-1` round robin, so that a released number is reused as late as possible. */
export class Allocator {
  readonly #what: string
  readonly #count: number
  #next: number

  constructor(what: string, count: number, first: number) {
    this.#what = what
    this.#count = count
    this.#next = first % count
  }

  /** The next number that is not taken. Throws `no_capacity`. */
  take(taken: { has(number: number): boolean }): number {
    for (let tried = 0; tried < this.#count; tried += 1) {
      const candidate = this.#next
      this.#next = (candidate + 1) % this.#count
      if (!taken.has(candidate)) return candidate
    }
    throw new ServiceError('no_capacity', `this host is out of ${this.#what}`, { details: { retryAfterSeconds: 60 } })
  }
}
