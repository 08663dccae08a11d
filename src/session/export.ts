import type { Pace } from './pace.ts'
import type { Message, SessionEvent, StreamEvent } from './session.ts'
import type { SessionStore } from './store.ts'

/** One line of an export, after the session itself. */
export type ExportRecord =
  | { type: 'message'; message: Message }
  | { type: 'event'; event: SessionEvent }
  | { type: 'stream'; event: StreamEvent }

/** Of messages and session events read at once. */
const pageRows = 100
/** Of stream events, of which one can be as long as a line of the agent. */
const pageStreamEvents = 16

/**
 * Messages, then session events, then the stream as it stood when the export began: what a session says meanwhile is for the
 * next one. Holds one page.
 */
export async function* exportRecords(store: SessionStore, pace: Pace, sessionId: string): AsyncGenerator<ExportRecord> {
  const last = await store.lastSequence(sessionId)
  for await (const message of rows((page) => store.messages(sessionId, page), pace)) yield { type: 'message', message }
  for await (const event of rows((page) => store.events(sessionId, page), pace)) yield { type: 'event', event }
  for (let sequence = 0; sequence < last;) {
    const events = await store.stream(sessionId, sequence, Math.min(pageStreamEvents, last - sequence))
    for (const event of events) yield { type: 'stream', event }
    sequence = events.at(-1)?.sequence ?? last
    await pace.next()
  }
}

async function* rows<Row extends { id: string }>(
  read: (page: { after?: string; limit: number }) => Promise<Row[]>,
  pace: Pace,
): AsyncGenerator<Row> {
  let page = await read({ limit: pageRows })
  while (page.length > 0) {
    yield* page
    const last = page.at(-1)
    if (page.length < pageRows || last === undefined) return
    await pace.next()
    page = await read({ after: last.id, limit: pageRows })
  }
}
