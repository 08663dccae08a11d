import type { Atoll, RequestOptions } from './atoll.ts'
import { streamOf } from './events.ts'
import type { AtollError } from './errors.ts'
import type { EventInfo } from './types.ts'

export interface LogOptions extends RequestOptions {
  /** Begin after this number; `newest`: with what comes from now on. Default: with the oldest event that is kept. */
  after?: number | 'newest' | undefined
  /** Go on with what comes, for ever. Default true; without it the events end with the newest. */
  follow?: boolean | undefined
  /** Only these; `sandbox.*` is all that begin with `sandbox.`. */
  type?: string | readonly string[] | undefined
  /** Only those about this sandbox. */
  sandbox?: string | undefined
  /** Only those about this session. */
  session?: string | undefined
  /** Only those whose sandbox had this tag then: `key=value`, or `key` for any value. */
  tag?: string | undefined
  /** Called each time the connection has broken and is made again. */
  onBreak?: ((error: AtollError) => void) | undefined
  /** Called when the server has taken a connection, the first one and those after a break. */
  onOpen?: (() => void) | undefined
}

interface EventPage {
  events: EventInfo[]
  next: number
  newest: number
}

const pageLimit = 1000

/** See {@link Atoll.events}. */
export async function* logOf(client: Atoll, given: LogOptions): AsyncGenerator<EventInfo> {
  const { after, follow = true, type, sandbox, session, tag, onBreak, onOpen, ...options } = given
  const query = { type: typeof type === 'string' ? type : type?.join(','), sandbox, session, tag }
  if (follow) {
    // The number is that of the first connection; the stream itself says where the next one goes on.
    const begin = { ...query, after: after === 0 ? undefined : after }
    for await (const { data } of streamOf<EventInfo>(client, '/api/events', {
      ...options,
      onBreak,
      onOpen,
      query: begin,
    })) {
      yield data
    }
    return
  }
  for (let position: number | 'newest' | undefined = after; ;) {
    const call = { query: { ...query, after: position, follow: false, limit: pageLimit }, ...options }
    const page: EventPage = await client.json('GET', '/api/events', call)
    yield* page.events
    if (page.next >= page.newest) return
    position = page.next
  }
}
