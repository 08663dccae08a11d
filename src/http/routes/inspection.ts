import { ServiceError } from '../../errors.ts'
import { inspection as wire } from '../../protocol/http/index.ts'
import { noContent, routesOf, wakingErrors } from '../server/route.ts'

const route = routesOf('Processes and ports', 'sandbox')

const pidMax = 0x7fffffff

export const inspectionRoutes = [
  route('GET', '/api/sandboxes/:id/ports', {
    id: 'listPorts',
    summary: 'List the TCP ports on which something in the sandbox listens',
    description: 'Declared as a preview or not. The private ports of a session’s agent are left out. At most 512.',
    answers: { 200: { description: 'By port and address', body: wire.listeners } },
    errors: wakingErrors,
    async handle({ orgId, params, deps }) {
      const listeners = await deps.sandboxes.inspection.listeners(orgId, params.id)
      const { protocol, port: portOfServer } = new URL(deps.config.previewUrl)
      const url = (port: number) => {
        const address = new URL(`${protocol}//${deps.sandboxes.previews.hostname(params.id, port)}`)
        address.port = portOfServer
        return address.href
      }
      return {
        statusCode: 200,
        body: listeners.map(({ port, ...listener }) => ({ port, url: url(port), ...listener })),
      }
    },
  }),
  route('GET', '/api/sandboxes/:id/processes', {
    id: 'listProcesses',
    summary: 'List all processes of a sandbox',
    description: 'Whoever started them; `exec` lists those of clients. At most 4096.',
    answers: { 200: { description: 'By number', body: wire.processes } },
    errors: wakingErrors,
    answer: async ({ orgId, params, deps }) => await deps.sandboxes.inspection.processes(orgId, params.id),
  }),
  route('DELETE', '/api/sandboxes/:id/processes/:pid', {
    id: 'signalProcess',
    scope: 'sandbox:exec',
    summary: 'Send a signal to a process',
    description: 'Process 1 and what belongs to a session’s agent are 403.',
    query: wire.signalQuery,
    answers: { 204: { description: 'Sent' } },
    errors: [...wakingErrors, 'forbidden'],
    async handle({ orgId, params, query, deps }) {
      const pid = /^\d{1,10}$/.test(params.pid) ? Number(params.pid) : 0
      if (pid < 1 || pid > pidMax) throw new ServiceError('invalid_request', 'pid: must be the number of a process')
      await deps.sandboxes.inspection.signal(orgId, params.id, pid, query.signal ?? 15)
      return noContent
    },
  }),
]
