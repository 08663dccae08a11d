import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import {
  computeUsd,
  type ComputePrices,
  type GroupBy,
  type UsageReport,
  type UsageTotals,
} from '../../organisation/usage/index.ts'
import { usage as wire } from '../../protocol/http/index.ts'
import { csvOf } from '../server/csv.ts'
import { organisationMetrics } from '../server/organisation-metrics.ts'
import { routesOf } from '../server/route.ts'
import { milliseconds, seconds } from '../server/time.ts'

const route = routesOf('Usage', 'usage')
const dayMs = 86_400_000
const limitDefault = 50

export const usageRoutes = [
  route('GET', '/api/usage', {
    id: 'getUsage',
    ofAll: true,
    lenient: true,
    summary: 'Read what the organisation has used',
    description:
      'Filters: `filter[tag:<key>]=a,b` for sandboxes with one of these values of the tag, an empty value for those without the key; several are all ' +
      'to be so. Tags are those of now. Stopped sandboxes count. Times are `[from, to)`.',
    query: wire.usageQuery,
    furtherParameters: /^filter/,
    answers: {
      200: { description: 'One page', body: wire.usage, content: 'text/csv', example: 'sandboxId,memoryGbSeconds\n' },
    },
    async handle({ orgId, query, request, deps }) {
      const { groupBy: asked, sort = '-memoryGbSeconds', limit = limitDefault, cursor, format } = query
      const window = windowOf(query, { defaultMs: 30 * dayMs, mostMs: 90 * dayMs })
      const groupBy = groupOf(asked)
      const report = await deps.usage.report(orgId, {
        ...{ groupBy, window, limit, tags: filtersOf(request.url) },
        sort: sort === '-memoryGbSeconds' ? 'memoryGbSeconds' : 'diskOverageGbSeconds',
        ...defined({ cursor }),
      })
      const items = itemsOf(report, groupBy, deps.prices)
      const next = report.nextCursor === undefined ? {} : { 'x-next-cursor': report.nextCursor }
      if (format === 'csv' || (format === undefined && request.headers.accept?.startsWith('text/csv') === true)) {
        const headers = {
          'content-type': 'text/csv; charset=utf-8',
          'content-disposition': 'attachment; filename="usage.csv"',
        }
        return { statusCode: 200, body: csvOf(items), headers: { ...headers, ...next } }
      }
      return {
        statusCode: 200,
        body: {
          ...{ from: milliseconds(window.from), to: milliseconds(window.to), groupBy: asked, items },
          total: totalsOf(report.total, deps.prices),
          ...(report.untagged === undefined
            ? {}
            : { untagged: { ...totalsOf(report.untagged, deps.prices), sandboxCount: report.untagged.sandboxCount } }),
          nextCursor: report.nextCursor ?? null,
        },
      }
    },
  }),
  route('GET', '/api/operator/metrics', {
    id: 'getOrganisationMetrics',
    auth: 'operator',
    lenient: true,
    summary: 'Read what each organisation has used this month, for Prometheus',
    description: "Of the calendar month (UTC). Prometheus sends the operator's key as `authorization`.",
    answers: {
      200: {
        description: 'Series by organisation',
        content: 'text/plain',
        example: 'atoll_organisation_usd{org="org_…"} 1.5',
      },
    },
    async handle({ deps }) {
      const body = await organisationMetrics(await deps.usage.month(), deps.prices)
      return { statusCode: 200, body, headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' } }
    },
  }),
  route('GET', '/api/sandboxes/:id/usage', {
    id: 'getSandboxUsage',
    scope: 'sandbox:read',
    lenient: true,
    summary: 'Read what a sandbox has used, minute by minute',
    description: 'A stopped one too. It wakes nothing.',
    query: wire.sandboxUsageQuery,
    answers: { 200: { description: 'Its memory', body: wire.sandboxUsage } },
    async answer({ orgId, params, query, deps }) {
      const window = windowOf(query, { defaultMs: 3_600_000, mostMs: 30 * dayMs })
      const { name, totals, points } = await deps.usage.sandbox(orgId, params.id, window)
      return {
        ...{ sandboxId: params.id, ...defined({ alias: name }), totals },
        ...{ from: milliseconds(window.from), to: milliseconds(window.to) },
        points: points.map((point) => ({ ...point, ts: milliseconds(point.ts) })),
      }
    },
  }),
]

function totalsOf(usage: UsageTotals, prices: ComputePrices) {
  const { memoryGbSeconds, diskOverageGbSeconds, diskGbSeconds, cpuAllocatedSeconds } = usage
  const { cpuUsedSeconds, egressBytes, ingressBytes } = usage
  return {
    ...{ memoryGbSeconds, diskOverageGbSeconds, diskGbSeconds, cpuAllocatedSeconds },
    ...{ cpuUsedSeconds, egressBytes, ingressBytes, computeUsd: computeUsd(usage, prices) },
  }
}

function itemsOf({ items }: UsageReport, groupBy: GroupBy, prices: ComputePrices): object[] {
  const { sandboxes = [], tags = [], keys = [], sessions = [] } = items
  return [
    ...sandboxes.map((item) => ({
      sandboxId: item.sandboxId,
      ...defined({ alias: item.name, keyId: item.keyId }),
      ...{ status: item.status, tags: item.tags, tagsLastUpdatedAt: seconds(item.tagsUpdatedAt) },
      ...totalsOf(item, prices),
    })),
    ...tags.map(({ tagValue, sandboxCount, ...item }) => ({
      ...{ tagKey: groupBy.of === 'tag' ? groupBy.key : '', tagValue, sandboxCount },
      ...totalsOf(item, prices),
    })),
    ...keys.map(({ keyId, sandboxCount, ...item }) => ({ keyId, sandboxCount, ...totalsOf(item, prices) })),
    ...sessions,
  ]
}

function groupOf(text: string): GroupBy {
  if (text.startsWith('tag:')) return { of: 'tag', key: text.slice('tag:'.length) }
  return { of: text as 'sandbox' | 'key' | 'session' }
}

/** `filter[tag:<key>]=a,b`. Throws `invalid_request` for another dimension, an empty key, and a parameter that comes twice. */
function filtersOf(url: string): Map<string, string[]> {
  const filters = new Map<string, string[]>()
  for (const [name, value] of new URL(url, 'http://localhost').searchParams) {
    if (!name.startsWith('filter')) continue
    const [, key] = /^filter\[tag:(.+)\]$/s.exec(name) ?? []
    const field = name.slice(0, 140)
    if (key === undefined) throw invalid(field, 'must be filter[tag:<key>]')
    if (filters.has(key)) throw invalid(field, 'comes twice')
    filters.set(key, value === '' ? [] : value.split(','))
  }
  return filters
}

function windowOf(
  { from, to }: { from?: string | undefined; to?: string | undefined },
  { defaultMs, mostMs }: { defaultMs: number; mostMs: number },
): { from: Date; to: Date } {
  const end = to === undefined ? new Date() : timeOf('to', to)
  const begin = from === undefined ? new Date(end.getTime() - defaultMs) : timeOf('from', from)
  if (begin >= end) throw invalid('to', 'must be after from')
  if (end.getTime() - begin.getTime() > mostMs)
    throw invalid('from', `must be at most ${mostMs / dayMs} days before to`)
  return { from: begin, to: end }
}

function timeOf(field: string, text: string): Date {
  const date = new Date(text)
  const isRfc3339 = /^\d{4}-\d{2}-\d{2}(?:[Tt]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:[Zz]|[+-]\d{2}:\d{2}))?$/.test(text)
  if (isRfc3339 && !Number.isNaN(date.getTime())) return date
  throw invalid(field, 'must be YYYY-MM-DD or RFC 3339, such as 2026-01-15T10:30:00Z')
}

function invalid(field: string, rule: string): ServiceError {
  return new ServiceError('invalid_request', `${field}: ${rule}`, { details: { field } })
}
