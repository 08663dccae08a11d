import { sessions as wire } from '../../protocol/http/index.ts'
import { route } from '../server/route.ts'
import { milliseconds } from '../server/time.ts'

export const sessionTokenRoutes = [
  route({
    method: 'POST',
    path: '/v1/sessions/:sessionId/tokens',
    tag: 'Sessions',
    summary: 'Make a token with which a browser reads or steers this session',
    description:
      'It goes into the URL as `?token=`. `read` opens the session and its event stream; `steer` also messages, their ' +
      'cancellation and interrupts. When the session has ended only the rest of the stream is left.',
    auth: 'key',
    body: wire.createToken,
    creates: true,
    answers: { 201: { description: 'The token, shown this once', body: wire.accessToken } },
    errors: ['not_found', 'forbidden', 'conflict'],
    async handle({ orgId, params, body, deps }) {
      const { token, expiresAt } = await deps.sessions.createToken(orgId, params.sessionId, {
        userId: body.user_id,
        scope: body.scope,
        ...(body.ttl === undefined ? {} : { ttlSeconds: body.ttl }),
      })
      return { statusCode: 201, body: { token, expiresAt: milliseconds(expiresAt) } }
    },
  }),
]
