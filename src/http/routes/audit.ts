import { z } from 'zod'
import { Readable } from 'node:stream'
import { defined } from '../../lib/defined.ts'
import type { AuditStore } from '../../organisation/audit/index.ts'
import { audit as wire } from '../../protocol/http/index.ts'
import { dropWhenStalled } from '../server/least-rate.ts'
import { onceClosed } from '../server/once-closed.ts'
import { nextPageHeader, pageAnswer, type Call, type Route, routesOf } from '../server/route.ts'
import { exportCaps } from '../server/streams.ts'

const route = routesOf('Audit', 'audit')
const limitDefault = 100
const exportedAtOnce = 500

const places = [
  { path: '/api/audit', suffix: '', auth: 'key' },
  { path: '/api/orgs/:orgId/audit', suffix: 'OfOrganisation', auth: 'operator' },
  { path: '/api/operator/audit', suffix: 'OfOperator', auth: 'operator' },
] as const

/** The audit of the caller's organisation, and for the operator that of any and its own. */
export const auditRoutes: Route[] = places.flatMap(({ path, suffix, auth }) => [
  route('GET', path, {
    id: `listAudit${suffix}`,
    auth,
    ofAll: true,
    summary: 'Read who has done what',
    query: wire.listAuditQuery,
    answers: { 200: { description: 'Newest first', body: z.array(wire.auditEntry), headers: nextPageHeader } },
    async handle(call) {
      const { query, deps } = call
      const { actor: actorId, operation, subject, status, limit = limitDefault, cursor } = query
      const entries = await deps.auditStore.list(chainOf(call), {
        limit: limit + 1,
        ...defined({ actorId, operation, subject, before: cursor === undefined ? undefined : Number(cursor) }),
        ...defined({ from: dateOf(query.from), to: dateOf(query.to) }),
        ...(status === undefined ? {} : { status: status === 'ok' ? status : Number(status) }),
      })
      const items = entries.slice(0, limit)
      const last = items.at(-1)
      const next = entries.length > limit && last !== undefined ? { nextCursor: String(last.number) } : {}
      return pageAnswer({ items, ...next }, (entry) => entry)
    },
  }),
  route('GET', `${path}/export`, {
    id: `exportAudit${suffix}`,
    auth,
    ofAll: true,
    audited: true,
    summary: 'Read all of the audit, as JSON lines',
    description: 'Oldest first. `atoll audit verify` checks it.',
    query: wire.exportAuditQuery,
    answers: { 200: { description: 'An entry a line', content: 'application/x-ndjson', example: '{"number":1}\n' } },
    async handle(call) {
      const { query, reply, limits, streams, deps } = call
      const chain = chainOf(call)
      onceClosed(reply.raw, streams.open('export', exportCaps(call)))
      dropWhenStalled(reply.raw, limits.streamStallMs)
      await reply
        .code(200)
        .headers({ 'content-type': 'application/x-ndjson', 'cache-control': 'no-store' })
        .send(Readable.from(lines(deps.auditStore, chain, query.after ?? 0)))
      return undefined
    },
  }),
  route('GET', `${path}/head`, {
    id: `getAuditHead${suffix}`,
    auth,
    ofAll: true,
    summary: 'Read where the audit ends',
    description: 'Kept elsewhere, it shows later that nothing was cut off.',
    answers: { 200: { description: 'The newest entry', body: wire.auditHead } },
    answer: async (call) => await call.deps.auditStore.head(chainOf(call)),
  }),
])

/** Writes the head into the log, so that a webhook gets it. */
export const auditHeadRoute = route('POST', '/api/audit/head', {
  id: 'tellAuditHead',
  ofAll: true,
  summary: 'Tell where the audit ends, as the event `audit.head`',
  description: 'A webhook gets it. It is told by itself once a day.',
  answers: { 200: { description: 'The newest entry', body: wire.auditHead } },
  answer: async ({ orgId, deps }) => await deps.auditStore.tellHead(orgId, true),
})

function chainOf({ orgId, params, request }: Pick<Call, 'orgId' | 'request'> & { params: unknown }): string {
  const { orgId: asked = '' } = params as { orgId?: string }
  // An organisation that is gone has its audit still.
  return request.caller?.isOperator === true ? asked : orgId
}

async function* lines(store: Pick<AuditStore, 'page'>, orgId: string, after: number): AsyncGenerator<string> {
  for (let last = after; ;) {
    const entries = await store.page(orgId, last, exportedAtOnce)
    const end = entries.at(-1)
    if (end === undefined) return
    yield entries.map((entry) => `${JSON.stringify(entry)}\n`).join('')
    last = end.number
  }
}

function dateOf(text: string | undefined): Date | undefined {
  return text === undefined ? undefined : new Date(text)
}
