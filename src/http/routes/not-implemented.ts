import { ServiceError } from '../../errors.ts'
import { type Route, routesOf } from '../server/route.ts'

/** Endpoints of the OpenComputer API and its SDK that do not exist yet: they say so, and never nothing. */
const endpoints: readonly [method: Route['method'], path: string, what: string][] = [
  ['GET', '/api/sandboxes/:id/autoscale', 'autoscale'],
  ['PUT', '/api/sandboxes/:id/autoscale', 'autoscale'],
  ['GET', '/api/sandboxes/:id/scaling-lock', 'scaling-lock'],
  ['PUT', '/api/sandboxes/:id/scaling-lock', 'scaling-lock'],
  ['GET', '/api/sandboxes/:id/allowed-hosts', 'allowed-hosts'],
  ['GET', '/api/sandboxes/:id/mounts', 'mounts'],
  ['POST', '/api/sandboxes/:id/mounts', 'mounts'],
  ['DELETE', '/api/sandboxes/:id/mounts', 'mounts'],
  ['GET', '/api/sandboxes/:id/agent', 'agent'],
  ['POST', '/api/sandboxes/:id/agent', 'agent'],
  ['POST', '/api/sandboxes/:id/agent/:agentId/kill', 'agent'],
  ['GET', '/api/sandboxes/:id/usage', 'usage'],
  ['GET', '/api/usage', 'usage'],
  ['GET', '/api/templates', 'templates'],
  ['POST', '/api/templates', 'templates'],
  ['GET', '/api/templates/:name', 'templates'],
  ['DELETE', '/api/templates/:name', 'templates'],
  ['GET', '/api/snapshots', 'snapshots'],
  ['POST', '/api/snapshots', 'snapshots'],
  ['GET', '/api/snapshots/:name', 'snapshots'],
  ['DELETE', '/api/snapshots/:name', 'snapshots'],
  ['GET', '/api/webhooks', 'webhooks'],
  ['POST', '/api/webhooks', 'webhooks'],
  ['GET', '/api/webhooks/:webhookId', 'webhooks'],
  ['PATCH', '/api/webhooks/:webhookId', 'webhooks'],
  ['DELETE', '/api/webhooks/:webhookId', 'webhooks'],
  ['GET', '/api/webhooks/:webhookId/secret', 'webhooks'],
  ['POST', '/api/webhooks/:webhookId/test', 'webhooks'],
  ['GET', '/api/webhooks/:webhookId/deliveries', 'webhooks'],
  ['GET', '/api/webhooks/:webhookId/deliveries/:deliveryId', 'webhooks'],
  ['POST', '/api/webhooks/:webhookId/deliveries/:deliveryId/redeliver', 'webhooks'],
  ['GET', '/api/secret-stores', 'secret stores'],
  ['POST', '/api/secret-stores', 'secret stores'],
  ['GET', '/api/secret-stores/:storeId', 'secret stores'],
  ['PUT', '/api/secret-stores/:storeId', 'secret stores'],
  ['DELETE', '/api/secret-stores/:storeId', 'secret stores'],
  ['GET', '/api/secret-stores/:storeId/secrets', 'secret stores'],
  ['PUT', '/api/secret-stores/:storeId/secrets/:name', 'secret stores'],
  ['DELETE', '/api/secret-stores/:storeId/secrets/:name', 'secret stores'],
]

const route = routesOf('Not built yet')

export const notImplementedRoutes = endpoints.map(([method, path, what]) =>
  route(method, path, {
    summary: `Answers 501: ${what}`,
    answers: {},
    errors: ['not_implemented'],
    async handle() {
      throw new ServiceError('not_implemented', `${what}: not implemented yet`)
    },
  }),
)
