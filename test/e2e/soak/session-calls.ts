import { setTimeout as sleep } from 'node:timers/promises'
import type { AtollServer } from '../server.ts'

const retryMs = 100
/** Longer than any restart of the server takes. */
const retriesMax = 1200

export interface Answer {
  status: number
  body: unknown
}

/** One call; undefined when the connection failed or broke, so that nobody knows whether it was heard. */
export async function call(
  server: AtollServer,
  method: string,
  path: string,
  body?: unknown,
): Promise<Answer | undefined> {
  try {
    const response = await server.fetch(path, {
      method,
      headers: { 'Content-Type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    const isJson = response.ok && response.headers.get('content-type')?.startsWith('application/json')
    return { status: response.status, body: isJson ? JSON.parse(text) : text }
  } catch {
    return undefined
  }
}

/** For calls that can be repeated: again and again until one of these statuses is the answer. */
export async function callUntil(
  server: AtollServer,
  statuses: readonly number[],
  method: string,
  path: string,
  body?: unknown,
): Promise<Answer> {
  let last: Answer | undefined
  for (let retry = 0; retry < retriesMax; retry += 1) {
    const answer = await call(server, method, path, body)
    if (answer && statuses.includes(answer.status)) return answer
    // The server is away or has just come back; every other answer is one that no user should get.
    if (answer && answer.status !== 503) throw new Error(`${method} ${path}: ${answer.status} ${String(answer.body)}`)
    last = answer ?? last
    await sleep(retryMs)
  }
  throw new Error(`${method} ${path} does not answer: ${JSON.stringify(last)}`)
}
