import type { QueryClient } from '@tanstack/react-query'
import { createRouter } from '@tanstack/react-router'
import { routes as administration } from './pages/administration/routes.tsx'
import { routes as checkpoints } from './pages/checkpoints/routes.tsx'
import { routes as home } from './pages/home/routes.tsx'
import { routes as images } from './pages/images/routes.tsx'
import { routes as records } from './pages/records/routes.tsx'
import { routes as sandboxes } from './pages/sandboxes/routes.tsx'
import { openRoutes, routes as sessions } from './pages/sessions/routes.tsx'
import { routes as storage } from './pages/storage/routes.tsx'
import { rootRoute, shellRoute } from './shell/root.tsx'
import { signInRoute } from './pages/home/sign-in-route.tsx'
import { Loading } from './ui/states.tsx'

/** All pages. Each area lists its own; their code is read when one of them is first opened. */
const tree = rootRoute.addChildren([
  signInRoute,
  ...openRoutes,
  shellRoute.addChildren([
    ...home,
    ...sandboxes,
    ...sessions,
    ...checkpoints,
    ...images,
    ...storage,
    ...records,
    ...administration,
  ]),
])

export function routerOf(queries: QueryClient) {
  return createRouter({
    routeTree: tree,
    context: { queries },
    defaultPreload: 'intent',
    defaultPendingMs: 200,
    defaultPendingComponent: () => (
      <div className="p-6">
        <Loading />
      </div>
    ),
    scrollRestoration: false,
    // What a page's own check of its address leaves out does not reach the page.
    search: { strict: true },
  })
}

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof routerOf>
  }
}
