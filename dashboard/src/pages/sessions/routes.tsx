import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { rootRoute, shellRoute } from '../../shell/root.tsx'
import { listSearchOf, sessionSearchOf } from './search.ts'
import { branchSearchOf } from './travel/branch-search.ts'

export const routes = [
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/sessions',
    validateSearch: listSearchOf,
    component: lazyRouteComponent(() => import('./list/session-list.tsx'), 'SessionList'),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/sessions/$sessionId',
    validateSearch: sessionSearchOf,
    component: lazyRouteComponent(() => import('./session-page.tsx'), 'SessionPage'),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/sessions/$sessionId/branch',
    validateSearch: branchSearchOf,
    component: lazyRouteComponent(() => import('./travel/branch-page.tsx'), 'BranchPage'),
  }),
] as const
/** Pages that need no key. */
export const openRoutes = [
  createRoute({
    getParentRoute: () => rootRoute,
    path: '/capsules/$token',
    component: lazyRouteComponent(() => import('./travel/capsule-page.tsx'), 'CapsulePage'),
  }),
] as const
