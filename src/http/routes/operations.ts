import type { IncomingMessage } from 'node:http'
import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { host as wire } from '../../protocol/http/index.ts'
import { routesOf } from '../server/route.ts'
import { seconds } from '../server/time.ts'

const route = routesOf('Operations', 'any')
const state = z
  .object({ status: z.literal('ok').describe('Anything else is an error') })
  .meta({ id: 'Health', examples: [{ status: 'ok' }] })

const metricsExample = '# TYPE atoll_sandboxes gauge\natoll_sandboxes{state="running"} 1\n'
const metricsType = 'text/plain; version=0.0.4; charset=utf-8'

export const operationRoutes = [
  route('GET', '/healthz', {
    id: 'getHealth',
    lenient: true,
    summary: 'Whether the process is alive',
    auth: 'probe',
    answers: { 200: { description: 'It is', body: state } },
    async handle() {
      return { statusCode: 200, body: { status: 'ok' } }
    },
  }),
  route('GET', '/readyz', {
    id: 'getReadiness',
    lenient: true,
    summary: 'Whether the server takes requests',
    auth: 'probe',
    answers: { 200: { description: 'They should', body: state } },
    async handle({ deps, streams }) {
      if (streams.draining.aborted) throw new ServiceError('unavailable', 'the server is stopping')
      await deps.ready()
      return { statusCode: 200, body: { status: 'ok' } }
    },
  }),
  route('GET', '/metrics', {
    id: 'getMetrics',
    lenient: true,
    summary: 'Metrics for Prometheus',
    description: 'Without a key; a request that a proxy forwarded gets 404.',
    auth: 'probe',
    answers: { 200: { description: 'The exposition format', content: 'text/plain', example: metricsExample } },
    errors: ['not_found'],
    async handle({ request, metrics }) {
      if (isForwarded(request)) throw new ServiceError('not_found', 'GET /metrics does not exist')
      return { statusCode: 200, body: await metrics.text(), headers: { 'content-type': metricsType } }
    },
  }),
  route('GET', '/api/host', {
    id: 'getHost',
    auth: 'key_or_operator',
    summary: 'The machine of the server: what it has, and whether it is fit',
    description:
      'Its checks are those of `npm run doctor` that are harmless beside a running server. They are kept for ten minutes (`fresh`); one that ' +
      'hangs or throws `fails`. `npm run doctor` also starts, forks and wakes a sandbox, saves memory with CRIU, and tries disk and network.',
    query: wire.hostQuery,
    answers: { 200: { description: 'The machine now', body: wire.host } },
    async handle({ query, deps, openapi }) {
      const { startedAt, checkedAt, ...report } = await deps.host({ isFresh: query.fresh === 'true' })
      const { version } = openapi.info
      return {
        statusCode: 200,
        body: { version, ...report, startedAt: seconds(startedAt), checkedAt: seconds(checkedAt) },
      }
    },
  }),
  route('GET', '/api/operator/quarantine', {
    id: 'getQuarantine',
    auth: 'operator',
    summary: 'What the server holds back, as its database or its disk does not agree with it',
    description: '`npm run quarantine` on the machine of the server brings it back or removes it.',
    answers: { 200: { description: 'What is there now', body: wire.quarantine } },
    async handle({ deps }) {
      const { count, items } = await deps.quarantine()
      const times = ({ since, removedAt }: (typeof items)[number]) => ({
        since: seconds(since),
        removedAt: removedAt === null ? null : seconds(removedAt),
      })
      return { statusCode: 200, body: { count, items: items.map((item) => ({ ...item, ...times(item) })) } }
    },
  }),
  route('GET', '/internal/tls-ask', {
    id: 'askCertificate',
    summary: 'Whether the proxy in front may get a certificate for a host name',
    description:
      'For Caddy’s on-demand TLS. Answers 200 only to the proxy itself, on this machine or among the trusted ones; ' +
      'everybody else, and a forwarded request, gets 404.',
    auth: 'probe',
    query: z.object({
      domain: z
        .string()
        .min(1)
        .max(253)
        .meta({ description: 'The host name', examples: ['api.example.com'] }),
    }),
    answers: { 200: { description: 'It may' } },
    errors: ['not_found', 'rate_limited'],
    async handle({ query, request, deps }) {
      const peer = request.raw.socket.remoteAddress ?? ''
      if (isForwarded(request) || !(await deps.preview.mayHaveCertificate(query.domain, peer))) {
        throw new ServiceError('not_found', 'no certificate may be issued for this name')
      }
      return { statusCode: 200 }
    },
  }),
]

/** Headers that a proxy adds to a forwarded request. */
const proxyHeaders = ['x-forwarded-for', 'x-forwarded-host', 'forwarded', 'via']

/** Whether a proxy forwarded the request. Endpoints for this machine alone answer 404 then. */
function isForwarded({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  return proxyHeaders.some((name) => headers[name] !== undefined)
}
