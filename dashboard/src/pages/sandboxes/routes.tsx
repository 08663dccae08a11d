import { createRoute } from '@tanstack/react-router'
import { lazyPage } from '../../lib/part.ts'
import { shellRoute } from '../../shell/root.tsx'
import { listSearchOf, sandboxSearchOf } from './search.ts'

export const routes = [
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/sandboxes',
    validateSearch: listSearchOf,
    component: lazyPage(async () => (await import('./list.tsx')).SandboxList),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/sandboxes/$sandboxId',
    validateSearch: sandboxSearchOf,
    component: lazyPage(async () => (await import('./sandbox.tsx')).SandboxPage),
  }),
] as const
