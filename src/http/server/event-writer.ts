import type { Writable } from 'node:stream'
import { FairYield } from '../../lib/async/fair-yield.ts'
import { eventText, type StreamEvent } from '../../session/index.ts'

/** What a reconnecting `EventSource` waits (docs/api.md § Conventions). */
const retryMs = 3000
const commentMs = 15_000
/** Events are sent in parts of this size, to tell a slow client from a stalled one. */
const partBytes = 64 * 1024

/** Parts of all clients between two yields: the kernel takes megabytes at once. */
const parts = new FairYield(16)

const head = Buffer.from(`retry: ${retryMs}\n\n`)
const comment = Buffer.from(':\n\n')

/** Encoded once for all clients of a session: those at one place get the same array. */
const encodings = new WeakMap<readonly StreamEvent[], Buffer>()

function encoded(events: readonly StreamEvent[]): Buffer {
  const known = encodings.get(events)
  if (known !== undefined) return known
  // JSON has no raw line breaks, so one `data` line carries it.
  const texts = events.map((event) => `id: ${event.sequence}\ndata: ${eventText(event)}\n\n`)
  const bytes = Buffer.from(texts.join(''))
  encodings.set(events, bytes)
  return bytes
}

/** `gone`: the connection has closed or `signal` has aborted. `stalled`: the client took nothing for too long. */
export type EventsEnd = 'all_sent' | 'gone' | 'stalled'

/** `gone`: the client's connection has closed or must be. `stallMs`: how long the client may take nothing. */
interface Sending {
  gone: AbortSignal
  stallMs: number
}

/** Sends a stream's events; at most one part waits in the response for a client that is slow. Throws what the stream throws. */
export async function sendEvents(
  stream: AsyncIterable<readonly StreamEvent[]>,
  response: Writable,
  sending: Sending,
): Promise<EventsEnd> {
  let isWithin = false
  const beat = setInterval(() => {
    if (!isWithin && !response.writableNeedDrain) response.write(comment)
  }, commentMs)
  try {
    response.write(head)
    for await (const events of stream) {
      const bytes = encoded(events)
      for (let sent = 0; sent < bytes.length; sent += partBytes) {
        if (response.destroyed) return 'gone'
        isWithin = sent + partBytes < bytes.length
        const end = response.write(bytes.subarray(sent, sent + partBytes))
          ? undefined
          : await drained(response, sending)
        if (end !== undefined) return end
        if (isWithin) await parts.next()
      }
    }
    return sending.gone.aborted ? 'gone' : 'all_sent'
  } finally {
    clearInterval(beat)
  }
}

async function drained(response: Writable, { gone, stallMs }: Sending): Promise<EventsEnd | undefined> {
  if (gone.aborted) return 'gone'
  const { promise, resolve } = Promise.withResolvers<EventsEnd | undefined>()
  const onDrain = () => resolve(undefined)
  const onGone = () => resolve('gone')
  response.once('drain', onDrain)
  gone.addEventListener('abort', onGone)
  const timer = setTimeout(() => resolve('stalled'), stallMs)
  const end = await promise
  clearTimeout(timer)
  gone.removeEventListener('abort', onGone)
  response.off('drain', onDrain)
  return end
}
