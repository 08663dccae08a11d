import { sessions as wire } from '../../protocol/http/index.ts'
import { closed } from '../server/once-closed.ts'
import { route } from '../server/route.ts'
import { sessionAnswer } from './sessions.ts'

export const sessionRestartRoutes = [
  route({
    method: 'POST',
    path: '/v1/sessions/:sessionId/restart',
    tag: 'Sessions',
    summary: 'Give a session whose sandbox was lost a new one',
    description:
      'The new sandbox has another id and preview URL. It starts from `checkpoint_id`, with the conversation and files of ' +
      'then, or bare. Messages that wait go on in it. 409 while the sandbox is there.',
    auth: 'key',
    body: wire.restart,
    creates: true,
    answers: { 200: { description: 'The session with its new sandbox', body: wire.session } },
    errors: ['not_found', 'forbidden', 'conflict'],
    async handle({ orgId, params, body, creation, reply, deps }) {
      const input = {
        userId: body.user_id,
        ...(body.checkpoint_id === undefined ? {} : { checkpointId: body.checkpoint_id }),
      }
      const options = { creation, sent: closed(reply.raw) }
      return sessionAnswer(200, await deps.sessions.restart(orgId, params.sessionId, input, options))
    },
  }),
]
