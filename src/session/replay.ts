import { Gate } from '../lib/gate.ts'
import type { StreamEvent } from './session.ts'
import type { SessionStore } from './store.ts'

/** Events read at once. One can be as long as a line of the agent, so a page is kept short. */
export const pageEvents = 32
/** Reads at once for all replays of all sessions: whatever reconnects together, the store has time for those who write. */
const readsAtOnce = 2
/** Characters of JSON that pages keep after they were read. */
const cachedTextMax = 8 * 1024 * 1024

interface CachedPage {
  events: Promise<readonly StreamEvent[]>
  /** 0 until it is read. */
  textLength: number
}

/**
 * Stored events in pages that begin at fixed numbers. An event never changes, so who replays the same part gets the same page: one
 * read serves all who wait for it, and those who come while it is kept.
 */
export class ReplayPages {
  readonly #store: Pick<SessionStore, 'stream'>
  readonly #gate = new Gate(readsAtOnce)
  /** In order of last use. */
  readonly #pages = new Map<string, CachedPage>()
  #textLength = 0

  constructor(store: Pick<SessionStore, 'stream'>) {
    this.#store = store
  }

  /** At least one event after the number `after`, without a hole; `last` is a number above it that is in the store. */
  async after(sessionId: string, after: number, last: number): Promise<readonly StreamEvent[]> {
    const start = after - (after % pageEvents)
    const count = Math.min(pageEvents, last - start)
    const key = `${sessionId}:${start}:${count}`
    const page = this.#pages.get(key) ?? this.#read(key, sessionId, start, count)
    this.#pages.delete(key)
    this.#pages.set(key, page)
    return (await page.events).slice(after - start)
  }

  #read(key: string, sessionId: string, start: number, count: number): CachedPage {
    const page: CachedPage = { events: this.#load(sessionId, start, count), textLength: 0 }
    page.events.then(
      (events) => {
        page.textLength = events.reduce((sum, event) => sum + textLength(event), 0)
        this.#textLength += page.textLength
        this.#evict()
      },
      () => this.#pages.delete(key),
    )
    return page
  }

  async #load(sessionId: string, start: number, count: number): Promise<StreamEvent[]> {
    const events = await this.#gate.pass(() => this.#store.stream(sessionId, start, count))
    if (events.length === count) return events
    throw new Error(`session ${sessionId} has ${events.length} of the ${count} events after ${start}`)
  }

  #evict(): void {
    for (const [key, page] of this.#pages) {
      if (this.#textLength <= cachedTextMax) return
      if (page.textLength === 0) continue
      this.#pages.delete(key)
      this.#textLength -= page.textLength
    }
  }
}

export function textLength(event: StreamEvent): number {
  return JSON.stringify(event.data).length
}
