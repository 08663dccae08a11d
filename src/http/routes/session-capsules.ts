import type { z } from 'zod'
import { sessionCapsules as wire, sessions as sessionWire } from '../../protocol/http/index.ts'
import { defined } from '../../lib/defined.ts'
import {
  type Capsule,
  type CapsuleEvents,
  capsulePath,
  type CapsuleView,
  type MadeCapsule,
} from '../../session/index.ts'
import { apiOrigin } from '../server/config.ts'
import { jsonElements, jsonObject, JsonText } from '../server/json-text.ts'
import { noContent, routesOf } from '../server/route.ts'
import { sessionAnswer } from '../server/session-view.ts'
import { taken } from '../server/taken.ts'
import { milliseconds } from '../server/time.ts'

const rowsDefault = 100
/** The link is a secret, and what it shows may be revoked. */
const readHeaders = {
  'cache-control': 'no-store',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
}

const route = routesOf('Sessions', 'session')

export const sessionCapsuleRoutes = [
  route('POST', '/v1/sessions/:sessionId/capsules', {
    id: 'createCapsule',
    summary: 'Share a moment of a session',
    description:
      'Whoever has the link reads what was said and done up to the event, without a key. With scope `fork` a key of the organisation also begins ' +
      'sessions of other people from the disk of that moment. At most 100 live of one session.',
    body: wire.createCapsule,
    creates: true,
    answers: { 201: { description: 'The capsule with its link, shown this once', body: wire.madeCapsule } },
    errors: ['forbidden', 'conflict'],
    async handle({ orgId, params, body, creation, request, reply, deps }) {
      void reply.headers(readHeaders)
      const input = { userId: body.user_id, scope: body.scope, event: body.event_id, expiresInSeconds: body.expires_in }
      const made = await deps.sessions.capsules.create(orgId, params.sessionId, input, { creation })
      return { statusCode: 201, body: madeBody(made, apiOrigin(deps.config, request)) }
    },
  }),
  route('GET', '/v1/sessions/:sessionId/capsules', {
    id: 'listCapsules',
    summary: 'List the capsules of a session that live',
    query: sessionWire.ownerQuery,
    answers: { 200: { description: 'Without their links', body: wire.capsuleList } },
    answer: async ({ orgId, params, query, deps }) => ({
      data: (await deps.sessions.capsules.list(orgId, params.sessionId, query.user_id)).map(capsuleBody),
    }),
  }),
  route('DELETE', '/v1/sessions/:sessionId/capsules/:capsuleId', {
    id: 'revokeCapsule',
    summary: 'Revoke a capsule',
    description: 'Its link shows nothing any more. Repeating it is harmless. Sessions that were begun from it go on.',
    query: sessionWire.ownerQuery,
    answers: { 204: { description: 'It is revoked' } },
    async handle({ orgId, params, query, deps }) {
      await deps.sessions.capsules.revoke(orgId, params.sessionId, params.capsuleId, query.user_id)
      return noContent
    },
  }),
  route('GET', '/v1/capsules/:token', {
    id: 'readCapsule',
    auth: 'none',
    lenient: true,
    summary: 'Read the conversation of a capsule',
    description:
      'Needs no key. 404 says that there is nothing under the link, or not any more. The page may hold fewer messages than `limit`, even none, ' +
      'and still have a `nextCursor`.',
    query: wire.readCapsuleQuery,
    answers: { 200: { description: 'One page', body: wire.capsuleView } },
    errors: ['not_found'],
    async handle({ params, query, reply, deps }) {
      void reply.headers(readHeaders)
      const page = { after: query.cursor, limit: query.limit ?? rowsDefault }
      const view = await deps.sessions.capsules.read(params.token, page, { sent: taken(reply.raw) })
      return { statusCode: 200, body: new JsonText(() => viewTexts(view)) }
    },
  }),
  route('GET', '/v1/capsules/:token/events', {
    id: 'readCapsuleEvents',
    auth: 'none',
    lenient: true,
    summary: 'Read the event stream of a capsule, page by page',
    description:
      'Needs no key. All events up to that of the capsule, also those of turns that the session had left by then. Events that hold a link are left out.',
    query: wire.capsuleEventsQuery,
    answers: { 200: { description: 'One page', body: wire.capsuleEvents } },
    errors: ['not_found'],
    async handle({ params, query, reply, deps }) {
      void reply.headers(readHeaders)
      const page = { after: query.after ?? 0, limit: query.limit ?? rowsDefault }
      const found = await deps.sessions.capsules.events(params.token, page, { sent: taken(reply.raw) })
      return { statusCode: 200, body: new JsonText(() => eventTexts(found)) }
    },
  }),
  route('POST', '/v1/capsules/:token/fork', {
    id: 'forkCapsule',
    naming: 'made',
    summary: 'Begin a session from a capsule',
    description:
      'With a key of the same organisation. The new session has the conversation and the disk of the moment, but nothing of the memory, no volumes, no secret ' +
      'store, and none of the variables that `secret_envs` names. At most 20 are begun from one capsule.',
    body: wire.forkCapsule,
    creates: true,
    answers: { 201: { description: 'The new session', body: sessionWire.session } },
    errors: ['not_found', 'forbidden', 'conflict', 'unavailable'],
    async handle(call) {
      const { orgId, params, body, creation, request, reply, deps } = call
      const input = { userId: body.user_id, name: body.name, reach: request.caller?.reach }
      const options = { creation, sent: taken(reply.raw) }
      return sessionAnswer(201, await deps.sessions.capsules.fork(orgId, params.token, input, options))
    },
  }),
]

function madeBody({ capsule, token, isExact }: MadeCapsule, origin: string): z.output<typeof wire.madeCapsule> {
  const url = `${origin}${capsulePath(token)}`
  return { ...fieldsOf(capsule), url, token, ...defined({ exact: isExact }) }
}

function capsuleBody(capsule: Capsule): z.output<typeof wire.capsule> {
  const { reason, forks } = capsule
  return { ...fieldsOf(capsule), ...defined({ reason }), forks }
}

function fieldsOf({ id, scope, event, createdAt, expiresAt }: Capsule) {
  return { id, scope, event, createdAt: milliseconds(createdAt), expiresAt: milliseconds(expiresAt) }
}

/** The messages can be megabytes. */
function* viewTexts({ capsule, session, messages, nextCursor }: CapsuleView): Generator<string> {
  const { title, framework, createdAt } = session
  const { event, scope, expiresAt } = capsule
  const about = { session: { title, framework, createdAt: milliseconds(createdAt) }, event, scope }
  yield `${JSON.stringify({ ...about, expiresAt: milliseconds(expiresAt) }).slice(0, -1)},"messages":[`
  yield* jsonElements(messages, ({ id, role, content, createdAt: written }) =>
    jsonObject({ id, role, content, createdAt: milliseconds(written) }),
  )
  yield `],"nextCursor":${JSON.stringify(nextCursor ?? null)}}`
}

function* eventTexts({ events, nextAfter }: CapsuleEvents): Generator<string> {
  yield '{"events":['
  yield* jsonElements(events, ({ id, text }) => [`{"id":${id},"data":`, text, '}'])
  yield `],"nextAfter":${JSON.stringify(nextAfter ?? null)}}`
}
