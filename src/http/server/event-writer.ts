import type { Writable } from 'node:stream'
import type { LogBatch } from '../../events/index.ts'
import { FairYield } from '../../lib/async/fair-yield.ts'
import { heartbeatMs } from '../../protocol/heartbeat.ts'
import type { AssistantDraft } from '../../protocol/stream-events.ts'
import { eventText, type StreamBatch, type StreamEvent } from '../../session/index.ts'
import { logEventView } from './log-event-view.ts'

/** What a reconnecting `EventSource` waits (docs/use/api.md § Conventions). */
const retryMs = 3000
/** Events are sent in parts of this size, to tell a slow client from a stalled one. */
const partBytes = 64 * 1024

/** Parts of all clients between two yields: the kernel takes megabytes at once. */
const parts = new FairYield(16)

const head = Buffer.from(`retry: ${retryMs}\n\n`)
/** A comment of the format: clients drop it. */
export const heartbeat = Buffer.from(':\n\n')

export interface Encoding<Batch> {
  /** Sent at once. */
  opening?: Buffer
  encode(batch: Batch): Buffer
  heartbeat(): Buffer
}

/** Makes the bytes of a batch once: all clients at the same position get the same batch object. */
function cached<Batch extends object>(textsOf: (batch: Batch) => string[]): (batch: Batch) => Buffer {
  const known = new WeakMap<Batch, Buffer>()
  return (batch) => {
    const bytes = known.get(batch) ?? Buffer.from(textsOf(batch).join(''))
    known.set(batch, bytes)
    return bytes
  }
}

/** JSON has no raw line breaks, so one `data` line carries it. */
function framed(id: number, json: string): string {
  return `id: ${id}\ndata: ${json}\n\n`
}

const encodedEvents = cached((events: readonly StreamEvent[]) =>
  events.map((event) => framed(event.sequence, eventText(event))),
)

/** Encodes the stream of a session. A draft has no number: a client that connects again goes on after the event before it. */
export const sessionEncoding: Encoding<StreamBatch> = {
  encode(batch) {
    if (!('text' in batch)) return encodedEvents(batch)
    const draft: AssistantDraft = { type: 'assistant_draft', offset: batch.offset, text: batch.text }
    return Buffer.from(`data: ${JSON.stringify(draft)}\n\n`)
  },
  heartbeat: () => heartbeat,
}

/** As `sessionEncoding`, and tells the client where its stream begins before anything has happened. */
export function sessionEncodingFrom(position: number): Encoding<StreamBatch> {
  return { ...sessionEncoding, opening: Buffer.from(`id: ${position}\n\n`) }
}

const encodedLog = cached(({ events }: LogBatch) =>
  events.map((event) => framed(event.number, JSON.stringify(logEventView(event)))),
)

/**
 * Encodes the log of an organisation for one client. An `id` without data advances `Last-Event-ID` past the events that the client's filter
 * left out: once at the beginning, then as the heartbeat.
 */
export function logEncoding(): Encoding<LogBatch> {
  let position: number | undefined
  const moved = () => Buffer.from(`id: ${position}\n\n`)
  return {
    encode(batch) {
      const isFirst = position === undefined
      position = batch.position
      return isFirst ? Buffer.concat([encodedLog(batch), moved()]) : encodedLog(batch)
    },
    heartbeat: () => (position === undefined ? heartbeat : moved()),
  }
}

/** `gone`: the connection has closed or `signal` has aborted. `stalled`: the client took nothing for too long. */
type EventsEnd = 'all_sent' | 'gone' | 'stalled'

/** `gone`: the client's connection has closed or must be. `stallMs`: how long the client may take nothing. */
interface Sending {
  gone: AbortSignal
  stallMs: number
}

/** Sends the events of a stream; at most one part waits in the response for a client that is slow. Throws what the stream throws. */
export async function sendBatches<Batch>(
  stream: AsyncIterable<Batch>,
  encoding: Encoding<Batch>,
  response: Writable,
  sending: Sending,
): Promise<EventsEnd> {
  let isWithin = false
  const beat = setInterval(() => {
    if (!isWithin && !response.writableNeedDrain) response.write(encoding.heartbeat())
  }, heartbeatMs)
  try {
    response.write(encoding.opening === undefined ? head : Buffer.concat([head, encoding.opening]))
    for await (const batch of stream) {
      const bytes = encoding.encode(batch)
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
  // What has come while this process stood still is seen first.
  const timer = setTimeout(() => setImmediate(() => resolve('stalled')), stallMs)
  const end = await promise
  clearTimeout(timer)
  gone.removeEventListener('abort', onGone)
  response.off('drain', onDrain)
  return end
}
