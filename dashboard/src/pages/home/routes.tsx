import { createRoute } from '@tanstack/react-router'
import { lazyPage } from '../../lib/part.ts'
import { shellRoute } from '../../shell/root.tsx'

export const routes = [
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/',
    component: lazyPage(async () => (await import('./home.tsx')).Home),
  }),
] as const
