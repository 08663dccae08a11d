import { common, exec as wire } from '../../protocol/http/index.ts'
import { attach, carryPty, wantsUpgrade } from '../server/exec-socket.ts'
import { emptyObject, noContent, route, wakingErrors } from '../server/route.ts'

const tag = 'Terminals'

export const ptyRoutes = [
  route({
    method: 'POST',
    path: '/api/sandboxes/:id/pty',
    tag,
    summary: 'Start a terminal',
    auth: 'key',
    body: wire.startPty,
    creates: true,
    answers: { 201: { description: 'It runs', body: wire.ptySession } },
    errors: wakingErrors,
    async handle({ orgId, params, body, creation, deps }) {
      const input = {
        cols: body.cols,
        rows: body.rows,
        ...(body.shell === undefined ? {} : { shell: body.shell }),
        ...(body.cwd === undefined ? {} : { cwd: body.cwd }),
        ...(body.envs === undefined ? {} : { envs: body.envs }),
        ...(body.user === undefined ? {} : { user: body.user }),
      }
      const info = await deps.sandboxes.exec.startPty(orgId, params.id, input, { creation })
      return { statusCode: 201, body: { sessionID: info.id, sandboxID: params.id } }
    },
  }),
  route({
    method: 'GET',
    path: '/api/sandboxes/:id/pty/:ptyId',
    tag,
    summary: 'Attach to a terminal (WebSocket)',
    description: 'Raw bytes both ways. Kept output comes first, from `offset` on.',
    auth: 'key_or_query',
    query: wire.attachQuery,
    answers: { 101: { description: 'Attached' } },
    errors: wakingErrors,
    handle: wantsUpgrade,
    upgrade: async (call) => attach(call, call.params.ptyId, carryPty, 'pty'),
  }),
  route({
    method: 'POST',
    path: '/api/sandboxes/:id/pty/:ptyId/resize',
    tag,
    summary: 'Resize a terminal',
    auth: 'key',
    body: wire.resizePty,
    answers: { 200: { description: 'Resized', body: common.empty } },
    errors: wakingErrors,
    async handle({ orgId, params, body, deps }) {
      await deps.sandboxes.exec.resizePty(orgId, params.id, params.ptyId, body.cols, body.rows)
      return emptyObject
    },
  }),
  route({
    method: 'DELETE',
    path: '/api/sandboxes/:id/pty/:ptyId',
    tag,
    summary: 'End a terminal',
    auth: 'key',
    answers: { 204: { description: 'It has ended' } },
    errors: wakingErrors,
    async handle({ orgId, params, deps }) {
      await deps.sandboxes.exec.deletePty(orgId, params.id, params.ptyId)
      return noContent
    },
  }),
]
