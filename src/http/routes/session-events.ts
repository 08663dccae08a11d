import { sessions as wire } from '../../protocol/http/index.ts'
import { streamEvents } from '../server/event-stream.ts'
import { sessionEncoding, sessionEncodingFrom } from '../server/event-writer.ts'
import { noContent, routesOf } from '../server/route.ts'
import { eventStreamCaps } from '../server/streams.ts'
import { defined } from '../../lib/defined.ts'

const route = routesOf('Sessions', 'session')
const streamExample = 'retry: 3000\n\nid: 1\ndata: {"type":"ready","harness":"pi","version":"1"}\n\n'

export const sessionEventRoutes = [
  route('GET', '/v1/sessions/:sessionId/events', {
    id: 'streamSessionEvents',
    summary: 'Follow the event stream of a session',
    description:
      'Server-sent events: `id` is the number of the event in its session, `data` one JSON object, a ' +
      '[`StreamEvent`](#/components/schemas/StreamEvent). All past ' +
      'events come first, or those after `Last-Event-ID` or `after`. With `drafts` an [`AssistantDraft`](#/components/schemas/AssistantDraft) comes ' +
      'for what the model has written since, up to twenty times a second, without `id`. 204 says that the session has ended and nothing is missing.',
    auth: 'key_or_query',
    token: 'stream',
    query: wire.eventsQuery,
    headers: wire.eventsHeaders,
    answers: {
      200: { description: 'The stream', content: 'text/event-stream', example: streamExample },
      204: { description: 'The session has ended and this was all' },
    },
    async handle(call) {
      const { orgId, params, query, request, deps } = call
      const { sessionId } = params
      // `Last-Event-ID` wins over the URL: an `EventSource` keeps the URL of its first connection when it reconnects.
      const given = request.headers['last-event-id'] || query.after || 0
      const isNewest = given === 'newest'
      const after = isNewest ? Number.MAX_SAFE_INTEGER : Number(given)
      const options = { caps: eventStreamCaps(call, sessionId), about: { sessionId } }
      return await streamEvents(call, options, async (signal, send) => {
        const user = defined({ userId: query.user_id })
        const drafts = query.drafts === 'true'
        const stream = await deps.sessions.stream(orgId, sessionId, { ...user, after, signal, drafts })
        if (stream.exhausted) return noContent
        return await send(stream, isNewest ? sessionEncodingFrom(stream.after) : sessionEncoding)
      })
    },
  }),
]
