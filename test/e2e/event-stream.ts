import type { AtollServer } from './server.ts'

export interface StreamedEvent {
  id: number
  data: Record<string, unknown> & { type: string }
}

/** Reads a session's events until `ends` says so, or the server closes the stream. */
export async function readEvents(
  server: AtollServer,
  sessionId: string,
  ends: (event: StreamedEvent, all: StreamedEvent[]) => boolean,
  lastEventId?: number,
): Promise<StreamedEvent[]> {
  const abort = new AbortController()
  const events: StreamedEvent[] = []
  for await (const event of streamEvents(server, sessionId, { lastEventId, signal: abort.signal })) {
    events.push(event)
    if (ends(event, events)) break
  }
  abort.abort()
  return events
}

/** Yields events as they come, until the server closes the stream. Throws when it breaks, and when `signal` aborts. */
export async function* streamEvents(
  server: AtollServer,
  sessionId: string,
  { lastEventId, signal }: { lastEventId?: number | undefined; signal: AbortSignal },
): AsyncGenerator<StreamedEvent> {
  const headers: Record<string, string> = lastEventId === undefined ? {} : { 'Last-Event-ID': String(lastEventId) }
  const url = `${server.url}/v1/sessions/${sessionId}/events?api_key=${server.key}`
  const response = await fetch(url, { headers, signal })
  if (response.status === 204) return
  if (response.status !== 200) throw new Error(`the stream answered ${response.status}`)
  for await (const message of messages(response)) {
    const event = parseMessage(message)
    if (event) yield event
  }
}

/** Messages of a server-sent event stream end with an empty line (HTML standard § 9.2.5). */
async function* messages(response: Response): AsyncGenerator<string> {
  let buffered = ''
  const decoder = new TextDecoder()
  for await (const chunk of response.body ?? []) {
    buffered += decoder.decode(chunk, { stream: true })
    const parts = buffered.split('\n\n')
    buffered = parts.pop() ?? ''
    yield* parts
  }
}

function parseMessage(message: string): StreamedEvent | undefined {
  const id = /^id: ?(\d+)$/m.exec(message)?.[1]
  const data = /^data: ?(.*)$/m.exec(message)?.[1]
  if (id === undefined || data === undefined) return undefined
  return { id: Number(id), data: JSON.parse(data) as StreamedEvent['data'] }
}

export function isTurnComplete(event: StreamedEvent): boolean {
  return event.data.type === 'turn_complete'
}
