import { createRoute } from '@tanstack/react-router'
import { lazyPage } from '../../lib/part.ts'
import { defined, oneOf, textOf } from '../../lib/search.ts'
import { shellRoute } from '../../shell/root.tsx'
import { sources } from './sources.ts'

export const routes = [
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/images',
    /** `all`: those without a name too; `new`: the dialog that builds one, which begins with `from`; `registries`: that of their credentials. */
    validateSearch: (search: Record<string, unknown>) =>
      defined({
        text: textOf(search['text']),
        all: textOf(search['all']) === '1' ? 1 : undefined,
        sort: textOf(search['sort']),
        new: oneOf(['image'] as const, search['new']),
        from: oneOf(sources, search['from']),
        registries: textOf(search['registries']) === '1' ? 1 : undefined,
      }),
    component: lazyPage(async () => (await import('./images.tsx')).ImagesPage),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/images/$image',
    component: lazyPage(async () => (await import('./image.tsx')).ImagePage),
  }),
] as const
