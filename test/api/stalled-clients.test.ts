/** Clients that ask and take nothing of what they are answered. */
import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { test } from 'node:test'
import type { SessionService } from '../../src/session/index.ts'
import { useWorld } from '../support/use-world.ts'

const world = useWorld({ limits: { streamStallMs: 500 } })

test('stalled client: a client that takes nothing of its answer is dropped, and what it was answered is let go of', async () => {
  const { api, sessions } = world
  const { id } = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body
  // More than the kernel takes for a client.
  sessions.kept.get(id)!.messages[0]!.content = 'x'.repeat(32 * 1024 * 1024)
  const sent: Promise<unknown>[] = []
  const service: SessionService = sessions
  const { get } = sessions
  service.get = async (orgId, sessionId, userId, options) => {
    assert.ok(options?.sent)
    sent.push(options.sent)
    return await get.call(sessions, orgId, sessionId, userId)
  }
  const responses: ServerResponse[] = []
  const started = (value: unknown) => void responses.push((value as { response: ServerResponse }).response)
  subscribe('http.server.request.start', started)
  const clients = Array.from({ length: 3 }, () => connect(world.port, '127.0.0.1'))
  try {
    for (const client of clients) {
      client.on('error', () => {})
      client.write(`GET /v1/sessions/${id} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${api.key}\r\n\r\n`)
      client.pause()
    }
    while (sent.length < clients.length) await new Promise((resolve) => setImmediate(resolve))
    await Promise.all(sent)
    for (const response of responses) if (!response.closed) await once(response, 'close')
  } finally {
    unsubscribe('http.server.request.start', started)
    sessions.get = get
    for (const client of clients) client.destroy()
  }
})

test('stalled client: a connection serves on after an answer that was taken, however long the next one takes', async () => {
  const { api, sessions } = world
  const { id } = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body
  const { get } = sessions
  let asked = 0
  sessions.get = async (...query) => {
    // Longer than a client may stall, for the second of two requests that come together.
    if (++asked === 2) await new Promise((resolve) => setTimeout(resolve, 1000))
    return await get.apply(sessions, query)
  }
  try {
    const client = connect(world.port, '127.0.0.1')
    const request = `GET /v1/sessions/${id} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${api.key}\r\n`
    client.write(`${request}\r\n${request}Connection: close\r\n\r\n`)
    let text = ''
    for await (const chunk of client) text += String(chunk)
    assert.equal(text.split('HTTP/1.1 200 OK').length - 1, 2)
  } finally {
    sessions.get = get
  }
})
