/** Lets a bounded number through at a time; the others wait in the order in which they came. */
export class Gate {
  #free: number
  readonly #waiting: (() => void)[] = []

  constructor(width: number) {
    this.#free = width
  }

  /** Rejects with the signal's reason when it aborts while the work waits; work that has begun looks after the signal itself. */
  async pass<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const leave = await this.enter(signal)
    try {
      return await work()
    } finally {
      leave()
    }
  }

  /** Resolves with the function that lets the next one in; calling it again is harmless. */
  async enter(signal?: AbortSignal): Promise<() => void> {
    signal?.throwIfAborted()
    if (this.#free > 0) this.#free -= 1
    else await this.#wait(signal)
    let isInside = true
    return () => {
      if (!isInside) return
      isInside = false
      const next = this.#waiting.shift()
      if (next === undefined) this.#free += 1
      else next()
    }
  }

  #wait(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const letIn = () => {
        signal?.removeEventListener('abort', giveUp)
        resolve()
      }
      const giveUp = () => {
        this.#waiting.splice(this.#waiting.indexOf(letIn), 1)
        reject(signal?.reason as Error)
      }
      signal?.addEventListener('abort', giveUp, { once: true })
      this.#waiting.push(letIn)
    })
  }
}
