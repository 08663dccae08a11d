import { common, sandboxes as wire } from '../../protocol/http/index.ts'
import { emptyObject, route } from '../server/route.ts'

export const timeoutRoutes = [
  route({
    method: 'POST',
    path: '/api/sandboxes/:id/timeout',
    tag: 'Sandboxes',
    summary: 'Set the idle timeout of a sandbox',
    description: 'Whole seconds; replaces the current value and restarts its clock. 0 means never.',
    auth: 'key',
    body: wire.setTimeoutBody,
    answers: { 200: { description: 'Set', body: common.empty } },
    errors: ['not_found', 'conflict', 'sandbox_stopped'],
    async handle({ orgId, params, body, deps }) {
      await deps.sandboxes.setTimeout(orgId, params.id, body.timeout)
      return emptyObject
    },
  }),
]
