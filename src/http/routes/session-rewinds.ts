import type { z } from 'zod'
import { sessionRewinds as wire, sessions as sessionWire } from '../../protocol/http/index.ts'
import type { RewindPreview, Rewound, SessionView } from '../../session/index.ts'
import { JsonText } from '../server/json-text.ts'
import { routesOf, wakingErrors } from '../server/route.ts'
import { sessionAnswer, sessionTexts } from '../server/session-view.ts'
import { placeOf } from '../server/session-place.ts'
import { taken } from '../server/taken.ts'
import { agentConfig } from './sessions.ts'

const route = routesOf('Sessions', 'session')

export const sessionRewindRoutes = [
  route('PATCH', '/v1/sessions/:sessionId', {
    id: 'changeSession',
    summary: 'Change limits of a running session',
    description: 'A session that is paused for its budget goes on when what it has used is within the new one.',
    body: wire.changeSession,
    answers: { 200: { description: 'The session', body: sessionWire.session } },
    errors: ['forbidden', 'conflict'],
    async handle({ orgId, params, body, reply, deps }) {
      const change = agentConfig(body.agent_config)
      await deps.sessions.reconfiguration.change(orgId, params.sessionId, body.user_id, change)
      const sent = taken(reply.raw)
      return sessionAnswer(200, await deps.sessions.get(orgId, params.sessionId, undefined, { sent }))
    },
  }),
  route('POST', '/v1/sessions/:sessionId/rewind', {
    id: 'rewindSession',
    summary: 'Take a session back, or forward, to a checkpoint of it',
    description:
      'In place: ids and addresses stay. A checkpoint of the present comes first, so a rewind to `undoCheckpointId` undoes it. A turn that ' +
      'runs is interrupted, messages that wait are cancelled. With `?preview=true` it answers what would change, and changes nothing.',
    body: wire.rewind,
    query: wire.rewindQuery,
    creates: true,
    answers: { 200: { description: 'The session, there by now; or what would change', body: wire.rewindAnswer } },
    errors: [...wakingErrors, 'forbidden', 'not_found', 'quota_exceeded'],
    async handle({ orgId, params, query, body, creation, reply, deps }) {
      const { sessions } = deps
      const request = { userId: body.user_id, to: placeOf(body.to), what: body.what }
      if (query.preview === 'true')
        return { statusCode: 200, body: previewBody(await sessions.rewinds.preview(orgId, params.sessionId, request)) }
      const told = await sessions.rewinds.rewind(orgId, params.sessionId, request, { creation })
      const view = await sessions.get(orgId, params.sessionId, undefined, { sent: taken(reply.raw) })
      return { statusCode: 200, body: rewoundText(view, told) }
    },
  }),
  route('POST', '/v1/sessions/:sessionId/adopt', {
    id: 'adoptSession',
    summary: 'Take a session to where a fork of it stands',
    description:
      'The turns of the fork become turns of the session, its files and processes those of the session; the other forks are archived. ' +
      'A rewind to `undoCheckpointId` undoes it.',
    body: wire.adopt,
    creates: true,
    answers: { 200: { description: 'The session, there by now', body: wire.rewound } },
    errors: [...wakingErrors, 'forbidden', 'not_found', 'quota_exceeded'],
    async handle({ orgId, params, body, creation, reply, deps }) {
      const request = { userId: body.user_id, from: body.from }
      const told = await deps.sessions.rewinds.adopt(orgId, params.sessionId, request, { creation })
      const view = await deps.sessions.get(orgId, params.sessionId, undefined, { sent: taken(reply.raw) })
      return { statusCode: 200, body: rewoundText(view, told) }
    },
  }),
]

function rewoundText(view: SessionView, { restoredPrompt, undoCheckpointId, processes }: Rewound): JsonText {
  return new JsonText(function* () {
    yield '{"session":'
    yield* sessionTexts(view)
    yield `,${JSON.stringify({ restoredPrompt: restoredPrompt ?? null, undoCheckpointId, processes }).slice(1)}`
  })
}

function previewBody({
  files,
  processesEnded,
  restoredPrompt,
  ...rest
}: RewindPreview): z.output<typeof wire.rewindPreview> {
  return {
    ...rest,
    files: files ?? null,
    processesEnded: processesEnded ?? null,
    restoredPrompt: restoredPrompt ?? null,
  }
}
