/** How a session is answered, by its routes and by a replay of an answer that was too large to be kept. */
import type { z } from 'zod'
import { defined } from '../../lib/defined.ts'
import type { sessions as wire } from '../../protocol/http/index.ts'
import type { Message, SessionEvent, SessionView } from '../../session/index.ts'
import { jsonElements, jsonObject, JsonText } from './json-text.ts'
import type { Answer } from './route.ts'
import { milliseconds } from './time.ts'

export function sessionAnswer(statusCode: number, view: SessionView): Answer {
  return { statusCode, body: sessionText(view), sessionId: view.session.id }
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
  const { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens } = session
  const tokens = { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens }
  return {
    ...{ id, status, activity, sandboxId, previewUrl },
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

export function messageBody({ id, role, content, state, createdAt }: Message): z.output<typeof wire.message> {
  return { id, role, content, ...(state === undefined ? {} : { state }), createdAt: milliseconds(createdAt) }
}

export function eventBody({ id, type, level, message, createdAt }: SessionEvent): z.output<typeof wire.event> {
  return { id, type, level, message, createdAt: milliseconds(createdAt) }
}
