import { createRoute } from '@tanstack/react-router'
import { lazyPage } from '../../lib/part.ts'
import { defined, oneOf, textOf } from '../../lib/search.ts'
import { shellRoute } from '../../shell/root.tsx'
import { auditSearchOf } from '../records/routes.tsx'

const organisationTabs = ['keys', 'audit'] as const

export const routes = [
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/keys',
    /** `key`: the one whose details are open. */
    validateSearch: (search: Record<string, unknown>) => defined({ key: textOf(search['key']) }),
    component: lazyPage(async () => (await import('./keys/keys.tsx')).KeysPage),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/organisations',
    /** `tab`: the audit of the operator, whose search stands beside it. */
    validateSearch: (search: Record<string, unknown>) => ({
      ...defined({ tab: oneOf(['audit'] as const, search['tab']) }),
      ...auditSearchOf(search),
    }),
    component: lazyPage(async () => (await import('./organisations/organisations.tsx')).OrganisationsPage),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/organisations/$id',
    validateSearch: (search: Record<string, unknown>) => ({
      ...defined({ tab: oneOf(organisationTabs, search['tab']), key: textOf(search['key']) }),
      ...auditSearchOf(search),
    }),
    component: lazyPage(async () => (await import('./organisations/organisation.tsx')).OrganisationPage),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/host',
    component: lazyPage(async () => (await import('./host/host.tsx')).HostPage),
  }),
] as const
