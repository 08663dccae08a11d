import { Semaphore } from '../lib/async/semaphore.ts'
import { eventText, type StreamEvent } from './session.ts'
import { streamPageBytes, type SessionStore } from './store.ts'

/** Events read at once, unless `streamPageBytes` ends the page before. */
export const pageEvents = 32
/** Most bytes of a UTF-16 code unit in UTF-8. */
const characterBytesMax = 3
/** Reads at a time for all replays: however many clients reconnect together, the store has time for writes. */
const readsAtOnce = 2
/** Characters of JSON that pages keep after they were read. */
const cachedTextMax = 8 * 1024 * 1024

interface CachedPage {
  events: Promise<readonly StreamEvent[]>
  /** 0 until it is read. */
  textLength: number
}

/**
 * Stored events in pages that begin at fixed numbers, or where the size of an earlier page cut it. Events never change, so replays of
 * the same part share a page: one read serves all who wait for it, and those who come while it is kept.
 */
export class ReplayPages {
  readonly #store: Pick<SessionStore, 'stream'>
  readonly #semaphore = new Semaphore({ permits: readsAtOnce })
  /** In order of last use. */
  readonly #pages = new Map<string, CachedPage>()
  #textLength = 0

  constructor(store: Pick<SessionStore, 'stream'>) {
    this.#store = store
  }

  /** At least one event after the number `after`, without a hole; `last` is a number above it that is in the store. */
  async after(sessionId: string, after: number, last: number): Promise<readonly StreamEvent[]> {
    const start = after - (after % pageEvents)
    const end = Math.min(start + pageEvents, last)
    const page = await this.#page(sessionId, start, end)
    if (after === start) return page
    const events = page.slice(after - start)
    return events.length > 0 ? events : await this.#page(sessionId, after, end)
  }

  /** The events behind the number `start`, up to `end` unless the page is cut before. */
  async #page(sessionId: string, start: number, end: number): Promise<readonly StreamEvent[]> {
    const key = `${sessionId}:${start}:${end}`
    const page = this.#pages.get(key) ?? this.#read(key, sessionId, start, end)
    this.#pages.delete(key)
    this.#pages.set(key, page)
    return await page.events
  }

  #read(key: string, sessionId: string, start: number, end: number): CachedPage {
    const page: CachedPage = { events: this.#load(sessionId, start, end), textLength: 0 }
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

  async #load(sessionId: string, start: number, end: number): Promise<StreamEvent[]> {
    const events = await this.#semaphore.use(() => this.#store.stream(sessionId, start, end - start))
    if (events.length > 0) return events
    throw new Error(`session ${sessionId} has none of the events from ${start + 1} to ${end}`)
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
  return eventText(event).length
}

/** Whether these were the last events when they were read with this limit; false where that is uncertain. */
export function isLastPage(events: readonly StreamEvent[], limit: number): boolean {
  if (events.length >= limit) return false
  return events.reduce((sum, event) => sum + textLength(event), 0) * characterBytesMax < streamPageBytes
}
