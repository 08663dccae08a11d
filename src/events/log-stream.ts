import { Semaphore } from '../lib/async/semaphore.ts'
import { ServiceError } from '../errors.ts'
import type { EventBus } from './index.ts'
import type { EventLog, LogEvent, LogFilter, LogPage } from './log.ts'

/** Events that are read at once. */
const pageEvents = 128
/** Reads at a time for all followers, so that the store has time for writers even when many clients reconnect together. */
const readsAtOnce = 2

/** Events in order, possibly none, and the number up to which they are complete. Clients that read the same share one batch. */
export interface LogBatch {
  readonly events: readonly LogEvent[]
  readonly position: number
}

export interface LogFollowing {
  /** `newest`: only what comes from now on. */
  after: number | 'newest'
  filter: LogFilter
  signal: AbortSignal
}

interface LogStreamsDeps {
  log: EventLog
  bus: EventBus
  /** A follower reads the store at least this often, also without a notice of the bus. */
  pollMs?: number
}

/**
 * Reads the logs of organisations for clients. The bus only says that there is news. All events come from the store, so a lost notice costs
 * a delay and no event. Of a client only the number of its last event is kept; clients that read the same at the same time share a read.
 */
export class LogStreams {
  readonly #log: EventLog
  readonly #bus: EventBus
  readonly #pollMs: number
  readonly #reads = new Map<string, Promise<LogPage>>()
  readonly #semaphore = new Semaphore({ permits: readsAtOnce })

  constructor({ log, bus, pollMs = 15_000 }: LogStreamsDeps) {
    this.#log = log
    this.#bus = bus
    this.#pollMs = pollMs
  }

  /**
   * A page of at most `limit` events above `after`. Throws `invalid_request` for a number beyond the newest, and `events_expired` for one
   * whose successors are deleted; 0 is the beginning of what is kept.
   */
  async page(
    orgId: string,
    { after, limit, filter }: { after: number | 'newest'; limit: number; filter: LogFilter },
  ): Promise<LogPage> {
    if (after === 'newest') {
      const { newest, oldest } = await this.#read(orgId, { after: 0, limit: 1, filter: {} })
      return { events: [], next: newest, newest, oldest }
    }
    const page = await this.#read(orgId, { after, limit, filter })
    assertKept(after, page)
    return page
  }

  /**
   * Yields the events after a number, then new ones, until `signal` aborts; the first batch tells where it begins. Each event comes once, in
   * order. Throws as `page` does, also when the reader falls behind the oldest kept event.
   */
  async *follow(orgId: string, { after, filter, signal }: LogFollowing): AsyncGenerator<LogBatch> {
    using news = new News(this.#bus, orgId, this.#pollMs)
    const first = await this.page(orgId, { after, limit: pageEvents, filter })
    let position = first.next
    let { newest } = first
    yield batchOf(first)
    while (!signal.aborted) {
      if (position >= newest) await news.next(signal)
      if (signal.aborted) return
      const page = await this.#read(orgId, { after: position, limit: pageEvents, filter })
      assertKept(position, page)
      newest = page.newest
      if (page.next === position) continue
      position = page.next
      yield batchOf(page)
    }
  }

  async #read(orgId: string, query: { after: number; limit: number; filter: LogFilter }): Promise<LogPage> {
    const key = JSON.stringify([orgId, query])
    const read = this.#reads.get(key) ?? this.#begin(key, orgId, query)
    return await read
  }

  #begin(key: string, orgId: string, query: Parameters<EventLog['page']>[1]): Promise<LogPage> {
    const work = () => {
      // Later callers may know of an event that came too late for this read.
      this.#reads.delete(key)
      return this.#log.page(orgId, query)
    }
    const read = this.#semaphore.use(work, { key: orgId })
    this.#reads.set(key, read)
    return read
  }
}

const batches = new WeakMap<LogPage, LogBatch>()

/** Returns the same object for the same page, so that it is encoded once for all clients. */
function batchOf(page: LogPage): LogBatch {
  const batch = batches.get(page) ?? { events: page.events, position: page.next }
  batches.set(page, batch)
  return batch
}

function assertKept(after: number, { newest, oldest }: LogPage): void {
  if (after > newest) {
    const message = `after is ${after}, and the newest event of the organisation is ${newest}`
    throw new ServiceError('invalid_request', message, { details: { field: 'after', newest } })
  }
  if (after === 0 || after + 1 >= oldest) return
  const message = `after is ${after}, and events below ${oldest} are deleted: go on with after=${oldest - 1}, or 0`
  throw new ServiceError('events_expired', message, { details: { field: 'after', oldest } })
}

/** `next` waits until a log may have grown since its last call: the bus has said so, or has been silent for long. */
class News implements Disposable {
  readonly #unsubscribe: () => void
  readonly #pollMs: number
  #isTold = false
  #wake = () => {}

  constructor(bus: EventBus, orgId: string, pollMs: number) {
    this.#pollMs = pollMs
    this.#unsubscribe = bus.subscribe(orgId, () => {
      this.#isTold = true
      this.#wake()
    })
  }

  async next(signal: AbortSignal): Promise<void> {
    if (!this.#isTold && !signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#wake = resolve
      const timer = setTimeout(resolve, this.#pollMs)
      signal.addEventListener('abort', this.#wake)
      await promise
      clearTimeout(timer)
      signal.removeEventListener('abort', this.#wake)
    }
    this.#isTold = false
  }

  [Symbol.dispose](): void {
    this.#unsubscribe()
  }
}
