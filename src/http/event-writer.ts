import type { ServerResponse } from 'node:http'
import type { StreamEvent } from '../session/index.ts'

/** What a reconnecting `EventSource` waits (contract.md § The stream). */
const retryMs = 3000
const commentMs = 15_000
/** A client that takes nothing for this long is dropped; it comes back with `Last-Event-ID`. */
const stalledMs = 30_000

const head = Buffer.from(`retry: ${retryMs}\n\n`)
const comment = Buffer.from(':\n\n')

/** The bytes of events that streams hold at the moment: all clients of a session get the same objects. */
const encodings = new WeakMap<StreamEvent, Buffer>()

function encoded(event: StreamEvent): Buffer {
  const known = encodings.get(event)
  if (known !== undefined) return known
  // JSON has no raw line breaks, so one `data` line carries it.
  const bytes = Buffer.from(`id: ${event.sequence}\ndata: ${JSON.stringify(event.data)}\n\n`)
  encodings.set(event, bytes)
  return bytes
}

/** `gone`: the connection has closed or `signal` has aborted. `stalled`: the client took nothing for too long. */
export type EventsEnd = 'all_sent' | 'gone' | 'stalled'

/** Sends a stream's events; at most one waits in the response for a client that is slow. Throws what the stream throws. */
export async function sendEvents(
  events: AsyncIterable<StreamEvent>,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<EventsEnd> {
  const beat = setInterval(() => {
    if (!response.writableNeedDrain) response.write(comment)
  }, commentMs)
  try {
    response.write(head)
    for await (const event of events) {
      if (response.destroyed) return 'gone'
      if (response.write(encoded(event))) continue
      const end = await drained(response, signal)
      if (end !== undefined) return end
    }
    return signal.aborted ? 'gone' : 'all_sent'
  } finally {
    clearInterval(beat)
  }
}

async function drained(response: ServerResponse, signal: AbortSignal): Promise<EventsEnd | undefined> {
  if (signal.aborted) return 'gone'
  const { promise, resolve } = Promise.withResolvers<EventsEnd | undefined>()
  const onDrain = () => resolve(undefined)
  const onGone = () => resolve('gone')
  response.once('drain', onDrain)
  signal.addEventListener('abort', onGone)
  const timer = setTimeout(() => resolve('stalled'), stalledMs)
  const end = await promise
  clearTimeout(timer)
  signal.removeEventListener('abort', onGone)
  response.off('drain', onDrain)
  return end
}
