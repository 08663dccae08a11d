import { Gate } from './gate.ts'

interface Place {
  gate: Gate
  users: number
}

/** A {@link Gate} for each key, all of the same width. A key costs nothing while nobody uses it. */
export class KeyedGate {
  readonly #width: number
  readonly #places = new Map<string, Place>()

  constructor(width: number) {
    this.#width = width
  }

  /** See {@link Gate.pass}. */
  async pass<T>(key: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const leave = await this.enter(key, signal)
    try {
      return await work()
    } finally {
      leave()
    }
  }

  /** See {@link Gate.enter}. */
  async enter(key: string, signal?: AbortSignal): Promise<() => void> {
    const place = this.#places.get(key) ?? { gate: new Gate(this.#width), users: 0 }
    this.#places.set(key, place)
    place.users += 1
    const forget = () => {
      place.users -= 1
      if (place.users === 0) this.#places.delete(key)
    }
    try {
      const next = await place.gate.enter(signal)
      let isInside = true
      return () => {
        if (!isInside) return
        isInside = false
        next()
        forget()
      }
    } catch (error) {
      forget()
      throw error
    }
  }

  /** Who is in, and who waits. */
  users(key: string): number {
    return this.#places.get(key)?.users ?? 0
  }
}
