import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { isPassedOn } from '../server/passed-on.ts'
import { route } from '../server/route.ts'

export const tlsAskRoutes = [
  route({
    method: 'GET',
    path: '/internal/tls-ask',
    tag: 'Operations',
    summary: 'Whether the proxy in front may get a certificate for a host name',
    description:
      'For Caddy’s on-demand TLS. Answers 200 only to the proxy itself, on this machine or among the trusted ones; to everybody ' +
      'else, and to requests that it passes on, it does not exist.',
    auth: 'probe',
    query: z.object({ domain: z.string().min(1).max(253) }),
    answers: { 200: { description: 'It may' } },
    errors: ['not_found', 'rate_limited'],
    async handle({ query, request, deps }) {
      const peer = request.raw.socket.remoteAddress ?? ''
      // The proxy's own question has no marks of one.
      if (isPassedOn(request) || !(await deps.preview.mayHaveCertificate(query.domain, peer))) {
        throw new ServiceError('not_found', 'no certificate may be issued for this name')
      }
      return { statusCode: 200 }
    },
  }),
]
