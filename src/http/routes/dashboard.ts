import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { pagePolicy } from '../../lib/html.ts'
import { sha256 } from '../../lib/secret.ts'
import { dashboard as wire, whoami } from '../../protocol/http/index.ts'
import { auditSession } from '../server/audit.ts'
import { callerOf } from '../server/auth.ts'
import { apiOrigin } from '../server/config.ts'
import { wantsPage } from '../server/kept-files.ts'
import { landingPage } from '../server/landing-page.ts'
import { routesOf } from '../server/route.ts'
import { whoamiBody } from './whoami.ts'

const route = routesOf('Dashboard', 'any')
const pageHeaders = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': pagePolicy,
  'x-content-type-options': 'nosniff',
  vary: 'accept',
}
const addresses = z
  .object({
    name: z.literal('atoll').describe('Name of the service'),
    version: z.string().describe('Version of the server'),
    docs: z.string().describe('Path of the documentation'),
    openapi: z.string().describe('Path of this reference as OpenAPI'),
  })
  .meta({ examples: [{ name: 'atoll', version: '0.1.0', docs: '/docs', openapi: '/openapi.json' }] })

export const dashboardRoutes = [
  route('GET', '/', {
    id: 'getIndex',
    lenient: true,
    summary: 'Where to go from here',
    description: 'To a browser it is the dashboard.',
    auth: 'none',
    answers: { 200: { description: 'Addresses', body: addresses } },
    async handle({ openapi, request, deps, dashboard }) {
      const version = typeof openapi.info['version'] === 'string' ? openapi.info['version'] : ''
      if (!wantsPage(request.headers)) {
        return { statusCode: 200, body: { name: 'atoll', version, docs: '/docs', openapi: '/openapi.json' } }
      }
      if (dashboard !== undefined) return dashboard.page()
      const body = landingPage(version, apiOrigin(deps.config, request))
      return { statusCode: 200, body, headers: pageHeaders }
    },
  }),
  route('POST', '/api/dashboard/sign-in', {
    id: 'signIn',
    summary: 'Begin the session of a browser with a key',
    description:
      'The answer sets a cookie that stands for the key, for 12 hours and no longer than the key: `__Host-atoll` over TLS, else `atoll_dashboard`. It counts for ' +
      'calls without a key, but not for `/mcp` and for ports by the API, and only for pages of this server: a request with `Sec-Fetch-Site` other than ' +
      '`same-origin` or `none`, one with another `Origin`, and one without `Origin` that is neither GET nor HEAD or opens a WebSocket, is `forbidden`. That ' +
      'holds for this call too.',
    auth: 'none',
    body: wire.signIn,
    answers: {
      200: {
        description: 'Whose key it is',
        body: whoami.whoami,
        headers: { 'Set-Cookie': 'The session, for the browser alone (`HttpOnly`, `SameSite=Strict`)' },
      },
    },
    errors: ['unauthorized', 'forbidden', 'organisation_suspended'],
    async handle({ body, request, deps }) {
      const { browserSessions, organisations, keys, audit } = deps
      browserSessions.assertOwnPage(request)
      const keyHash = sha256(body.key)
      const caller = await callerOf(deps, { keyHash, credential: body.key })
      if (caller === undefined) throw new ServiceError('unauthorized', 'the API key is not known, or it has ended')
      if (caller.key !== undefined) {
        organisations.assertActive(caller.key.orgId)
        keys.touch(caller.key.id)
      }
      await auditSession(audit, 'signIn', request, caller)
      const cookie = browserSessions.begin(request, keyHash, caller.keyExpiresAt)
      return {
        statusCode: 200,
        body: whoamiBody(caller),
        headers: { 'set-cookie': cookie, 'cache-control': 'no-store' },
      }
    },
  }),
  route('POST', '/api/dashboard/sign-out', {
    id: 'signOut',
    summary: 'End the session of a browser',
    description:
      'The answer removes the cookie, also one that is no longer valid. What else has the cookie keeps it until its end or that of the key.',
    auth: 'none',
    answers: { 204: { description: 'The browser has no session', headers: { 'Set-Cookie': 'Removes the session' } } },
    errors: ['forbidden'],
    async handle({ request, deps }) {
      const { browserSessions, audit } = deps
      browserSessions.assertOwnPage(request)
      const session = browserSessions.find(request)
      const caller = typeof session === 'object' ? await callerOf(deps, session) : undefined
      if (caller !== undefined) await auditSession(audit, 'signOut', request, caller)
      return { statusCode: 204, headers: { 'set-cookie': browserSessions.end(request) } }
    },
  }),
]
