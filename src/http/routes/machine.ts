import { common, sandboxes as wire } from '../../protocol/http/index.ts'
import { emptyObject, route } from '../server/route.ts'
import type { Route } from '../server/route.ts'

const tag = 'Sandboxes'
const errors = ['not_found', 'conflict', 'sandbox_stopped', 'no_capacity', 'unavailable'] as const

/** What one would do to a machine by its buttons. */
export const machineRoutes = [
  startAgain('reboot', 'End all processes and start a sandbox again on its disk', 'reboot'),
  startAgain('power-cycle', 'The same without asking its processes', 'powerCycle'),
  route({
    method: 'POST',
    path: '/api/sandboxes/:id/scale',
    tag,
    summary: 'Change memory, and CPU in step, while it runs',
    description: 'One CPU for each 4096 MB, and never fewer than it has.',
    auth: 'key',
    body: wire.scaleBody,
    answers: { 200: { description: 'What it has now', body: wire.scaled } },
    errors,
    async handle({ orgId, params, body, deps }) {
      const { id, memoryMb, cpuCount } = await deps.sandboxes.scale(orgId, params.id, body.memoryMB)
      return { statusCode: 200, body: { sandboxID: id, memoryMB: memoryMb, cpuPercent: cpuCount * 100 } }
    },
  }),
]

function startAgain(button: string, summary: string, operation: 'reboot' | 'powerCycle'): Route {
  return route({
    method: 'POST',
    path: `/api/sandboxes/:id/${button}`,
    tag,
    summary,
    auth: 'key',
    answers: { 200: { description: 'It runs again', body: common.empty } },
    errors,
    async handle({ orgId, params, deps }) {
      await deps.sandboxes[operation](orgId, params.id)
      return emptyObject
    },
  })
}
