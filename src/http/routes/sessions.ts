import type { z } from 'zod'
import { sessions as wire } from '../../protocol/http/index.ts'
import type { CreateAgentConfig, SessionView, Variant as SessionVariant } from '../../session/index.ts'
import { jsonElements, JsonText } from '../server/json-text.ts'
import { goneSignal } from '../server/build-stream.ts'
import { taken } from '../server/taken.ts'
import { type Call, routesOf, wakingErrors } from '../server/route.ts'
import { sourceOf } from './sandboxes.ts'
import { forkAnswer, forksAnswer } from '../server/fork-answer.ts'
import { placeOf } from '../server/session-place.ts'
import { sessionAnswer, sessionTexts } from '../server/session-view.ts'
import { milliseconds } from '../server/time.ts'
import { defined } from '../../lib/defined.ts'

const route = routesOf('Sessions', 'session')

type Variant = NonNullable<z.output<typeof wire.fork>['variants']>[number]

export const sessionRoutes = [
  route('POST', '/v1/sessions', {
    id: 'createSession',
    naming: 'made',
    summary: 'Create a session: an agent starts on the prompt in a sandbox of its own',
    description:
      'Answers before the sandbox has booted; follow the event stream. With `image` it waits for the build of an image that is not there. Of ' +
      '`checkpoint_id`, `snapshot` and `image` the first that is given counts.',
    body: wire.createSession,
    bodyLimit: 'sessionBodyBytesMax',
    creates: true,
    answers: { 201: { description: 'The session', body: wire.session } },
    errors: ['not_found', 'conflict', 'quota_exceeded', 'build_failed', 'no_capacity', 'unavailable'],
    async handle(call) {
      const { orgId, body, creation, reply, deps } = call
      const input = {
        prompt: body.prompt,
        userId: body.user_id,
        ...defined({ name: body.name }),
        // Clients send all fields of a form: an empty one is absent.
        ...(body.user_email ? { userEmail: body.user_email } : {}),
        ...(body.user_name ? { userName: body.user_name } : {}),
        ...defined({ checkpointId: body.checkpoint_id ?? (await checkpointOfImage(call)), volumes: body.volumes }),
        ...defined({ secretStore: body.secret_store, egress: body.egress }),
        ...(body.agent_config === undefined ? {} : { agentConfig: agentConfig(body.agent_config) }),
      }
      const options = { creation, sent: taken(reply.raw) }
      return sessionAnswer(201, await deps.sessions.create(orgId, input, options))
    },
  }),
  route('GET', '/v1/sessions', {
    id: 'listSessions',
    summary: 'List and search sessions, newest first',
    description: 'A page of a search may hold less than `limit`, even nothing, and still have a `nextCursor`.',
    query: wire.listSessionsQuery,
    answers: { 200: { description: 'One page', body: wire.sessionList } },
    async handle({ orgId, query, request, reply, deps }) {
      const { user_id: userId, search, limit, cursor } = query
      const wanted = defined({ userId, search, limit, cursor, reach: request.caller?.reach })
      const { items, nextCursor } = await deps.sessions.list(orgId, wanted, { sent: taken(reply.raw) })
      return { statusCode: 200, body: new JsonText(() => listTexts(items, nextCursor)) }
    },
  }),
  route('GET', '/v1/sessions/:sessionId', {
    id: 'getSession',
    summary: 'Read a session with its messages and events',
    token: 'read',
    query: wire.getSessionQuery,
    answers: { 200: { description: 'The session', body: wire.session } },
    async handle({ orgId, params, query, reply, deps }) {
      const options = { sent: taken(reply.raw), ...defined({ branch: query.branch }) }
      return sessionAnswer(200, await deps.sessions.get(orgId, params.sessionId, query.user_id, options))
    },
  }),
  route('DELETE', '/v1/sessions/:sessionId', {
    id: 'deleteSession',
    summary: 'End a session and kill its sandbox',
    description: 'Repeating it is harmless.',
    query: wire.ownerQuery,
    answers: { 200: { description: 'It has ended', body: wire.endedSession } },
    async handle({ orgId, params, query, deps }) {
      await deps.sessions.delete(orgId, params.sessionId, query.user_id)
      return { statusCode: 200, body: { id: params.sessionId, status: 'ended' } }
    },
  }),
  route('POST', '/v1/sessions/:sessionId/interrupt', {
    id: 'interruptSession',
    summary: 'End the current turn',
    description: 'It ends with a `result` of subtype `interrupted`. While the agent is idle nothing happens.',
    token: 'steer',
    body: wire.interrupt,
    answers: { 200: { description: 'The session', body: wire.session } },
    errors: ['forbidden', 'conflict'],
    async handle({ orgId, params, body, reply, deps }) {
      await deps.sessions.interrupt(orgId, params.sessionId, body.user_id)
      const sent = taken(reply.raw)
      return sessionAnswer(200, await deps.sessions.get(orgId, params.sessionId, undefined, { sent }))
    },
  }),
  route('POST', '/v1/sessions/:sessionId/messages', {
    id: 'sendMessage',
    summary: 'Send a message to the agent',
    description: 'Answers at once. Messages to a working agent are queued in order; none is lost.',
    token: 'steer',
    body: wire.sendMessage,
    creates: true,
    answers: { 200: { description: 'The session with the message appended', body: wire.session } },
    errors: ['forbidden', 'conflict'],
    async handle({ orgId, params, body, creation, reply, deps }) {
      const input = { message: body.message, userId: body.user_id }
      const options = { creation, sent: taken(reply.raw) }
      return sessionAnswer(200, await deps.sessions.sendMessage(orgId, params.sessionId, input, options))
    },
  }),
  route('DELETE', '/v1/sessions/:sessionId/messages/:messageId', {
    id: 'cancelMessage',
    summary: 'Cancel a queued message',
    description: 'Only while its `state` is `queued`; the agent never receives it.',
    token: 'steer',
    query: wire.ownerQuery,
    answers: { 200: { description: 'The session, in which the message is `cancelled`', body: wire.session } },
    errors: ['conflict'],
    async handle({ orgId, params, query, reply, deps }) {
      const { sessionId, messageId } = params
      const sent = taken(reply.raw)
      return sessionAnswer(200, await deps.sessions.cancelMessage(orgId, sessionId, messageId, query.user_id, { sent }))
    },
  }),
  route('POST', '/v1/sessions/:sessionId/fork', {
    id: 'forkSession',
    naming: 'made',
    summary: 'Fork a session: new ones continue from its current state, or from an earlier one',
    description:
      'A fork has the messages, the conversation, the files and the processes of that moment, a sandbox and an event stream of its own, and a budget of its own. ' +
      'Without `at` only an idle session can be forked; 409 while it works. With `at` the nearest checkpoint before it counts, and `fork` tells where that is. ' +
      'With `count` or `variants` the answer is `{sessions}`, each a session or an error; the source is saved once for all.',
    body: wire.fork,
    creates: true,
    answers: { 201: { description: 'The new session, or the new ones', body: wire.forkAnswer } },
    errors: [...wakingErrors, 'forbidden', 'quota_exceeded'],
    async handle({ orgId, params, body, creation, reply, deps }) {
      const { at, count, variants, name, user_id: userId } = body
      const options = { creation, sent: taken(reply.raw) }
      const { sessions } = deps
      if (at === undefined && count === undefined && variants === undefined)
        return sessionAnswer(
          201,
          await sessions.fork(orgId, params.sessionId, userId, { ...options, ...defined({ name }) }),
        )
      const place = at && placeOf(at)
      const request = { userId, ...defined({ name, at: place, count, variants: variants?.map(variantOf) }) }
      const results = await sessions.forks.make(orgId, params.sessionId, request, options)
      return count === undefined && variants === undefined ? forkAnswer(results) : forksAnswer(results)
    },
  }),
  route('POST', '/v1/sessions/:sessionId/restart', {
    id: 'restartSession',
    summary: 'Restart a session whose sandbox was lost, in a new one',
    description:
      'The new sandbox has another id and preview URL. It starts from `checkpoint_id`, with the conversation and files of ' +
      'then, or empty. Queued messages continue in it. 409 while the sandbox exists.',
    body: wire.restart,
    creates: true,
    answers: { 200: { description: 'The session with its new sandbox', body: wire.session } },
    errors: ['forbidden', 'conflict'],
    async handle({ orgId, params, body, creation, reply, deps }) {
      const input = { userId: body.user_id, ...defined({ checkpointId: body.checkpoint_id }) }
      const options = { creation, sent: taken(reply.raw) }
      return sessionAnswer(200, await deps.sessions.restart(orgId, params.sessionId, input, options))
    },
  }),
  route('POST', '/v1/sessions/:sessionId/tokens', {
    id: 'createSessionToken',
    summary: 'Make a token with which a browser reads or steers this session',
    description:
      'It goes into the URL as `?token=`. `read` opens the session and its event stream; `steer` also messages, their ' +
      'cancellation and interrupts. When the session has ended only the rest of the stream is left.',
    body: wire.createToken,
    creates: true,
    answers: { 201: { description: 'The token, shown this once', body: wire.accessToken } },
    errors: ['forbidden', 'conflict'],
    async handle({ orgId, params, body, deps }) {
      const { token, expiresAt } = await deps.sessions.createToken(orgId, params.sessionId, {
        userId: body.user_id,
        scope: body.scope,
        ...defined({ ttlSeconds: body.ttl }),
      })
      return { statusCode: 201, body: { token, expiresAt: milliseconds(expiresAt) } }
    },
  }),
]

function variantOf({ message, agent_config: config = {}, model, system_prompt, envs }: Variant): SessionVariant {
  return {
    ...defined({ message }),
    agentConfig: agentConfig({ ...config, ...defined({ model, system_prompt, envs }) }),
  }
}

/** What the sandbox of a new session starts from, if the client names an image. */
async function checkpointOfImage(
  call: Pick<Call, 'orgId' | 'reply' | 'deps'> & { body: z.output<typeof wire.createSession> },
): Promise<string | undefined> {
  const source = sourceOf(call.body)
  if (source === undefined) return undefined
  return (await call.deps.images.obtain(call.orgId, source, { signal: goneSignal(call) })).checkpointId
}

export function agentConfig(config: z.output<typeof wire.agentConfig>): CreateAgentConfig {
  const { skills, cwd, model, harness, envs } = config
  return defined({
    systemPrompt: config.system_prompt,
    allowedTools: config.allowed_tools,
    maxTurns: config.max_turns,
    maxTokens: config.max_tokens,
    maxCostUsd: config.max_cost_usd,
    checkpoints: config.checkpoints,
    secretEnvs: config.secret_envs,
    capsuleOnError: config.capsule_on_error,
    ...{ skills, cwd, model, harness, envs },
  })
}

function* listTexts(views: readonly SessionView[], nextCursor: string | undefined): Generator<string> {
  yield '{"data":['
  yield* jsonElements(views, sessionTexts)
  yield `],"nextCursor":${JSON.stringify(nextCursor ?? null)}}`
}
