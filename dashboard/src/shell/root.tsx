import { createRootRouteWithContext, createRoute, redirect } from '@tanstack/react-router'
import type { QueryClient } from '@tanstack/react-query'
import { accountKey, readAccount } from '../account/account.tsx'
import { isUnauthorized } from '../account/client.ts'
import { ErrorPage, NotFoundPage } from './fault-pages.tsx'
import { Shell } from './shell.tsx'

export const rootRoute = createRootRouteWithContext<{ queries: QueryClient }>()({
  errorComponent: ErrorPage,
  notFoundComponent: NotFoundPage,
})

/** The parent of all pages that need a key. Without one the reader signs in and comes back to where they were going. */
export const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: 'shell',
  component: Shell,
  notFoundComponent: NotFoundPage,
  beforeLoad: async ({ context: { queries }, location: { href } }) => {
    try {
      await queries.ensureQueryData({ queryKey: accountKey, queryFn: ({ signal }) => readAccount(signal) })
    } catch (error) {
      if (isUnauthorized(error)) throw redirect({ to: '/sign-in', search: { to: href } })
      throw error
    }
  },
})
