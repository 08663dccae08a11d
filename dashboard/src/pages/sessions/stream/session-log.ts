import {
  AtollError,
  ConflictError,
  type AgentEvent,
  type AssistantDraft,
  type Session,
  type StreamEvent,
} from 'atoll-sdk'
import { Transcript } from './transcript.ts'

/** Events before the newest one that are read first. */
const firstCount = 1500
/** Events that are read for one look further back. */
const earlierCount = 400
/** Events before the one that a link leads to. */
const leadCount = 150
/** Characters of rows that are kept, their own cost included: some 40 MB at most. */
const weightMax = 16 * 1024 * 1024
const weightAfterDrop = 0.75 * weightMax
/** A tab that is not seen lets its connection go after this: HTTP/1.1 allows six to a server, for all tabs together. */
const hiddenMs = 10_000
const firstPauseMs = 1000
const pauseMaxMs = 30_000

/**
 * `reading` (what was missed comes) → `live` ⇄ `broken` (the connection is cut) → `over` (the session has ended and all of it is here) or `failed`.
 * `held`: newer events are not read, since the reader looks at old ones and both would not fit.
 */
export type LogState = 'reading' | 'live' | 'broken' | 'held' | 'over' | 'failed'

export interface LogView {
  /** Raised with each change of the rows. */
  revision: number
  state: LogState
  /** Of `failed` and `broken`. */
  error: unknown
  isReadingEarlier: boolean
  earlierError: unknown
  /** The answer that is being written: what there is of it, and which one it is. */
  draft: { number: number; text: string }
  /** Turns that have ended, and rewinds, since the reading began: what an agent makes is another then. */
  turnsDone: number
}

/** What happened in the session just now. */
export type LiveEdge = 'turn' | 'progress'

/**
 * The stream of a session as rows. It begins near the newest event, or at one that is asked for, and what is older is read on demand. Each event is taken
 * once, by its number, over any number of connections. Views are told of changes once per frame, however many events come.
 */
export class SessionLog {
  transcript = new Transcript(0)
  /** Whether the reader looks at the older half of what is kept. */
  isReaderBack = false
  readonly #session: Session
  readonly #onEdge: (edge: LiveEdge) => void
  readonly #listeners = new Set<() => void>()
  #view: LogView = {
    revision: 0,
    state: 'reading',
    error: undefined,
    isReadingEarlier: false,
    earlierError: undefined,
    draft: { number: 0, text: '' },
    turnsDone: 0,
  }
  #following: AbortController | undefined
  #closed = new AbortController()
  #hideTimer: ReturnType<typeof setTimeout> | undefined
  #frame: number | undefined
  /** The newest number that was known when the reading began. */
  #newest = 0
  /** Stands for the last beginning, while it finds out where to read from. */
  #beginning: symbol | undefined

  constructor(session: Session, onEdge: (edge: LiveEdge) => void) {
    this.#session = session
    this.#onEdge = onEdge
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  readonly view = (): LogView => this.#view

  /** Begins to read; the function that it returns ends that. */
  open(event?: number): () => void {
    this.#closed = new AbortController()
    document.addEventListener('visibilitychange', this.#onVisibility)
    // It may have been opened in the background.
    this.#onVisibility()
    void this.#begin(event)
    return () => {
      document.removeEventListener('visibilitychange', this.#onVisibility)
      clearTimeout(this.#hideTimer)
      if (this.#frame !== undefined) cancelAnimationFrame(this.#frame)
      this.#frame = undefined
      this.#closed.abort()
      this.#following?.abort()
      this.#following = undefined
    }
  }

  /** Begins anew at the newest event, or so that an event is among the rows. */
  restart(event?: number): void {
    this.#following?.abort()
    this.#following = undefined
    void this.#begin(event)
  }

  /** Goes on with events that were held. */
  resume(): void {
    if (this.#view.state === 'held') this.#follow()
  }

  /** Reads events before those that are kept. */
  async readEarlier(): Promise<void> {
    const { transcript } = this
    const { before } = transcript
    if (before === 0 || this.#view.isReadingEarlier) return
    this.#tell({ isReadingEarlier: true, earlierError: undefined })
    try {
      const from = Math.max(0, before - earlierCount)
      const older = new Transcript(from)
      const isFull = transcript.weight > weightAfterDrop
      // Without room for both, what is newer is read again when the reader comes to it.
      await this.#readTo(older, isFull ? Math.min(transcript.last, before + earlierCount) : before)
      if (this.transcript !== transcript || transcript.before !== before) return
      if (isFull) this.#replace(older)
      else transcript.prepend(older)
      this.#tell({ isReadingEarlier: false })
    } catch (error) {
      if (!this.#closed.signal.aborted) this.#tell({ isReadingEarlier: false, earlierError: error })
    }
  }

  #replace(transcript: Transcript): void {
    this.#following?.abort()
    this.#following = undefined
    this.transcript = transcript
    this.#tell({ state: 'held' })
  }

  async #readTo(transcript: Transcript, last: number): Promise<void> {
    const { signal } = this.#closed
    for await (const event of this.#session.events({ after: transcript.last, signal })) {
      if (event.sequence <= last) transcript.add(event)
      if (event.sequence >= last) return
    }
  }

  async #begin(event: number | undefined): Promise<void> {
    const { signal } = this.#closed
    const beginning = Symbol()
    this.#beginning = beginning
    this.transcript = new Transcript(0)
    this.#tell({ state: 'reading', error: undefined })
    try {
      const newest = await newestOf(this.#session, signal)
      if (signal.aborted || this.#beginning !== beginning) return
      this.#newest = newest
      const back = event === undefined ? firstCount : leadCount
      this.transcript = new Transcript(Math.max(0, Math.min(event ?? this.#newest, this.#newest) - back))
      this.isReaderBack = event !== undefined
      this.#follow()
    } catch (error) {
      if (!signal.aborted) this.#tell({ state: 'failed', error })
    } finally {
      if (this.#beginning === beginning) this.#beginning = undefined
    }
  }

  #follow(): void {
    this.#following?.abort()
    this.#following = new AbortController()
    void this.#read(AbortSignal.any([this.#following.signal, this.#closed.signal]))
  }

  async #read(signal: AbortSignal): Promise<void> {
    this.#tell({ state: this.transcript.last < this.#newest ? 'reading' : 'live', error: undefined })
    for (let pauseMs = firstPauseMs; !signal.aborted; pauseMs = Math.min(2 * pauseMs, pauseMaxMs)) {
      try {
        const onOpen = () => {
          pauseMs = firstPauseMs
          if (this.#view.state === 'broken') this.#tell({ state: 'live', error: undefined })
        }
        const onBreak = (error: unknown) => this.#tell({ state: 'broken', error })
        const onDraft = (piece: AssistantDraft) => this.#takeDraft(piece)
        const { last: after } = this.transcript
        for await (const event of this.#session.events({ after, signal, onOpen, onBreak, onDraft })) {
          if (!this.#take(event)) return
        }
        return this.#tell({ state: 'over' })
      } catch (error) {
        if (signal.aborted) return
        if (isFinal(error)) return this.#tell({ state: 'failed', error })
        this.#tell({ state: 'broken', error })
        await pause(pauseMs, signal)
      }
    }
  }

  /** A piece that does not follow what is here is left out: the whole answer comes later. */
  #takeDraft({ offset, text }: AssistantDraft): void {
    const { number, text: known } = this.#view.draft
    if (offset === 0) this.#tell({ draft: { number: number + 1, text } })
    else if (offset === known.length) this.#tell({ draft: { number, text: known + text } })
  }

  /** False when there is no room for more. */
  #take(event: StreamEvent<AgentEvent>): boolean {
    const { transcript } = this
    const hadTurn = transcript.turn !== undefined
    transcript.add(event)
    if (this.#view.draft.text !== '') this.#tell({ draft: { number: this.#view.draft.number, text: '' } })
    if (event.sequence >= this.#newest && this.#view.state === 'reading') this.#tell({ state: 'live' })
    if (event.sequence > this.#newest) {
      const hasTurn = transcript.turn !== undefined
      const { type } = event.data
      if (type === 'turn_complete' || type === 'rewound') this.#tell({ turnsDone: this.#view.turnsDone + 1 })
      if (hadTurn !== hasTurn || type === 'rewound' || type === 'error') this.#onEdge('turn')
      else if (type === 'checkpoint_created' || type === 'tool_use_summary') this.#onEdge('progress')
    }
    if (transcript.weight > weightMax) {
      if (this.isReaderBack) {
        this.#following?.abort()
        this.#tell({ state: 'held' })
        return false
      }
      transcript.dropTo(weightAfterDrop)
    }
    this.#tell({})
    return true
  }

  readonly #onVisibility = (): void => {
    clearTimeout(this.#hideTimer)
    if (document.visibilityState === 'hidden') {
      this.#hideTimer = setTimeout(() => {
        this.#following?.abort()
        this.#following = undefined
      }, hiddenMs)
    } else if (this.#following === undefined && this.#beginning === undefined && isFollowed(this.#view.state))
      this.#follow()
  }

  #tell(change: Partial<LogView>): void {
    this.#view = { ...this.#view, ...change, revision: this.#view.revision + 1 }
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = undefined
      for (const listener of this.#listeners) listener()
    })
  }
}

function isFollowed(state: LogState): boolean {
  return state === 'reading' || state === 'live' || state === 'broken'
}

/** Asked again the server would say the same: no key, no such session. */
function isFinal(error: unknown): boolean {
  const status = error instanceof AtollError ? error.status : undefined
  return status !== undefined && status >= 400 && status < 500 && status !== 408 && status !== 429
}

/** The number of the newest event, of a session that has ended that of its last turn. */
async function newestOf(session: Session, signal: AbortSignal): Promise<number> {
  try {
    return await session.newestEvent({ signal })
  } catch (error) {
    if (!(error instanceof ConflictError)) throw error
    const { turns } = await session.timeline({ branch: 'all' }).page({ limit: 1, signal })
    return turns[0]?.lastEvent ?? turns[0]?.firstEvent ?? 0
  }
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      resolve()
    })
    // The network is back: no need to wait.
    addEventListener('online', () => resolve(), { once: true, signal })
  })
}
