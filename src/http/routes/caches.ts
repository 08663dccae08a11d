import { z } from 'zod'
import { caches as wire } from '../../protocol/http/index.ts'
import type { Cache } from '../../sandbox/index.ts'
import { routesOf } from '../server/route.ts'
import { seconds } from '../server/time.ts'

const route = routesOf('Images', 'image')

export const cacheRoutes = [
  route('GET', '/api/images/caches', {
    id: 'listBuildCaches',
    ofAll: true,
    summary: 'List the caches of builds, the latest used first',
    description:
      'A cache is a folder that a step of a Dockerfile keeps for the next build (`RUN --mount=type=cache`), in no image. It goes after thirty ' +
      'days without use, or when others need its space.',
    answers: { 200: { description: 'All of them', body: z.array(wire.cache) } },
    errors: ['unavailable'],
    answer: async ({ orgId, deps }) => (await deps.sandboxes.caches.list(orgId)).map(cacheBody),
  }),
  route('DELETE', '/api/images/caches', {
    id: 'deleteBuildCaches',
    ofAll: true,
    summary: 'Delete the caches of builds that no build has now',
    answers: { 200: { description: 'They are gone', body: wire.removedCaches } },
    errors: ['unavailable'],
    async answer({ orgId, deps }) {
      const removed = await deps.sandboxes.caches.removeAll(orgId)
      const freedBytes = removed.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0)
      return { removed: removed.map(cacheBody), freedBytes }
    },
  }),
  route('DELETE', '/api/images/caches/:cache', {
    id: 'deleteBuildCache',
    ofAll: true,
    summary: 'Delete a cache of builds',
    answers: { 204: { description: 'It is gone' } },
    errors: ['conflict', 'unavailable'],
    answer: ({ orgId, params, deps }) => deps.sandboxes.caches.remove(orgId, params.cache),
  }),
]

function cacheBody({ id, sizeBytes, lastUsedAt }: Cache): z.output<typeof wire.cache> {
  return { id, sizeBytes, lastUsedAt: seconds(lastUsedAt) }
}
