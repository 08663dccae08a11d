import assert from 'node:assert/strict'
import { isTurnComplete, readEvents, type StreamedEvent } from './event-stream.ts'
import { askPreview } from './preview.ts'
import type { AtollServer } from './server.ts'

/** A session as the API answers it, as far as the tests look at it. */
export interface Session {
  id: string
  status: string
  activity: string
  sandboxId: string
  previewUrl: string
  project: { title: string; framework: string; artifacts: { path: string }[] }
  messages: { id: string; role: string; content: string; state?: string }[]
  events: { type: string; message: string; level: string }[]
  usage: {
    inputTokens: number
    cacheReadTokens: number
    cacheWriteTokens: number
    outputTokens: number
    totalCostUsd?: number
  }
}

export async function createSession(
  server: AtollServer,
  prompt: string,
  more: Record<string, unknown> = {},
): Promise<Session> {
  return (await server.json('POST', '/v1/sessions', { prompt, user_id: 'ada', ...more })) as Session
}

export async function getSession(server: AtollServer, id: string): Promise<Session> {
  return (await server.json('GET', `/v1/sessions/${id}`)) as Session
}

export async function endSession(server: AtollServer, id: string): Promise<void> {
  await server.json('DELETE', `/v1/sessions/${id}`)
}

export async function sendMessage(server: AtollServer, id: string, message: string): Promise<Session> {
  return (await server.json('POST', `/v1/sessions/${id}/messages`, { message, user_id: 'ada' })) as Session
}

/** Sends a message and reads what follows the events that were read, up to the end of the turn. */
export async function sendAndRead(
  server: AtollServer,
  id: string,
  message: string,
  read: readonly StreamedEvent[],
): Promise<StreamedEvent[]> {
  await sendMessage(server, id, message)
  return await readEvents(server, id, isTurnComplete, lastId(read))
}

/** The page that a session serves. */
export async function sessionPage(server: AtollServer, { previewUrl }: Session): Promise<string> {
  const { status, body } = await askPreview(server, new URL(previewUrl).host)
  assert.equal(status, 200, body)
  return body
}

export const lastId = (events: readonly StreamedEvent[]): number => events.at(-1)?.id ?? 0
export const isToolCall = ({ data }: StreamedEvent) => JSON.stringify(data).includes('"tool_use"')
export const isConfigured = ({ data }: StreamedEvent) => data.type === 'configured'

export const resultOf = (events: readonly StreamedEvent[]) => events.find(({ data }) => data.type === 'result')?.data

/** How the turns among the events ended. */
export function ends(events: readonly StreamedEvent[]): unknown[] {
  return events
    .filter(({ data }) => data.type === 'result' || data.type === 'turn_complete')
    .map(({ data }) => data['subtype'] ?? data.type)
}

export function errors(events: readonly StreamedEvent[]): unknown[] {
  return events.filter(({ data }) => data.type === 'error').map(({ data }) => [data['code'], data['fatal']])
}

/** Reads a stream from its first event to the end of so many turns and asserts that no event is missing. */
export async function wholeStream(server: AtollServer, id: string, turns: number): Promise<StreamedEvent[]> {
  const all = await readEvents(server, id, turnsComplete(turns))
  assertNumbered(all)
  return all
}

/** Ends `readEvents` with the turn of this number. */
export const turnsComplete = (count: number) => (_event: StreamedEvent, all: StreamedEvent[]) =>
  all.filter(isTurnComplete).length === count

export function assertNumbered(events: readonly StreamedEvent[]): void {
  assert.deepEqual(
    events.map(({ id }) => id),
    events.map((_event, index) => index + 1),
  )
}
