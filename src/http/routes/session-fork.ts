import { sessions as wire } from '../../protocol/http/index.ts'
import { closed } from '../server/once-closed.ts'
import { route, wakingErrors } from '../server/route.ts'
import { sessionAnswer } from './sessions.ts'

export const sessionForkRoutes = [
  route({
    method: 'POST',
    path: '/v1/sessions/:sessionId/fork',
    tag: 'Sessions',
    summary: 'Make a session that goes on from where this one stands',
    description:
      'It has the messages, the conversation and the files of this moment, a sandbox and an event stream of its own, and a ' +
      'budget of its own. Only an idle session can be forked; 409 while it works.',
    auth: 'key',
    body: wire.fork,
    creates: true,
    answers: { 201: { description: 'The new session', body: wire.session } },
    errors: [...wakingErrors, 'forbidden'],
    async handle({ orgId, params, body, creation, reply, deps }) {
      const options = { creation, sent: closed(reply.raw) }
      return sessionAnswer(201, await deps.sessions.fork(orgId, params.sessionId, body.user_id, options))
    },
  }),
]
