import { ServiceError } from '../../errors.ts'
import type { LogBatch, LogEventType, LogFilter } from '../../events/index.ts'
import { events as wire } from '../../protocol/http/index.ts'
import { logEventTypes } from '../../protocol/log-events.ts'
import { streamEvents } from '../server/event-stream.ts'
import { logEncoding } from '../server/event-writer.ts'
import { logEventView } from '../server/log-event-view.ts'
import { type Answer, type Call, routesOf } from '../server/route.ts'
import { logStreamCaps } from '../server/streams.ts'

const route = routesOf('Events', 'events')

const limitDefault = 100

interface Asked {
  after: number | 'newest'
  filter: LogFilter
}

export const eventRoutes = [
  route('GET', '/api/events', {
    id: 'listEvents',
    ofAll: true,
    summary: 'What has happened to sandboxes, checkpoints, images, volumes, sessions and keys',
    description:
      'Server-sent events: `id` is the number of the event, `data` one JSON object, an [`Event`](#/components/schemas/Event). ' +
      'The numbers of an organisation have no gaps. All events that are kept come first, or those after `Last-Event-ID` or ' +
      '`after`; the stream goes on until the client leaves. With `follow=false` the answer is one page as JSON. A number beyond the newest ' +
      'is 400, one whose next event is deleted by now 410.',
    auth: 'key_or_query',
    query: wire.eventsQuery,
    headers: wire.eventsHeaders,
    answers: {
      200: {
        description: 'The stream, or a page',
        body: wire.eventPage,
        content: 'text/event-stream',
        example: 'retry: 3000\n\nid: 1\ndata: {"number":1,"type":"sandbox.created",…}\n\n',
      },
    },
    errors: ['events_expired', 'not_found'],
    async handle(call) {
      const { orgId, query, request, deps } = call
      const asked = { after: positionOf(call), filter: filterOf(query) }
      if (query.follow === 'true') return await follow(call, asked)
      const limit = query.limit ?? limitDefault
      const page = await deps.events.page(orgId, { ...asked, limit }).catch(named(request.headers))
      return { statusCode: 200, body: { ...page, events: page.events.map(logEventView) } }
    },
  }),
]

async function follow(call: Omit<Call, 'params' | 'query' | 'body'>, asked: Asked): Promise<Answer | undefined> {
  const { orgId, request, deps } = call
  return await streamEvents(call, { caps: logStreamCaps(call), about: { orgId } }, async (gone, send) => {
    const stream = deps.events.follow(orgId, { ...asked, signal: gone })
    try {
      const first = await stream.next().catch(named(request.headers))
      return await send(startingWith(first, stream), logEncoding())
    } finally {
      await stream.return(undefined)
    }
  })
}

async function* startingWith(
  first: IteratorResult<LogBatch, unknown>,
  rest: AsyncIterable<LogBatch>,
): AsyncGenerator<LogBatch> {
  if (first.done === true) return
  yield first.value
  yield* rest
}

/** `Last-Event-ID` wins over the URL: an `EventSource` keeps the URL of its first connection when it reconnects. */
function positionOf({
  query,
  request,
}: {
  query: { after?: string | undefined }
  request: Call['request']
}): Asked['after'] {
  const given = request.headers['last-event-id'] || query.after || '0'
  return given === 'newest' ? given : Number(given)
}

/** Names the header in an error about its number. */
function named(headers: Call['request']['headers']): (error: unknown) => never {
  return (error) => {
    if (!(error instanceof ServiceError) || error.details['field'] !== 'after' || !headers['last-event-id']) throw error
    const message = error.message.replace(/^after/, 'Last-Event-ID')
    throw new ServiceError(error.code, message, { cause: error, details: { ...error.details, field: 'Last-Event-ID' } })
  }
}

interface GivenFilter {
  type?: string | undefined
  sandbox?: string | undefined
  session?: string | undefined
  tag?: string | undefined
}

function filterOf({ type, sandbox, session, tag }: GivenFilter): LogFilter {
  return {
    ...(type === undefined ? {} : { types: [...new Set(type.split(',').flatMap(typesOf))] }),
    ...(sandbox === undefined ? {} : { sandboxId: withoutNul(sandbox, 'sandbox') }),
    ...(session === undefined ? {} : { sessionId: withoutNul(session, 'session') }),
    ...(tag === undefined ? {} : { tag: tagOf(withoutNul(tag, 'tag')) }),
  }
}

/** Throws `invalid_request` for a pattern that matches nothing. */
function typesOf(pattern: string): LogEventType[] {
  const wanted = pattern.trim()
  const matches = wanted.endsWith('.*')
    ? logEventTypes.filter((type) => type.startsWith(wanted.slice(0, -1)))
    : logEventTypes.filter((type) => type === wanted)
  if (matches.length > 0) return matches
  throw new ServiceError(
    'invalid_request',
    `type ${JSON.stringify(wanted.slice(0, 80))} is not known: see docs/use/events.md`,
    {
      details: { field: 'type' },
    },
  )
}

function tagOf(text: string): { key: string; value?: string } {
  const at = text.indexOf('=')
  if (at === 0) {
    throw new ServiceError('invalid_request', 'tag must be key=value, or key', { details: { field: 'tag' } })
  }
  return at === -1 ? { key: text } : { key: text.slice(0, at), value: text.slice(at + 1) }
}

/** PostgreSQL has no text with NUL. */
function withoutNul(text: string, field: string): string {
  if (!text.includes('\0')) return text
  throw new ServiceError('invalid_request', `${field} must not contain NUL characters`, { details: { field } })
}
