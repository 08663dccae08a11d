import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { shellRoute } from '../../shell/root.tsx'
import { listSearchOf, sandboxSearchOf } from './search.ts'

export const routes = [
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/sandboxes',
    validateSearch: listSearchOf,
    component: lazyRouteComponent(() => import('./list.tsx'), 'SandboxList'),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/sandboxes/$sandboxId',
    validateSearch: sandboxSearchOf,
    component: lazyRouteComponent(() => import('./sandbox.tsx'), 'SandboxPage'),
  }),
] as const
