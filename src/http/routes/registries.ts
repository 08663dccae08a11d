import { z } from 'zod'
import type { RegistryLogin } from '../../image/index.ts'
import { registries as wire } from '../../protocol/http/index.ts'
import { noContent, routesOf } from '../server/route.ts'
import { seconds } from '../server/time.ts'

const route = routesOf('Images', 'image')

export const registryRoutes = [
  route('PUT', '/api/registries/:host', {
    id: 'putRegistry',
    ofAll: true,
    summary: 'Store the credentials of the organisation at a registry',
    description:
      'For all that it fetches from and pushes to this host, which the operator must allow. They take the place of earlier ones, and of those of the operator.',
    body: wire.putRegistry,
    answers: { 200: { description: 'Stored', body: wire.registry } },
    answer: async ({ orgId, params, body, deps }) =>
      registryBody(await deps.images.registries.put(orgId, params.host, body)),
  }),
  route('GET', '/api/registries', {
    id: 'listRegistries',
    ofAll: true,
    summary: 'List the registries at which the organisation has credentials',
    answers: { 200: { description: 'By host', body: z.array(wire.registry) } },
    answer: async ({ orgId, deps }) => (await deps.images.registries.list(orgId)).map(registryBody),
  }),
  route('GET', '/api/registries/:host', {
    id: 'getRegistry',
    ofAll: true,
    summary: 'Read who logs in to a registry',
    answers: { 200: { description: 'Without the password', body: wire.registry } },
    answer: async ({ orgId, params, deps }) => registryBody(await deps.images.registries.get(orgId, params.host)),
  }),
  route('DELETE', '/api/registries/:host', {
    id: 'deleteRegistry',
    ofAll: true,
    summary: 'Remove the credentials of the organisation at a registry',
    description: 'Images that were fetched with them stay.',
    answers: { 204: { description: 'They are gone' } },
    async handle({ orgId, params, deps }) {
      await deps.images.registries.delete(orgId, params.host)
      return noContent
    },
  }),
]

function registryBody({ host, username, updatedAt }: RegistryLogin): z.output<typeof wire.registry> {
  return { host, username, updatedAt: seconds(updatedAt) }
}
