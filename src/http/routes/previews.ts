import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import type { Preview } from '../../sandbox/index.ts'
import { previews as wire } from '../../protocol/http/index.ts'
import type { HttpDeps } from '../server/config.ts'
import { portOf } from '../server/port-path.ts'
import { noContent, routesOf } from '../server/route.ts'
import { previewAuthOf } from './sandboxes.ts'
import { milliseconds, seconds } from '../server/time.ts'
import { defined } from '../../lib/defined.ts'

const route = routesOf('Previews', 'preview')

export const previewRoutes = [
  route('POST', '/api/sandboxes/:id/preview', {
    id: 'createPreview',
    lenient: true,
    summary: 'Declare a preview of a port',
    description:
      'Every port answers under its host name undeclared; declaring one makes it listable and gives it a domain of your own ' +
      'and a token to demand. Declaring it again changes what is named: what is absent or `{}` stays as it was, `null` removes it. ' +
      'A domain leads to the port when DNS has the TXT record `verification`. One that another preview serves is a `conflict`, whose ' +
      'answer has that record too.',
    body: wire.putPreview,
    creates: true,
    answers: {
      201: { description: 'Declared', body: wire.preview },
      200: { description: 'The port had one, now updated', body: wire.preview },
    },
    errors: ['conflict', 'sandbox_stopped'],
    async handle({ orgId, params, body, creation, deps }) {
      const { port, domain, authConfig } = body
      const { scheme, token } = authConfig ?? {}
      const input = {
        port,
        ...defined({ domain }),
        ...(authConfig === null ? { auth: null } : {}),
        ...(scheme === undefined && token === undefined ? {} : { auth: previewAuthOf({ token }) }),
      }
      const { preview, created, ...made } = await deps.sandboxes.previews.put(orgId, params.id, input, { creation })
      const shown = made.token === undefined ? {} : { previewAuthToken: made.token }
      return { statusCode: created ? 201 : 200, body: { ...previewBody(preview, deps), ...shown } }
    },
  }),
  route('GET', '/api/sandboxes/:id/preview', {
    id: 'listPreviews',
    lenient: true,
    summary: 'List the declared previews of a sandbox',
    answers: { 200: { description: 'By port', body: z.array(wire.preview) } },
    answer: async ({ orgId, params, deps }) =>
      (await deps.sandboxes.previews.list(orgId, params.id)).map((preview) => previewBody(preview, deps)),
  }),
  route('DELETE', '/api/sandboxes/:id/preview/:port', {
    id: 'deletePreview',
    lenient: true,
    summary: 'Remove a declared preview',
    answers: { 204: { description: 'It is gone' } },
    async handle({ orgId, params, deps }) {
      if (!/^\d{1,5}$/.test(params.port)) throw new ServiceError('invalid_request', 'port: must be a number')
      await deps.sandboxes.previews.delete(orgId, params.id, Number(params.port))
      return noContent
    },
  }),
  route('POST', '/api/sandboxes/:id/preview/:port/visit', {
    id: 'visitPreview',
    summary: 'Make a URL that opens a preview in a browser',
    description:
      'Of a preview with a token it has one of its own, for a minute and this host name. A browser that opens it has a cookie of the host for 12 hours, also in a frame of the ' +
      'page that has asked, and the URL without that token. The preview need not be declared, and the sandbox is not woken.',
    answers: { 200: { description: 'The URL', body: wire.visit } },
    errors: ['sandbox_stopped'],
    async answer({ orgId, params, deps }) {
      const { url, hostname, tokenHash } = await deps.sandboxes.previews.address(orgId, params.id, portOf(params.port))
      if (tokenHash === undefined) return { url: `${url}/`, expiresAt: null }
      const { token, expiresAt } = deps.preview.visit({ hostname, tokenHash })
      return { url: `${url}/?token=${token}`, expiresAt: milliseconds(expiresAt) }
    },
  }),
  route('POST', '/api/sandboxes/:id/preview/rotate', {
    id: 'rotatePreviewToken',
    lenient: true,
    summary: 'Make a new preview token for the whole sandbox',
    description: 'For all ports that have no token of their own. The old one stops working at once.',
    answers: { 200: { description: 'The new token, shown this once', body: wire.rotated } },
    errors: ['sandbox_stopped'],
    answer: async ({ orgId, params, deps }) => ({
      previewAuthToken: await deps.sandboxes.previews.rotate(orgId, params.id),
      scheme: 'bearer',
    }),
  }),
]

function previewBody(preview: Preview, { sandboxes }: HttpDeps): z.output<typeof wire.preview> {
  const { id, sandboxId, orgId, port, customHostname, sslStatus } = preview
  const verification = sandboxes.previews.verification(preview)
  return {
    ...{ id, sandboxId, orgId, port, sslStatus },
    hostname: sandboxes.previews.hostname(sandboxId, port),
    ...defined({ customHostname, verification }),
    authConfig: preview.authScheme === undefined ? {} : { scheme: preview.authScheme },
    createdAt: seconds(preview.createdAt),
  }
}
