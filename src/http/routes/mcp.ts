import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import { defined } from '../../lib/defined.ts'
import { apiOrigin } from '../server/config.ts'
import { onceClosed } from '../server/once-closed.ts'
import { routesOf, type Answer, type Call } from '../server/route.ts'

const route = routesOf('MCP', 'any')

const query = z.object({
  tools: z.string().optional().describe('Names of tools, beginnings with a star, `default` or `all`'),
})

/** Its tools send the key to the API, and a page of the dashboard needs none of them. */
const takesCookie = false

const notAllowed = {
  405: {
    description: 'Always',
    body: z
      .looseObject({ jsonrpc: z.literal('2.0').describe('Version of JSON-RPC') })
      .meta({ examples: [{ jsonrpc: '2.0', error: { code: -32_000, message: 'Method not allowed.' }, id: null }] }),
  },
}

export const mcpRoutes = [
  route('POST', '/mcp', {
    id: 'callMcp',
    takesCookie,
    // Its tools call the API, which writes each call.
    audited: false,
    summary: 'Call tools by the Model Context Protocol',
    description: 'Streamable HTTP without sessions. Its tools act with the key of the request.',
    query,
    body: z.unknown().meta({ examples: [{ jsonrpc: '2.0', id: 1, method: 'tools/list' }] }),
    bodyLimit: 'sessionBodyBytesMax',
    answers: {
      200: {
        description: 'A message, or a stream of them; 202 to a notification',
        content: 'text/event-stream',
        example: 'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":{"tools":[…]}}\n\n',
      },
    },
    handle: (call) => serve(call, call.query.tools),
  }),
  route('GET', '/mcp', {
    id: 'openMcpStream',
    takesCookie,
    summary: 'Model Context Protocol: there is no stream to take up',
    answers: notAllowed,
    handle: (call) => serve(call),
  }),
  route('DELETE', '/mcp', {
    id: 'endMcpSession',
    takesCookie,
    audited: false,
    summary: 'Model Context Protocol: there is no session to end',
    answers: notAllowed,
    handle: (call) => serve(call),
  }),
]

/** Passes the request on as a web `Request` and streams the answer. Aborts the work when the client leaves. */
async function serve(
  { request, reply, body, deps }: Pick<Call, 'request' | 'reply' | 'body' | 'deps'>,
  tools?: string,
): Promise<Answer | undefined> {
  const gone = new AbortController()
  onceClosed(reply.raw, () => gone.abort())
  const headers = new Headers({ 'content-type': 'application/json' })
  for (const name of ['accept', 'mcp-protocol-version', 'mcp-session-id', 'mcp-method', 'mcp-name'] as const) {
    const value = request.headers[name]
    if (typeof value === 'string') headers.set(name, value)
  }
  const { method } = request
  const asked = new Request('http://atoll.internal/mcp', { method, headers, signal: gone.signal })
  const answer = await deps.mcp(asked, {
    apiKey: request.caller?.credential ?? '',
    body,
    origin: apiOrigin(deps.config, request),
    ...defined({ tools }),
  })
  reply.hijack()
  const ours = reply.getHeaders() as Record<string, string>
  reply.raw.writeHead(answer.status, { ...ours, ...Object.fromEntries(answer.headers) })
  try {
    if (answer.body === null) reply.raw.end()
    else await pipeline(Readable.fromWeb(answer.body), reply.raw)
  } catch (error) {
    if (!gone.signal.aborted) deps.log.error({ err: error }, 'an answer of MCP broke')
  }
  return undefined
}
