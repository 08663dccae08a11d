import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** The default answer. */
export const answerEvents = [
  {
    type: 'message_start',
    message: {
      id: 'm',
      type: 'message',
      role: 'assistant',
      content: [],
      usage: { input_tokens: 12, output_tokens: 1 },
    },
  },
  { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
  { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hi there' } },
  { type: 'content_block_stop', index: 0 },
  { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 5 } },
  { type: 'message_stop' },
]

/** The default answer, with this usage in its first event. */
export function answerWith(usage: object) {
  const [start, ...rest] = answerEvents
  return [{ ...start, type: 'message_start', message: { ...start?.message, usage } }, ...rest]
}

/** Sends events of the API's stream. */
export function sendEvents(response: ServerResponse, events: readonly { type: string }[]): void {
  for (const event of events) response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
}

/** An API that answers with `events`, unless `intercept` has handled the request. */
export async function fakeAnthropic(
  intercept: (body: string, response: ServerResponse) => boolean,
  events: readonly { type: string }[] = answerEvents,
): Promise<AsyncDisposable & { url: string }> {
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const body = Buffer.concat(await request.toArray()).toString()
    if (intercept(body, response)) return
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    sendEvents(response, events)
    response.end()
  }
  const server = createServer((request, response) => void answer(request, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
