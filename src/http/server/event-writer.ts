import type { Writable } from 'node:stream'
import { FairYield } from '../../lib/async/fair-yield.ts'
import type { LogBatch } from '../../events/index.ts'
import { logEventView } from './log-event-view.ts'
import { eventText, type StreamEvent } from '../../session/index.ts'

/** What a reconnecting `EventSource` waits (docs/use/api.md § Conventions). */
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

const logEncodings = new WeakMap<LogBatch, Buffer>()

function encodedLog(batch: LogBatch): Buffer {
  const known = logEncodings.get(batch)
  if (known !== undefined) return known
  const texts = batch.events.map((event) => `id: ${event.number}\ndata: ${JSON.stringify(logEventView(event))}\n\n`)
  const bytes = Buffer.from(texts.join(''))
  logEncodings.set(batch, bytes)
  return bytes
}

/**
 * Sends the log of an organisation. An `id` without data moves the client on, so that it comes back behind what its filter has left out:
 * once at the beginning, then where it would be silent.
 */
export async function sendLog(
  stream: AsyncIterable<LogBatch>,
  response: Writable,
  sending: Sending,
): Promise<EventsEnd> {
  let position: number | undefined
  const moved = () => Buffer.from(`id: ${position}\n\n`)
  const encode = (batch: LogBatch) => {
    const isFirst = position === undefined
    position = batch.position
    return isFirst ? Buffer.concat([encodedLog(batch), moved()]) : encodedLog(batch)
  }
  return await sendBatches(
    stream,
    { encode, beat: () => (position === undefined ? comment : moved()) },
    response,
    sending,
  )
}

/** `gone`: the connection has closed or `signal` has aborted. `stalled`: the client took nothing for too long. */
export type EventsEnd = 'all_sent' | 'gone' | 'stalled'

/** `gone`: the client's connection has closed or must be. `stallMs`: how long the client may take nothing. */
interface Sending {
  gone: AbortSignal
  stallMs: number
}

/** Sends the stream of a session, as {@link sendBatches} does. */
export async function sendEvents(
  stream: AsyncIterable<readonly StreamEvent[]>,
  response: Writable,
  sending: Sending,
): Promise<EventsEnd> {
  return await sendBatches(stream, { encode: encoded, beat: () => comment }, response, sending)
}

interface Encoding<Batch> {
  encode: (batch: Batch) => Buffer
  /** What shows a silent client that the connection lives. */
  beat: () => Buffer
}

/** Sends the events of a stream; at most one part waits in the response for a client that is slow. Throws what the stream throws. */
async function sendBatches<Batch>(
  stream: AsyncIterable<Batch>,
  { encode, beat: beatOf }: Encoding<Batch>,
  response: Writable,
  sending: Sending,
): Promise<EventsEnd> {
  let isWithin = false
  const beat = setInterval(() => {
    if (!isWithin && !response.writableNeedDrain) response.write(beatOf())
  }, commentMs)
  try {
    response.write(head)
    for await (const batch of stream) {
      const bytes = encode(batch)
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
