export interface SemaphoreOptions {
  /** Most for all keys together. Default: no bound. */
  permits?: number
  /** Most for one key, or by key. Default: no bound. */
  permitsPerKey?: number | ((key: string) => number)
  /** The weight of a key against others, such as that of an organisation. Default: all weigh the same. */
  shareOf?: (key: string) => number
}

export interface AcquireOptions {
  /** The owner that is charged. Default: one key for all. */
  key?: string
  /** How many permits. A weight above `permitsPerKey` is charged as `permitsPerKey`. Default 1. */
  weight?: number
  /** Ends the wait with its reason. It does not end work that has begun. */
  signal?: AbortSignal | undefined
}

/** Returns the permits. A repeat is harmless. */
export type Release = () => void

interface Waiter {
  key: string
  weight: number
  arrival: number
  admit(release: Release): void
}

/**
 * A counting semaphore with keys and weights. Callers of one key are served in order of arrival. Between keys a free permit goes to the one
 * that holds the fewest for its share, and between equal ones to the one that was served least (start-time fair queueing: Goyal, Vin and
 * Cheng, 1996). So a key with a thousand callers delays the first caller of another by one permit, and a key that has reached its own bound
 * holds up no other key. A key without users costs nothing.
 *
 * It is our own because the libraries lack a part: `async-mutex` has weights but neither keys nor abort signals, `p-queue` and
 * `p-limit` have neither keys nor permits that outlive a function.
 */
export class Semaphore {
  readonly #permits: number
  readonly #permitsOf: (key: string) => number
  readonly #shareOf: (key: string) => number
  #taken = 0
  /** The service that the key had when it was served last: where a key begins that comes now. */
  #served = 0
  /** The service that each key with users has had, in permits for its share. */
  readonly #servedTo = new Map<string, number>()
  #arrivals = 0
  readonly #takenBy = new Map<string, number>()
  readonly #waiting = new Map<string, Waiter[]>()
  readonly #users = new Map<string, number>()

  constructor({ permits = Infinity, permitsPerKey = Infinity, shareOf = () => 1 }: SemaphoreOptions) {
    this.#permits = permits
    this.#permitsOf = typeof permitsPerKey === 'number' ? () => permitsPerKey : permitsPerKey
    this.#shareOf = shareOf
  }

  /** Runs `work` with a permit. */
  async use<Result>(work: () => Promise<Result>, options?: AcquireOptions): Promise<Result> {
    const release = await this.acquire(options)
    try {
      return await work()
    } finally {
      release()
    }
  }

  /** Waits for a permit. Throws the signal's reason when it aborts first. */
  async acquire(options: AcquireOptions = {}): Promise<Release> {
    options.signal?.throwIfAborted()
    return this.tryAcquire(options) ?? (await this.#wait(options))
  }

  /** Undefined when no permit is free, or when other callers of this key wait for one. */
  tryAcquire({ key = '', weight = 1 }: AcquireOptions = {}): Release | undefined {
    return this.#waiting.has(key) ? undefined : this.#take(key, weight)
  }

  /** Whether anybody holds a permit or waits for one. */
  get isUsed(): boolean {
    return this.#users.size > 0
  }

  /** Callers of this key that hold permits or wait for them. */
  users(key = ''): number {
    return this.#users.get(key) ?? 0
  }

  #take(key: string, weight: number): Release | undefined {
    if (!this.#fits(key, weight)) return undefined
    const charged = Math.min(weight, this.#permitsOf(key))
    this.#taken += charged
    count(this.#takenBy, key, charged)
    count(this.#users, key, 1)
    this.#served = this.#serviceOf(key)
    this.#servedTo.set(key, this.#served + charged / this.#shareOf(key))
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.#taken -= charged
      count(this.#takenBy, key, -charged)
      this.#leave(key)
      this.#admitWaiters(key)
    }
  }

  #wait({ key = '', weight = 1, signal }: AcquireOptions): Promise<Release> {
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        key,
        weight,
        arrival: this.#arrivals++,
        admit: (release) => {
          signal?.removeEventListener('abort', abandon)
          resolve(release)
        },
      }
      const abandon = () => {
        this.#remove(waiter)
        // A lighter caller behind this one may fit now.
        this.#admitWaiters(key)
        reject(signal?.reason as Error)
      }
      signal?.addEventListener('abort', abandon, { once: true })
      count(this.#users, key, 1)
      const queue = this.#waiting.get(key)
      if (queue === undefined) this.#waiting.set(key, [waiter])
      else queue.push(waiter)
    })
  }

  #admitWaiters(releasedKey: string): void {
    for (;;) {
      const waiter = this.#nextWaiter(releasedKey)
      if (waiter === undefined) return
      const release = this.#take(waiter.key, waiter.weight)
      if (release === undefined) return
      this.#remove(waiter)
      waiter.admit(release)
    }
  }

  /** Of the callers that are first of their keys and whose permits are free, the one whose key is served next. */
  #nextWaiter(releasedKey: string): Waiter | undefined {
    // Without a common bound a permit of one key is of no use to another.
    const keys = this.#permits === Infinity ? [releasedKey] : this.#waiting.keys()
    let next: { waiter: Waiter; order: readonly number[] } | undefined
    for (const key of keys) {
      const waiter = this.#waiting.get(key)?.[0]
      if (waiter === undefined || !this.#fits(key, waiter.weight)) continue
      const held = (this.#takenBy.get(key) ?? 0) / this.#shareOf(key)
      const order = [held, this.#serviceOf(key), waiter.arrival]
      if (next === undefined || isBefore(order, next.order)) next = { waiter, order }
    }
    return next?.waiter
  }

  /** A key that was away gets nothing for that time. */
  #serviceOf(key: string): number {
    return Math.max(this.#served, this.#servedTo.get(key) ?? 0)
  }

  #leave(key: string): void {
    count(this.#users, key, -1)
    if (!this.#users.has(key)) this.#servedTo.delete(key)
  }

  #fits(key: string, weight: number): boolean {
    const charged = Math.min(weight, this.#permitsOf(key))
    const ofKey = (this.#takenBy.get(key) ?? 0) + charged
    return this.#taken + charged <= this.#permits && ofKey <= this.#permitsOf(key)
  }

  #remove(waiter: Waiter): void {
    const queue = this.#waiting.get(waiter.key) ?? []
    queue.splice(queue.indexOf(waiter), 1)
    if (queue.length === 0) this.#waiting.delete(waiter.key)
    this.#leave(waiter.key)
  }
}

function isBefore(order: readonly number[], other: readonly number[]): boolean {
  const index = order.findIndex((value, position) => value !== other[position])
  return index >= 0 && (order[index] ?? 0) < (other[index] ?? 0)
}

function count(counts: Map<string, number>, key: string, step: number): void {
  const value = (counts.get(key) ?? 0) + step
  if (value > 0) counts.set(key, value)
  else counts.delete(key)
}
