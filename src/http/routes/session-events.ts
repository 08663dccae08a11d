import { sessions as wire } from '../../protocol/http/index.ts'
import { sendEvents } from '../server/event-writer.ts'
import { onceClosed } from '../server/once-closed.ts'
import { noContent, routesOf } from '../server/route.ts'
import { eventStreamCaps } from '../server/streams.ts'
import { defined } from '../../lib/defined.ts'

const route = routesOf('Sessions')

export const sessionEventRoutes = [
  route('GET', '/v1/sessions/:sessionId/events', {
    id: 'streamSessionEvents',
    summary: 'Follow the event stream of a session',
    description:
      'Server-sent events: `id` is the number of the event in its session, `data` one JSON object, a ' +
      '[`StreamEvent`](#/components/schemas/StreamEvent). All past ' +
      'events come first, or those after `Last-Event-ID`. 204 says that the session has ended and nothing is missing.',
    auth: 'key_or_query',
    token: 'stream',
    query: wire.eventsQuery,
    headers: wire.eventsHeaders,
    answers: {
      200: { description: 'The stream', content: 'text/event-stream' },
      204: { description: 'The session has ended and this was all' },
    },
    async handle(call) {
      const { orgId, params, query, request, reply, deps, limits, streams } = call
      const release = streams.open('events', eventStreamCaps(call, params.sessionId))
      // The header is of this connection; the URL's number stays the same over all reconnects of an `EventSource`.
      const after = Number(request.headers['last-event-id'] || query.after || 0)
      const response = reply.raw
      const gone = new AbortController()
      const close = () => gone.abort()
      onceClosed(response, close)
      // A kept connection may bring a request after the drain began.
      if (streams.draining.aborted) close()
      streams.draining.addEventListener('abort', close)
      const expiry = atExpiry(request.caller?.expiresAt, close)
      try {
        const stream = await deps.sessions.stream(orgId, params.sessionId, {
          ...defined({ userId: query.user_id }),
          after,
          signal: gone.signal,
        })
        if (stream.exhausted) return noContent
        reply.hijack()
        response.writeHead(200, {
          ...(reply.getHeaders() as Record<string, string>),
          'content-type': 'text/event-stream; charset=utf-8',
          'cache-control': 'no-store',
          'x-accel-buffering': 'no',
        })
        const end = await sendEvents(stream, response, { gone: gone.signal, stallMs: limits.streamStallMs })
        if (end === 'stalled') {
          deps.log.debug({ sessionId: params.sessionId }, 'a client that took no events was dropped')
          // A reset: after an orderly end the kernel would keep for minutes what the client does not take.
          response.socket?.resetAndDestroy()
        }
        return undefined
      } catch (error) {
        if (!response.headersSent) throw error
        if (!gone.signal.aborted) deps.log.error({ err: error, sessionId: params.sessionId }, 'an event stream broke')
        // Cut off rather than ended: the client must not take it for the end of the session.
        if (!streams.draining.aborted) response.destroy()
        return undefined
      } finally {
        release()
        clearTimeout(expiry)
        streams.draining.removeEventListener('abort', close)
        // A client that does not take what it has would not take the end either.
        if (gone.signal.aborted && response.writableNeedDrain) response.destroy()
        else if (response.headersSent && !response.writableEnded) response.end()
      }
    },
  }),
]

/** A stream ends with the token that opened it; the next connection needs another one. */
function atExpiry(expiresAt: Date | undefined, end: () => void): NodeJS.Timeout | undefined {
  return expiresAt && setTimeout(end, Math.max(0, expiresAt.getTime() - Date.now())).unref()
}
