import { ServiceError } from '../../errors.ts'
import { type Route, routesOf } from '../server/route.ts'

/** See docs/decisions/0024-no-fuse-in-sandboxes.md. */
const noMounts =
  'not offered: who serves a FUSE file system can hold system calls and checkpoints; copy with rclone, or use a volume'

/** Endpoints of the OpenComputer API and its SDK that do not exist yet: each answers 501 and what is missing. */
const endpoints: readonly [id: string, method: Route['method'], path: string, what: string, why?: string][] = [
  ['listMounts', 'GET', '/api/sandboxes/:id/mounts', 'mounts', noMounts],
  ['createMount', 'POST', '/api/sandboxes/:id/mounts', 'mounts', noMounts],
  ['deleteMount', 'DELETE', '/api/sandboxes/:id/mounts', 'mounts', noMounts],
  ['listAgents', 'GET', '/api/sandboxes/:id/agent', 'agent'],
  ['startAgent', 'POST', '/api/sandboxes/:id/agent', 'agent'],
  ['killAgent', 'POST', '/api/sandboxes/:id/agent/:agentId/kill', 'agent'],
]

const route = routesOf('Not built yet', 'any')

export const notImplementedRoutes = endpoints.map(([id, method, path, what, why = 'not implemented yet']) =>
  route(method, path, {
    id,
    lenient: true,
    summary: `Not built yet: ${id.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)}`,
    description: 'Answers 501.',
    answers: {},
    errors: ['not_implemented'],
    async handle() {
      throw new ServiceError('not_implemented', `${what}: ${why}`)
    },
  }),
)
