import { ServiceError } from '../errors.ts'
import { batches } from '../lib/batches.ts'
import type { FairYield } from '../lib/async/fair-yield.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { Message, SessionEvent, StreamEvent } from './session.ts'
import { rowPageBytes, type Branch, type History, type RowPage, type SessionStore } from './store.ts'

/** Rows read at once, unless `rowPageBytes` ends the page before. */
const pageRows = 1000

type HistoryStore = Pick<SessionStore, 'messages' | 'events' | 'histories' | 'historyBytes'>

/**
 * All messages of a session's branch in force, or of all, oldest first, in pages. Holds one page, and yields to other readers before it reads
 * the next.
 */
export function messagePages(
  store: HistoryStore,
  pages: FairYield,
  sessionId: string,
  branch: Branch = 'in force',
): AsyncGenerator<Message[]> {
  return rowPages(
    (page) => store.messages(sessionId, { ...page, branch }),
    ({ content }) => content,
    pages,
  )
}

/** See `messagePages`. */
export function eventPages(store: HistoryStore, pages: FairYield, sessionId: string): AsyncGenerator<SessionEvent[]> {
  return rowPages(
    (page) => store.events(sessionId, page),
    ({ message }) => message,
    pages,
  )
}

/** All messages of a branch and all events of a session, which can be megabytes. Reads them in pages, so that other reads go on. */
export async function readHistory(
  store: HistoryStore,
  pages: FairYield,
  sessionId: string,
  branch?: Branch,
): Promise<History> {
  const messages = await Array.fromAsync(messagePages(store, pages, sessionId, branch))
  const events = await Array.fromAsync(eventPages(store, pages, sessionId))
  return { messages: messages.flat(), events: events.flat() }
}

/** The histories of sessions in their order. Reads many short ones at once, a long one in pages. */
export async function readHistories(
  store: HistoryStore,
  pages: FairYield,
  sessionIds: readonly string[],
): Promise<History[]> {
  const bytes = await store.historyBytes(sessionIds)
  const histories: History[] = []
  for (const group of batches(sessionIds, (id) => bytes.get(id) ?? 0, { sizeMax: rowPageBytes })) {
    // One alone may be longer than that.
    const short = group.length > 1 ? await store.histories(group) : undefined
    for (const id of group) histories.push(short?.get(id) ?? (await readHistory(store, pages, id)))
    await pages.next()
  }
  return histories
}

async function* rowPages<Row extends { id: string }>(
  read: (page: RowPage) => Promise<Row[]>,
  textOf: (row: Row) => string,
  pages: FairYield,
): AsyncGenerator<Row[]> {
  let page = await read({ limit: pageRows })
  for (let last = page.at(-1); last !== undefined; last = page.at(-1)) {
    yield page
    const bytes = page.reduce((sum, row) => sum + Buffer.byteLength(textOf(row)), 0)
    if (page.length < pageRows && bytes < rowPageBytes) return
    await pages.next()
    page = await read({ after: last.id, limit: pageRows })
  }
}

/** One line of an export, after the session itself. */
export type ExportRecord =
  | { type: 'message'; message: Message }
  | { type: 'event'; event: SessionEvent }
  | { type: 'stream'; event: StreamEvent }

/** Stream events per page; one can be as long as a line of the agent. */
const pageStreamEvents = 16

/**
 * Messages of all branches, then session events, then the stream up to the newest event at the start of the export. Holds one page.
 */
export async function* exportRecords(
  store: SessionStore,
  pages: FairYield,
  sessionId: string,
): AsyncGenerator<ExportRecord> {
  const last = await store.lastSequence(sessionId)
  for await (const page of messagePages(store, pages, sessionId, 'all')) {
    for (const message of page) yield { type: 'message', message }
  }
  for await (const page of eventPages(store, pages, sessionId)) for (const event of page) yield { type: 'event', event }
  for (let sequence = 0; sequence < last;) {
    const events = await store.stream(sessionId, sequence, Math.min(pageStreamEvents, last - sequence))
    for (const event of events) yield { type: 'stream', event }
    sequence = events.at(-1)?.sequence ?? last
    await pages.next()
  }
}

/** Searches of one organisation that wait for the one that runs. */
const waitingMax = 8
/** About what the longest search takes. */
const searchSeconds = 1

/** Runs one search of an organisation at a time: each reads megabytes. */
export class Searches {
  readonly #semaphore = new Semaphore({ permitsPerKey: 1 })

  /** Throws `rate_limited` when too many wait already. */
  async run<Result>(orgId: string, search: () => Promise<Result>): Promise<Result> {
    if (this.#semaphore.users(orgId) > waitingMax) {
      const details = { limit: waitingMax, retryAfterSeconds: searchSeconds * waitingMax }
      throw new ServiceError('rate_limited', `${waitingMax} searches of the organisation wait already`, { details })
    }
    return await this.#semaphore.use(search, { key: orgId })
  }
}
