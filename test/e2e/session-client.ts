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
  events: { type: string; message: string }[]
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
