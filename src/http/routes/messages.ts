import { sessions as wire } from '../../protocol/http/index.ts'
import { closed } from '../server/once-closed.ts'
import { route } from '../server/route.ts'
import { sessionAnswer } from './sessions.ts'

export const messageRoutes = [
  route({
    method: 'POST',
    path: '/v1/sessions/:sessionId/messages',
    tag: 'Sessions',
    summary: 'Send a message to the agent',
    description: 'Answers at once. While the agent works the message waits its turn, in order; none is lost.',
    auth: 'key',
    token: 'steer',
    body: wire.sendMessage,
    creates: true,
    answers: { 200: { description: 'The session with the message appended', body: wire.session } },
    errors: ['not_found', 'forbidden', 'conflict'],
    async handle({ orgId, params, body, creation, reply, deps }) {
      const input = { message: body.message, userId: body.user_id }
      const options = { creation, sent: closed(reply.raw) }
      return sessionAnswer(200, await deps.sessions.sendMessage(orgId, params.sessionId, input, options))
    },
  }),
  route({
    method: 'DELETE',
    path: '/v1/sessions/:sessionId/messages/:messageId',
    tag: 'Sessions',
    summary: 'Take a message back that still waits',
    description: 'Only while its `state` is `queued`; the agent never hears of it.',
    auth: 'key',
    token: 'steer',
    query: wire.ownerQuery,
    answers: { 200: { description: 'The session, in which the message is `cancelled`', body: wire.session } },
    errors: ['not_found', 'conflict'],
    async handle({ orgId, params, query, reply, deps }) {
      const { sessionId, messageId } = params
      const sent = closed(reply.raw)
      return sessionAnswer(200, await deps.sessions.cancelMessage(orgId, sessionId, messageId, query.user_id, { sent }))
    },
  }),
]
