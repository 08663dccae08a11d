import { NotFoundError, Session, type EventInfo, type SessionInfo } from 'atoll-sdk'
import { client } from '../../../account/client.ts'
import { isPeek } from '../travel/peek.ts'

/** Sessions that are read for one look further. */
const pageSize = 60
/** Events come in bursts; a session is read once for a burst. */
const burstMs = 300
/** With more changed sessions than this the list is read anew. */
const refreshedMax = 20

/** What the list shows of a session: its messages, of which there may be megabytes, are not kept. */
export type SessionRow = Pick<
  SessionInfo,
  | 'id'
  | 'name'
  | 'activity'
  | 'reason'
  | 'archivedReason'
  | 'forkedFrom'
  | 'previewUrl'
  | 'project'
  | 'userId'
  | 'userName'
  | 'agent'
  | 'usage'
  | 'createdAt'
>

export interface SessionFilter {
  search: string | undefined
  userId: string | undefined
}

export interface SessionsView {
  /** Newest first, as many as are read. */
  rows: readonly SessionRow[]
  isReading: boolean
  isComplete: boolean
  error: unknown
}

/**
 * The sessions that fit a search, newest first. They are read a page at a time, as the reader comes to them; after that an event of the log reads the
 * session that it is about and no other.
 */
export class SessionCollection {
  readonly #filter: SessionFilter
  readonly #rows = new Map<string, SessionRow>()
  readonly #changed = new Set<string>()
  readonly #listeners = new Set<() => void>()
  #pages: AsyncGenerator<SessionInfo> | undefined
  #closed = new AbortController()
  #burst: ReturnType<typeof setTimeout> | undefined
  #view: SessionsView = { rows: [], isReading: true, isComplete: false, error: undefined }

  constructor(filter: SessionFilter) {
    this.#filter = filter
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  readonly view = (): SessionsView => this.#view

  /** Reads the first sessions; the function that it returns ends all reading. */
  open(): () => void {
    this.#closed = new AbortController()
    this.reload()
    return () => {
      this.#closed.abort()
      clearTimeout(this.#burst)
      this.#burst = undefined
      this.#pages = undefined
    }
  }

  /** Reads as many anew as are known. */
  reload(): void {
    const { signal } = this.#closed
    this.#pages = Session.list({ client, search: this.#filter.search, userId: this.#filter.userId, signal })
    void this.#read(this.#pages, Math.max(pageSize, this.#rows.size), true)
  }

  /** Reads the next sessions, unless that is under way. */
  readMore(): void {
    const { isReading, isComplete, error } = this.#view
    if (this.#pages === undefined || isReading || isComplete || error !== undefined) return
    void this.#read(this.#pages, pageSize, false)
  }

  take({ type, subject }: EventInfo): void {
    if (!type.startsWith('session.')) return
    if (type === 'session.deleted') {
      this.#rows.delete(subject)
      return this.#tell({})
    }
    this.#changed.add(subject)
    this.#burst ??= setTimeout(() => {
      this.#burst = undefined
      void this.#refresh()
    }, burstMs)
  }

  async #read(pages: AsyncGenerator<SessionInfo>, count: number, isAnew: boolean): Promise<void> {
    this.#tell({ isReading: true, error: undefined })
    const known = isAnew ? new Set(this.#rows.keys()) : new Set()
    try {
      let isComplete = false
      for (let taken = 0; taken < count; taken += 1) {
        const { value, done } = await pages.next()
        if (pages !== this.#pages) return
        isComplete = done === true
        if (isComplete) break
        const session = value as SessionInfo
        known.delete(session.id)
        this.#put(session)
      }
      for (const id of known) this.#rows.delete(id as string)
      this.#tell({ isReading: false, isComplete })
    } catch (error) {
      if (pages === this.#pages) this.#tell({ isReading: false, error })
    }
  }

  async #refresh(): Promise<void> {
    const ids = [...this.#changed]
    this.#changed.clear()
    if (ids.length > refreshedMax) return this.reload()
    const { signal } = this.#closed
    for (const id of ids) {
      try {
        const session = await client.json<SessionInfo>('GET', `/v1/sessions/${id}`, { signal })
        if (this.#rows.has(id) || this.#isWanted(session)) this.#put(session)
      } catch (error) {
        if (signal.aborted) return
        if (error instanceof NotFoundError) this.#rows.delete(id)
        // What could not be read now is told again by its next event.
      }
    }
    this.#tell({})
  }

  /** Whether a session that is not in the list belongs there: it fits the filter and is not behind what is read. */
  #isWanted({ userId, project, messages, createdAt }: SessionInfo): boolean {
    const { search, userId: wanted } = this.#filter
    if (wanted !== undefined && userId !== wanted) return false
    const text = search?.toLowerCase() ?? ''
    if (
      text !== '' &&
      ![project.title, ...messages.map(({ content }) => content)].some((one) => one.toLowerCase().includes(text))
    )
      return false
    const oldest = this.#view.rows.at(-1)
    return this.#view.isComplete || oldest === undefined || createdAt >= oldest.createdAt
  }

  #put(session: SessionInfo): void {
    const { id, name, activity, reason, archivedReason, forkedFrom, previewUrl, project, userId, userName } = session
    if (isPeek(name)) return
    const { agent, usage, createdAt } = session
    this.#rows.set(id, {
      ...{ id, activity, previewUrl, userId, agent, usage, createdAt, project: { ...project, artifacts: [] } },
      ...(name === undefined ? {} : { name }),
      ...(reason === undefined ? {} : { reason }),
      ...(archivedReason === undefined ? {} : { archivedReason }),
      ...(forkedFrom === undefined ? {} : { forkedFrom }),
      ...(userName === undefined ? {} : { userName }),
    })
  }

  #tell(change: Partial<SessionsView>): void {
    const rows = [...this.#rows.values()].toSorted((one, other) => (one.createdAt < other.createdAt ? 1 : -1))
    this.#view = { ...this.#view, ...change, rows }
    for (const listener of this.#listeners) listener()
  }
}
