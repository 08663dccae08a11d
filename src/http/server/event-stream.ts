import type { FastifyReply } from 'fastify'
import { isServiceError } from '../../errors.ts'
import { sendBatches, type Encoding } from './event-writer.ts'
import { onceClosed } from './once-closed.ts'
import type { Answer, Call } from './route.ts'
import type { StreamCap } from './streams.ts'

type Streamed = Pick<Call, 'request' | 'reply' | 'streams' | 'deps' | 'limits'>

interface StreamOptions {
  caps: readonly StreamCap[]
  /** Fields of its log lines. */
  about: object
}

/** Sends all batches, then resolves. A stream that breaks after its head is cut off. */
type Send = <Batch>(batches: AsyncIterable<Batch>, encoding: Encoding<Batch>) => Promise<undefined>

/**
 * Answers with server-sent events until they end, their client leaves or stalls, its token expires, or the server drains; then `gone` aborts.
 * What `open` throws or returns before it calls `send` is an ordinary answer.
 */
export async function streamEvents(
  { request, reply, streams, deps, limits }: Streamed,
  { caps, about }: StreamOptions,
  open: (gone: AbortSignal, send: Send) => Promise<Answer | undefined>,
): Promise<Answer | undefined> {
  const release = streams.open('events', caps)
  const response = reply.raw
  const gone = new AbortController()
  const close = () => gone.abort()
  onceClosed(response, close)
  // A kept connection may bring a request after the drain began.
  if (streams.draining.aborted) close()
  streams.draining.addEventListener('abort', close)
  const expiry = atExpiry(request.caller?.expiresAt, close)
  try {
    return await open(gone.signal, async (batches, encoding) => {
      beginEventStream(reply)
      const end = await sendBatches(batches, encoding, response, { gone: gone.signal, stallMs: limits.streamStallMs })
      if (end === 'stalled') {
        deps.log.debug(about, 'a client that took no events was dropped')
        // A reset: after an orderly end the kernel would keep for minutes what the client does not take.
        response.socket?.resetAndDestroy()
      }
      return undefined
    })
  } catch (error) {
    if (!response.headersSent) throw error
    if (!gone.signal.aborted)
      deps.log[isServiceError(error) ? 'warn' : 'error']({ err: error, ...about }, 'an event stream broke')
    // A clean end would look like the end of the stream. After a cut the client reconnects and gets the error.
    if (!streams.draining.aborted) response.destroy()
    return undefined
  } finally {
    release()
    clearTimeout(expiry)
    streams.draining.removeEventListener('abort', close)
    // A client that does not read would not read the end of the stream either.
    if (gone.signal.aborted && response.writableNeedDrain) response.destroy()
    else if (response.headersSent && !response.writableEnded) response.end()
  }
}

/** Takes the answer over from Fastify and sends its head. */
export function beginEventStream(reply: FastifyReply): void {
  reply.hijack()
  reply.raw.writeHead(200, {
    ...(reply.getHeaders() as Record<string, string>),
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
  })
}

/** A stream ends with the token that opened it; the next connection needs another one. */
function atExpiry(expiresAt: Date | undefined, end: () => void): NodeJS.Timeout | undefined {
  return expiresAt && setTimeout(end, Math.max(0, expiresAt.getTime() - Date.now())).unref()
}
