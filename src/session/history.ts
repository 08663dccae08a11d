import type { FairYield } from '../lib/async/fair-yield.ts'
import type { Message, SessionEvent, StreamEvent } from './session.ts'
import { rowPageBytes, type RowPage, type SessionStore } from './store.ts'

/** Rows read at once, unless `rowPageBytes` ends the page before. */
const pageRows = 1000

type HistoryStore = Pick<SessionStore, 'messages' | 'events'>

/** All messages of a session, oldest first, in pages: it holds one, and lets others go first before it reads the next. */
export function messagePages(store: HistoryStore, pages: FairYield, sessionId: string): AsyncGenerator<Message[]> {
  return rowPages(
    (page) => store.messages(sessionId, page),
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

/** All that a session has said and done: megabytes, of which no read holds up the others. */
export async function readHistory(
  store: HistoryStore,
  pages: FairYield,
  sessionId: string,
): Promise<{ messages: Message[]; events: SessionEvent[] }> {
  const messages: Message[] = []
  const events: SessionEvent[] = []
  for await (const page of messagePages(store, pages, sessionId)) messages.push(...page)
  for await (const page of eventPages(store, pages, sessionId)) events.push(...page)
  return { messages, events }
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

/** Of stream events, of which one can be as long as a line of the agent. */
const pageStreamEvents = 16

/**
 * Messages, then session events, then the stream as it stood when the export began: what a session says meanwhile is for the
 * next one. Holds one page.
 */
export async function* exportRecords(
  store: SessionStore,
  pages: FairYield,
  sessionId: string,
): AsyncGenerator<ExportRecord> {
  const last = await store.lastSequence(sessionId)
  for await (const page of messagePages(store, pages, sessionId)) {
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
