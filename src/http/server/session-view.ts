/** How a session is answered, by its routes and by a replay of an answer that was too large to be kept. */
import type { z } from 'zod'
import { defined } from '../../lib/defined.ts'
import type { sessions as wire } from '../../protocol/http/index.ts'
import type { ForkPlace, Message, SessionEvent, SessionView } from '../../session/index.ts'
import { jsonElements, jsonObject, JsonText } from './json-text.ts'
import type { Answer } from './route.ts'
import { milliseconds } from './time.ts'

export function sessionAnswer(statusCode: number, view: SessionView): Answer {
  return { statusCode, body: sessionText(view), readAgainBy: view.session.id }
}

/** With `fork`: where the session begins. */
export function* forkTexts(view: SessionView, place: ForkPlace): Generator<string> {
  const { atEvent, afterEvent, isExact: exact, checkpointId, messageId = null } = place
  yield `{"fork":${JSON.stringify({ atEvent, afterEvent, exact, checkpointId, messageId })},`
  const [head = '', ...rest] = sessionTexts(view)
  yield head.slice(1)
  yield* rest
}

/** The JSON of `sessionBody`. */
export function sessionText(view: SessionView): JsonText {
  return new JsonText(() => sessionTexts(view))
}

export function* sessionTexts(view: SessionView): Generator<string> {
  const { messages: _messages, events: _events, ...rest } = sessionBody({ ...view, messages: [], events: [] })
  yield `${JSON.stringify(rest).slice(0, -1)},"messages":[`
  yield* jsonElements(view.messages, (message) => jsonObject(messageBody(message)))
  yield '],"events":['
  yield* jsonElements(view.events, (event) => [JSON.stringify(eventBody(event))])
  yield ']}'
}

export function sessionBody(view: SessionView): z.output<typeof wire.session> {
  const { session, messages, events, previewUrl, costUsd } = view
  const { id, name, status, activity, sandboxId, userId, userEmail, userName, title, framework, artifacts } = session
  const { pausedFor: reason, archivedFor: archivedReason, forkedFrom } = session
  const { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens } = session
  const { harness, model, maxTokens, maxCostUsd, checkpoints } = session.agentConfig
  const tokens = { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens }
  return {
    ...{ id, status, activity, sandboxId, previewUrl },
    ...defined({ reason, archivedReason, forkedFrom }),
    agent: { harness, model, ...defined({ maxTokens, maxCostUsd, checkpoints }) },
    project: { title, framework, artifacts },
    messages: messages.map(messageBody),
    events: events.map(eventBody),
    userId,
    usage: { ...tokens, ...defined({ totalCostUsd: costUsd }) },
    ...defined({ name, userEmail, userName }),
    createdAt: milliseconds(session.createdAt),
    updatedAt: milliseconds(session.updatedAt),
  }
}

export function messageBody({ id, role, content, state, isLeft, createdAt }: Message): z.output<typeof wire.message> {
  const left = isLeft === true ? { left: true as const } : {}
  return { id, role, content, ...defined({ state }), ...left, createdAt: milliseconds(createdAt) }
}

export function eventBody({ id, type, level, message, createdAt }: SessionEvent): z.output<typeof wire.event> {
  return { id, type, level, message, createdAt: milliseconds(createdAt) }
}
