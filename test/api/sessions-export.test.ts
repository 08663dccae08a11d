/** All of a session as JSON lines. */
import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { after, before, test } from 'node:test'
import { makeWorld } from '../support/world.ts'
import type { World } from '../support/world.ts'

let world: World

before(async () => {
  world = await makeWorld()
})

after(() => world.close())

async function create(): Promise<string> {
  return (await world.api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })).body.id
}

test('an export has the session, its messages, its events and its stream, one JSON object a line', async () => {
  const { api, sessions } = world
  const id = await create()
  sessions.emit(id, { type: 'ready', harness: 'pi' })
  sessions.emit(id, { type: 'error', message: 'two\nlines', code: 'x', fatal: false })
  const { status, headers, text } = await api.get(`/v1/sessions/${id}/export?user_id=ann`)
  assert.deepEqual([status, headers['content-type']], [200, 'application/x-ndjson; charset=utf-8'])
  assert.ok(text.endsWith('}\n'))
  const lines = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, Record<string, unknown>>)
  const whole = (await api.get(`/v1/sessions/${id}`)).body
  const { messages, events, ...session } = whole
  assert.deepEqual(lines.slice(0, 3), [
    { type: 'session', session },
    { type: 'message', message: messages[0] },
    { type: 'event', event: events[0] },
  ])
  assert.deepEqual(
    lines.slice(3).map((line) => [line['type'], line['stream']?.['sequence'], line['stream']?.['data']]),
    [
      ['stream', 1, { type: 'ready', harness: 'pi' }],
      ['stream', 2, { type: 'error', message: 'two\nlines', code: 'x', fatal: false }],
    ],
  )
})

test('an export is its owner’s', async () => {
  const id = await create()
  for (const answer of [
    await world.api.get(`/v1/sessions/${id}/export?user_id=bob`),
    await world.stranger.get(`/v1/sessions/${id}/export`),
    await world.api.get('/v1/sessions/session_unknown00000/export'),
  ]) {
    assert.deepEqual([answer.status, answer.body.error.type], [404, 'not_found'])
  }
  assert.equal((await world.api.get(`/v1/sessions/${id}/export`, { key: null })).status, 401)
})

test('a client that does not read is sent no more than its socket holds', async () => {
  const { sessions, api } = world
  const id = await create()
  const text = 'x'.repeat(1_000_000)
  for (let index = 0; index < 60; index++) sessions.emit(id, { type: 'assistant', text })
  const socket = connect(world.port, '127.0.0.1')
  socket.pause()
  socket.write(`GET /v1/sessions/${id}/export HTTP/1.1\r\nHost: x\r\nX-API-Key: ${api.key}\r\n\r\n`)
  while (sessions.yielded(id) === 0) await new Promise((resolve) => setTimeout(resolve, 5))
  await new Promise((resolve) => setTimeout(resolve, 300))
  assert.ok(sessions.yielded(id) < 40, `${sessions.yielded(id)} of 60 were taken`)
  socket.destroy()
  const { text: all } = await api.get(`/v1/sessions/${id}/export`)
  assert.equal(all.split('\n').length, 1 + 1 + 1 + 60 + 1)
})
