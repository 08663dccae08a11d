import { createRoute } from '@tanstack/react-router'
import { lazyPage } from '../../lib/part.ts'
import { defined, oneOf, textOf } from '../../lib/search.ts'
import { shellRoute } from '../../shell/root.tsx'
import { origins, owners } from './words.ts'

export const routes = [
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/checkpoints',
    /** `sandbox`: its id or name; `checkpoint`: the one whose details are open. */
    validateSearch: (search: Record<string, unknown>) =>
      defined({
        sandbox: textOf(search['sandbox']),
        owner: oneOf(owners, search['owner']),
        origin: oneOf(origins, search['origin']),
        sort: textOf(search['sort']),
        checkpoint: textOf(search['checkpoint']),
      }),
    component: lazyPage(async () => (await import('./checkpoints.tsx')).CheckpointsPage),
  }),
  createRoute({
    getParentRoute: () => shellRoute,
    path: '/checkpoints/tree/$sandboxId',
    /** `node`: the one that is selected; `from` and `to`: the nodes whose disks are compared. */
    validateSearch: (search: Record<string, unknown>) =>
      defined({ node: textOf(search['node']), from: textOf(search['from']), to: textOf(search['to']) }),
    component: lazyPage(async () => (await import('./tree/tree.tsx')).TreePage),
  }),
] as const
