import { createRoute } from '@tanstack/react-router'
import { lazyPage } from '../../lib/part.ts'
import { rootRoute, shellRoute } from '../../shell/root.tsx'
import { listSearchOf, sessionSearchOf } from './search.ts'
import { branchSearchOf } from './travel/branch-search.ts'

export const routes = [
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/sessions',
    validateSearch: listSearchOf,
    component: lazyPage(async () => (await import('./list/session-list.tsx')).SessionList),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/sessions/$sessionId',
    validateSearch: sessionSearchOf,
    component: lazyPage(async () => (await import('./session-page.tsx')).SessionPage),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/sessions/$sessionId/branch',
    validateSearch: branchSearchOf,
    component: lazyPage(async () => (await import('./travel/branch-page.tsx')).BranchPage),
  }),
] as const
/** Pages that need no key. */
export const openRoutes = [
  createRoute({
    getParentRoute: () => rootRoute,
    path: '/capsules/$token',
    component: lazyPage(async () => (await import('./travel/capsule-page.tsx')).CapsulePage),
  }),
] as const
