import { createRoute } from '@tanstack/react-router'
import { lazyPage } from '../../lib/part.ts'
import { countOf, defined, oneOf, textOf, timeOf } from '../../lib/search.ts'
import { shellRoute } from '../../shell/root.tsx'
import { measures, ranges } from './usage/search.ts'

export const routes = [
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/secrets',
    component: lazyPage(async () => (await import('./secrets/secret-stores.tsx')).SecretStores),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/secrets/$store',
    component: lazyPage(async () => (await import('./secrets/secret-store.tsx')).SecretStore),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/webhooks',
    component: lazyPage(async () => (await import('./webhooks/webhooks.tsx')).Webhooks),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/webhooks/$id',
    /** `message`: the one whose body is open. */
    validateSearch: (search: Record<string, unknown>) => defined({ message: textOf(search['message']) }),
    component: lazyPage(async () => (await import('./webhooks/webhook.tsx')).WebhookPage),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/usage',
    /** `by`: what the items are grouped by; `tag`: the filter, as `key=value,other`. Without `from` and `to` the range counts. */
    validateSearch: (search: Record<string, unknown>) =>
      defined({
        range: oneOf(ranges, textOf(search['range'])),
        from: dayOf(search['from']),
        to: dayOf(search['to']),
        measure: oneOf(measures, search['measure']),
        by: groupOf(search['by']),
        tag: textOf(search['tag']),
      }),
    component: lazyPage(async () => (await import('./usage/usage.tsx')).UsagePage),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/audit',
    validateSearch: auditSearchOf,
    component: lazyPage(async () => (await import('./audit/audit.tsx')).AuditPage),
  }),
] as const

/** The filters of an audit, and the number of the entry that is open. */
export function auditSearchOf(search: Record<string, unknown>) {
  return defined({
    actor: textOf(search['actor']),
    operation: textOf(search['operation']),
    subject: textOf(search['subject']),
    from: timeOf(search['from']),
    to: timeOf(search['to']),
    status: /^(?:ok|[45]\d\d)$/.test(textOf(search['status']) ?? '') ? textOf(search['status']) : undefined,
    entry: countOf(search['entry']),
  })
}

function groupOf(value: unknown): string | undefined {
  const text = textOf(value) ?? ''
  return /^(?:sandbox|session|key|tag:.+)$/.test(text) ? text : undefined
}

function dayOf(value: unknown): string | undefined {
  const text = textOf(value) ?? ''
  return /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text)) ? text : undefined
}
