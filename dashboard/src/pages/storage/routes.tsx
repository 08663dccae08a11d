import { createRoute } from '@tanstack/react-router'
import { lazyPage } from '../../lib/part.ts'
import { defined, oneOf, textOf } from '../../lib/search.ts'
import { shellRoute } from '../../shell/root.tsx'

export const routes = [
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/volumes',
    /** `new`: the dialog that makes one; `from`: the volume, or `volume@snapshot`, that it begins as. */
    validateSearch: (search: Record<string, unknown>) =>
      defined({
        text: textOf(search['text']),
        sort: textOf(search['sort']),
        new: oneOf(['volume'] as const, search['new']),
        from: textOf(search['from']),
      }),
    component: lazyPage(async () => (await import('./volumes.tsx')).VolumesPage),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/volumes/$volume',
    component: lazyPage(async () => (await import('./volume.tsx')).VolumePage),
  }),
] as const
