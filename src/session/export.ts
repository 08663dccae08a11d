import type { FairYield } from '../lib/async/fair-yield.ts'
import { eventPages, messagePages } from './history.ts'
import type { Message, SessionEvent, StreamEvent } from './session.ts'
import type { SessionStore } from './store.ts'

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
