import { EventsExpiredError, ForbiddenError, type EventInfo } from 'atoll-sdk'
import { client, isUnauthorized } from '../account/client.ts'
import { pause } from '../lib/pause.ts'

/**
 * The log of the organisation, read once for all tabs of a browser: HTTP/1.1 allows six connections to a server. The tab that has a lock reads
 * the stream and tells the others by a channel; when it closes, the lock passes on, and the next reader goes on from the last number.
 *
 * `connecting` → `live` ⇄ `broken` (the connection is cut, or the server away; the SDK connects again) → `over` (signed out) or `refused` (the key may
 * not read the log).
 */
export type LiveState = 'connecting' | 'live' | 'broken' | 'over' | 'refused'

/** `missed`: events may have passed unseen, so read anew what matters. */
export type LiveNews = { type: 'event'; event: EventInfo } | { type: 'state'; state: LiveState } | { type: 'missed' }

const name = 'atoll.log'
/** A follower asks the reader for the state, which may take this long before it counts as unknown. */
const firstPauseMs = 1000
const pauseMaxMs = 5_000

export class OrganisationLog {
  readonly #channel = new BroadcastChannel(name)
  readonly #listeners = new Set<(news: LiveNews) => void>()
  readonly #closed = new AbortController()
  #state: LiveState = 'connecting'
  #last: number | undefined

  constructor() {
    this.#channel.addEventListener('message', ({ data }: MessageEvent<LiveNews | { type: 'hello' }>) => {
      if (data.type === 'hello') this.#channel.postMessage({ type: 'state', state: this.#state })
      else this.#take(data)
    })
    this.#channel.postMessage({ type: 'hello' })
    void this.#readInTurn()
    // A machine that slept, or a tab that was frozen, has missed what the channel carried.
    addEventListener('pageshow', ({ persisted }) => {
      if (persisted) this.#take({ type: 'missed' })
    })
  }

  get state(): LiveState {
    return this.#state
  }

  subscribe(listener: (news: LiveNews) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  close(): void {
    this.#closed.abort()
    this.#channel.close()
  }

  async #readInTurn(): Promise<void> {
    const { signal } = this.#closed
    try {
      // Without locks (an address without TLS that is not this machine) each tab reads for itself.
      if (!('locks' in navigator)) return await this.#read()
      await navigator.locks.request(name, { signal }, () => this.#read())
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  async #read(): Promise<void> {
    const { signal } = this.#closed
    for (let pauseMs = firstPauseMs; !signal.aborted; pauseMs = Math.min(2 * pauseMs, pauseMaxMs)) {
      try {
        const after = this.#last ?? (await this.#newest())
        // What happened between the first reads of this page and the stream was seen by neither.
        if (this.#last === undefined) this.#tell({ type: 'missed' })
        this.#last = after
        const onBreak = () => this.#tell({ type: 'state', state: 'broken' })
        const onOpen = () => {
          pauseMs = firstPauseMs
          this.#tell({ type: 'state', state: 'live' })
        }
        for await (const event of client.events({ after, signal, onBreak, onOpen })) {
          this.#tell({ type: 'event', event })
        }
      } catch (error) {
        if (signal.aborted) return
        if (isUnauthorized(error)) return this.#tell({ type: 'state', state: 'over' })
        if (error instanceof ForbiddenError) return this.#tell({ type: 'state', state: 'refused' })
        if (error instanceof EventsExpiredError) {
          this.#last = undefined
          continue
        }
        this.#tell({ type: 'state', state: 'broken' })
        await pause(pauseMs)
      }
    }
  }

  async #newest(): Promise<number> {
    const query = { follow: false, limit: 1, after: 'newest' }
    const { newest } = await client.json<{ newest: number }>('GET', '/api/events', {
      query,
      signal: this.#closed.signal,
    })
    return newest
  }

  #tell(news: LiveNews): void {
    if (!this.#closed.signal.aborted) this.#channel.postMessage(news)
    this.#take(news)
  }

  #take(news: LiveNews): void {
    if (news.type === 'state') this.#state = news.state
    if (news.type === 'event') this.#last = Math.max(this.#last ?? 0, news.event.number)
    for (const listener of this.#listeners) listener(news)
  }
}
