import { createRoute } from '@tanstack/react-router'
import { lazyPage } from '../../lib/part.ts'
import { rootRoute } from '../../shell/root.tsx'

/** `to`: where the reader was going, a path of this page. */
export const signInRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/sign-in',
  validateSearch: (search: Record<string, unknown>): { to?: string } => {
    const { to } = search
    return typeof to === 'string' && /^\/(?!\/)[^\\]*$/.test(to) ? { to } : {}
  },
  component: lazyPage(async () => (await import('./sign-in.tsx')).SignIn),
})
