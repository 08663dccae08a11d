import { METHODS } from 'node:http'
import { ServiceError } from '../../errors.ts'
import { wantsUpgrade } from '../server/exec-socket.ts'
import { portOf, portPathOf } from '../server/port-path.ts'
import { openTunnel } from '../server/port-tunnel.ts'
import { routesOf, wakingErrors } from '../server/route.ts'

const route = routesOf('Processes and ports', 'sandbox:exec')

const errors = [...wakingErrors, 'nothing_listening', 'forbidden'] as const
/** A tunnel, and a request whose answer is the client's own: no client may send those (https://fetch.spec.whatwg.org/#forbidden-method). */
const neverProxied = new Set(['CONNECT', 'TRACE'])

export const portRoutes = [
  route('GET', '/api/sandboxes/:id/ports/:port/proxy/:path', {
    id: 'fetchPort',
    // What a tenant serves there must act for nobody who follows a link to it.
    takesCookie: false,
    audited: true,
    summary: 'Ask a server in the sandbox (any method)',
    description:
      'What follows `proxy` is sent as it is, with its slashes and its query, by any method, with a body or none. The sandbox gets neither key nor cookies, and ' +
      '`Host: localhost:PORT`. Of its answer headers for a whole origin (`Set-Cookie`, `Access-Control-*` …) are left out, `Content-Security-Policy: sandbox` is set, and ' +
      'redirections stay as they are. `X-Error-Code` is in errors of Atoll alone.',
    otherMethods: METHODS.filter((method) => method !== 'GET' && !neverProxied.has(method)),
    body: 'raw',
    bodyExample: 'hello\n',
    answers: { 200: { description: 'Whatever the server answers', content: '*/*', example: 'hello\n' } },
    errors,
    async handle({ orgId, params, request, reply, deps }) {
      const path = portPathOf(request.raw)
      if (path === undefined) throw new ServiceError('not_found', 'this address does not exist')
      const { target, release } = await deps.sandboxes.previews.use(orgId, params.id, portOf(params.port))
      try {
        if (!reply.raw.destroyed)
          await deps.preview.forward({ request: request.raw, response: reply.raw, target, path })
      } finally {
        release()
      }
      reply.hijack()
      return undefined
    },
  }),
  route('GET', '/api/sandboxes/:id/ports/:port/tunnel', {
    id: 'tunnelPort',
    audited: true,
    summary: 'Connect to a port of the sandbox (WebSocket)',
    description:
      'Binary messages are the bytes of one TCP connection to the port on the loopback of the sandbox. The text message `{"type":"end"}` ends one direction, from either side. ' +
      'Close codes: 1000 both have ended, 1011 the connection broke, 1012 the memory of the sandbox is saved: connect again.',
    auth: 'key_or_query',
    answers: { 101: { description: 'Connected' } },
    errors,
    handle: wantsUpgrade,
    upgrade: async (call) => openTunnel(call, portOf(call.params.port)),
  }),
]
