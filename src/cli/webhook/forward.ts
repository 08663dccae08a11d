import { createHmac, hash } from 'node:crypto'
import type { EventInfo } from '../../../sdk/src/index.ts'

const timeoutMs = 10_000

/** Posts an event as a delivery of the server is. Returns the status of the answer, or why there is none. */
export async function forwarded(event: EventInfo, url: string, secret: string): Promise<string> {
  const { id, ts, orgId, type, sandboxId, sessionId, subject, actor, cause, data } = event
  const about = { ...(sandboxId === undefined ? {} : { sandboxId }), ...(sessionId === undefined ? {} : { sessionId }) }
  const body = JSON.stringify({
    type,
    ...about,
    eventId: id,
    event: { id, ts, orgId, ...about, type, subject, actor, cause, data },
  })
  const messageId = `msg_${hash('sha256', id).slice(0, 24)}`
  const timestamp = String(Math.floor(Date.now() / 1000))
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64')
  const signature = `v1,${createHmac('sha256', key).update(`${messageId}.${timestamp}.${body}`).digest('base64')}`
  const signed = { id: messageId, timestamp, signature }
  const headers = Object.entries(signed).flatMap(([name, value]) => [
    [`webhook-${name}`, value] as const,
    [`svix-${name}`, value] as const,
  ])
  try {
    const response = await fetch(url, {
      ...{ method: 'POST', body, redirect: 'manual', signal: AbortSignal.timeout(timeoutMs) },
      headers: { ...Object.fromEntries(headers), 'content-type': 'application/json' },
    })
    await response.body?.cancel()
    return String(response.status)
  } catch (error) {
    const { cause: reason, message } = error as Error
    return reason instanceof Error ? reason.message : message
  }
}
