import type { EventBus } from '../events/index.ts'
import type { FairYield } from '../lib/async/fair-yield.ts'
import { isLastPage, pageEvents, ReplayPages, textLength } from './replay.ts'
import { AnswerDraft, type DraftPiece } from './draft.ts'
import type { StreamEvent } from './session.ts'
import type { SessionHead, SessionStore } from './store.ts'

/** Events that are known together, or more of an answer that is being written. */
export type StreamBatch = readonly StreamEvent[] | DraftPiece

interface Followed {
  tail: SessionTail
  followers: number
  /** While nobody follows, and a draft is kept. */
  closing?: NodeJS.Timeout
}

/** How long an answer that is being written is kept while nobody follows it. */
const draftKeptMs = 30_000

/** The event streams of all sessions: one tail for each that somebody follows, one set of replayed pages for all. */
export class SessionStreams {
  readonly #deps: TailDeps
  readonly #pages: ReplayPages
  readonly #followed = new Map<string, Followed>()
  #isClosed = false

  constructor(deps: TailDeps) {
    this.#deps = deps
    this.#pages = new ReplayPages(deps.store)
  }

  /**
   * Yields every event after a number once, in order and as many together as are known: stored ones, then live ones. Ends when the
   * session has ended and all was yielded, or when `signal` aborts. Followers at one place get the same array. Holds one page, or what
   * the tail keeps.
   */
  follow(sessionId: string, after: number, signal: AbortSignal): AsyncGenerator<readonly StreamEvent[]> {
    return this.#follow(sessionId, after, signal, { drafts: false }) as AsyncGenerator<readonly StreamEvent[]>
  }

  /** As `follow`, with what the model has written of its answer so far and writes on, once all events before it are told. */
  followWithDrafts(sessionId: string, after: number, signal: AbortSignal): AsyncGenerator<StreamBatch> {
    return this.#follow(sessionId, after, signal, { drafts: true })
  }

  async *#follow(
    sessionId: string,
    after: number,
    signal: AbortSignal,
    { drafts }: { drafts: boolean },
  ): AsyncGenerator<StreamBatch> {
    const followed = this.#enter(sessionId)
    const { tail } = followed
    try {
      await tail.opened
      let sequence = after
      let told = { number: -1, length: 0 }
      while (!signal.aborted) {
        const newest = tail.after(sequence)
        const events = newest ?? (await this.#pages.after(sessionId, sequence, tail.last))
        if (signal.aborted) return
        sequence = events.at(-1)?.sequence ?? sequence
        if (events.length > 0) yield events
        if (newest === undefined) await this.#deps.pages.next()
        else if (events.length > 0) continue
        else if (tail.hasEnded) return
        else {
          const more = drafts ? tail.draft.after(told) : undefined
          if (more === undefined) await tail.waitForChange(signal)
          else {
            told = more.told
            yield more.piece
          }
        }
      }
    } finally {
      this.#leave(sessionId, followed)
    }
  }

  /** A session that runs and is followed already, as its tail knows it. It may be a moment old. */
  async head(sessionId: string): Promise<SessionHead | undefined> {
    if (!this.#followed.has(sessionId)) return undefined
    const followed = this.#enter(sessionId)
    try {
      await followed.tail.opened
      return followed.tail.head
    } finally {
      this.#leave(sessionId, followed)
    }
  }

  #enter(sessionId: string): Followed {
    const known = this.#followed.get(sessionId)
    const followed = known && !known.tail.hasFailed ? known : this.#open(sessionId)
    followed.followers += 1
    clearTimeout(followed.closing)
    return followed
  }

  #open(sessionId: string): Followed {
    const followed: Followed = { tail: new SessionTail(this.#deps, sessionId), followers: 0 }
    this.#followed.set(sessionId, followed)
    return followed
  }

  #leave(sessionId: string, followed: Followed): void {
    followed.followers -= 1
    if (followed.followers > 0) return
    if (this.#isClosed || followed.tail.draft.isEmpty) return this.#close(sessionId, followed)
    // Whose connection has broken comes back, and the draft is nowhere else.
    followed.closing = setTimeout(() => this.#close(sessionId, followed), draftKeptMs).unref()
  }

  #close(sessionId: string, followed: Followed): void {
    clearTimeout(followed.closing)
    followed.tail.close()
    if (this.#followed.get(sessionId) === followed) this.#followed.delete(sessionId)
  }

  /** Ends the tails that nobody follows. Those who follow end by their signals. */
  close(): void {
    this.#isClosed = true
    for (const [sessionId, followed] of this.#followed) if (followed.followers === 0) this.#close(sessionId, followed)
  }
}

/** The newest events that a tail keeps. A follower further behind reads pages of the store (`ReplayPages`). */
const windowEvents = 128
/** Characters of JSON in a window. A longer event is not kept: each session that is followed would hold one. */
const windowTextMax = 256 * 1024

/** Pieces of drafts that wait for the events before them. */
const piecesMax = 1000

interface TailDeps {
  store: SessionStore
  bus: EventBus
  /** A tail that was notified of nothing for this long reads the store. */
  pollMs: number
  /** Shared by all streams. */
  pages: FairYield
}

/**
 * The newest events of one session, read from the store once for all who follow it:
 *
 *     opening ──► live ──► ended        opening, live ──► failed (`after` throws) or closed
 *
 * The subscription comes before the first read, and each read after its notification, so that no event falls between the two.
 */
export class SessionTail {
  /** The answer that is being written after all known events. */
  readonly draft = new AnswerDraft()
  readonly #deps: TailDeps
  readonly #sessionId: string
  readonly #opened = Promise.withResolvers<void>()
  readonly #waiting = new Set<() => void>()
  /** Without a hole, up to `#last`. */
  readonly #window: { event: StreamEvent; textLength: number }[] = []
  #windowText = 0
  /** Answers of `after` for the present window, shared by followers at one place. */
  readonly #slices = new Map<number, readonly StreamEvent[]>()
  #head: SessionHead | undefined
  #last = 0
  /** Those whose events before are not known yet. */
  #pieces: (DraftPiece & { afterSequence: number })[] = []
  #hasEnded = false
  #failure: { error: unknown } | undefined
  #isClosed = false
  #isNotified = false
  #wake = () => {}

  constructor(deps: TailDeps, sessionId: string) {
    this.#deps = deps
    this.#sessionId = sessionId
    void this.#run()
  }

  /** Resolves after the first read, also when it failed. */
  get opened(): Promise<void> {
    return this.#opened.promise
  }

  /** The number of the newest event that is known. */
  get last(): number {
    return this.#last
  }

  /** Undefined unless the session runs. */
  get head(): SessionHead | undefined {
    const isLive = this.#failure === undefined && !this.#hasEnded
    return isLive && this.#head ? { ...this.#head, lastSequence: this.#last } : undefined
  }

  /** The session has ended and all of its events are known. */
  get hasEnded(): boolean {
    return this.#hasEnded
  }

  get hasFailed(): boolean {
    return this.#failure !== undefined
  }

  /** All known events above a number; undefined when the window does not reach back to it. Throws what the store threw. */
  after(sequence: number): readonly StreamEvent[] | undefined {
    if (this.#failure) throw this.#failure.error
    const index = sequence - (this.#last - this.#window.length)
    if (index < 0) return undefined
    const events = this.#slices.get(sequence) ?? this.#window.slice(index).map(({ event }) => event)
    this.#slices.set(sequence, events)
    return events
  }

  /** Resolves when `after` and `hasEnded` may say something else, or `signal` aborts. */
  async waitForChange(signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.#failure || this.#hasEnded) return
    const notified = Promise.withResolvers<void>()
    const wake = () => notified.resolve()
    this.#waiting.add(wake)
    signal.addEventListener('abort', wake)
    await notified.promise
    this.#waiting.delete(wake)
    signal.removeEventListener('abort', wake)
  }

  /** Ends its reads and its subscription. Only for a tail that nobody follows any more. */
  close(): void {
    this.#isClosed = true
    this.#notify()
  }

  async #run(): Promise<void> {
    const { store, bus } = this.#deps
    const unsubscribe = bus.subscribe(this.#sessionId, (event) => {
      if (event.type === 'session_changed') this.#notify()
      if (event.type === 'answer_drafted') this.#drafted(event)
    })
    try {
      this.#last = Math.max(0, (await store.lastSequence(this.#sessionId)) - windowEvents)
      while (!this.#isClosed) {
        this.#isNotified = false
        // The status first: an ended session gets no more events, so that what is read after it is all.
        this.#head = await store.head(this.#sessionId)
        const isRunning = this.#head?.status === 'running'
        await this.#readOn()
        this.#takePieces()
        this.#hasEnded = !isRunning
        this.#release()
        if (this.#hasEnded) return
        await this.#untilNotified()
      }
    } catch (error) {
      this.#failure = { error }
      this.#release()
    } finally {
      unsubscribe()
    }
  }

  async #readOn(): Promise<void> {
    while (!this.#isClosed) {
      const events = await this.#deps.store.stream(this.#sessionId, this.#last, pageEvents)
      this.#keep(events)
      if (isLastPage(events, pageEvents)) return
      this.#release()
      await this.#deps.pages.next()
    }
  }

  #keep(events: readonly StreamEvent[]): void {
    if (events.length === 0) return
    this.#slices.clear()
    this.#window.push(...events.map((event) => ({ event, textLength: textLength(event) })))
    this.#windowText = this.#window.reduce((sum, one) => sum + one.textLength, 0)
    const isTooMuch = () => this.#window.length > windowEvents || this.#windowText > windowTextMax
    while (isTooMuch()) this.#windowText -= this.#window.shift()?.textLength ?? 0
    this.#last = events.at(-1)?.sequence ?? this.#last
    // An agent says nothing else while it writes an answer.
    this.draft.end()
  }

  #drafted(piece: DraftPiece & { afterSequence: number }): void {
    this.#pieces.push(piece)
    if (this.#pieces.length > piecesMax) this.#pieces.shift()
    if (piece.afterSequence > this.#last) return
    this.#takePieces()
    this.#release()
  }

  #takePieces(): void {
    // Those of an earlier answer, which is whole by now, are left out.
    for (const piece of this.#pieces) if (piece.afterSequence === this.#last) this.draft.take(piece)
    this.#pieces = this.#pieces.filter(({ afterSequence }) => afterSequence > this.#last)
  }

  #release(): void {
    this.#opened.resolve()
    for (const resolve of this.#waiting) resolve()
    this.#waiting.clear()
  }

  #notify(): void {
    this.#isNotified = true
    this.#wake()
  }

  async #untilNotified(): Promise<void> {
    if (this.#isNotified || this.#isClosed) return
    const notified = Promise.withResolvers<void>()
    this.#wake = notified.resolve
    const timer = setTimeout(notified.resolve, this.#deps.pollMs)
    await notified.promise
    clearTimeout(timer)
  }
}
