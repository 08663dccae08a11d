import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Atoll, Session, type SessionInfo } from './index.ts'

/** A client whose server answers each request with the next of these, and what was asked. */
function answered(...bodies: unknown[]) {
  const asked: string[] = []
  const client = new Atoll({
    url: 'http://api.test',
    fetch: async (input, init) => {
      asked.push(
        `${init?.method} ${String(input).replace('http://api.test', '')} ${(init?.body as string | undefined) ?? ''}`.trim(),
      )
      const body = bodies.shift()
      return new Response(body === undefined ? null : JSON.stringify(body), { status: body === undefined ? 204 : 200 })
    },
  })
  return { client, asked }
}

const about = { event: 2, scope: 'read', session: { title: 't' } }

test('capsule: messages and events are read page by page, by its token or its URL', async () => {
  const { client, asked } = answered(
    { ...about, messages: [{ id: 'msg_1' }], nextCursor: 'msg_1' },
    { ...about, messages: [{ id: 'msg_2' }], nextCursor: null },
    { events: [{ id: 1, data: { type: 'ready' } }], nextAfter: 1 },
    { events: [], nextAfter: null },
    { ...about, messages: [], nextCursor: null },
  )
  const capsule = client.capsule('https://api.example.com/v1/capsules/moment_x?utm_source=mail')
  const messages = await Array.fromAsync(capsule.messages())
  const events = await Array.fromAsync(client.capsule('moment_x').events())
  assert.deepEqual(
    [...messages, ...events].map(({ id }) => id),
    ['msg_1', 'msg_2', 1],
  )
  assert.deepEqual(await capsule.info(), about)
  assert.deepEqual(asked, [
    'GET /v1/capsules/moment_x',
    'GET /v1/capsules/moment_x?cursor=msg_1',
    'GET /v1/capsules/moment_x/events',
    'GET /v1/capsules/moment_x/events?after=1',
    'GET /v1/capsules/moment_x?limit=1',
  ])
})

test('capsules: a session makes, lists and revokes them as its owner', async () => {
  const { client, asked } = answered({ id: 'mom_1' }, { data: [{ id: 'mom_1' }] }, undefined, { id: 'session_2' })
  const info = { id: 'session_1', userId: 'ada', previewUrl: '', sandboxId: '' } as SessionInfo
  const { capsules } = new Session(client, info)
  await capsules.create({ scope: 'fork', eventId: 7, expiresInSeconds: 60 })
  assert.deepEqual(await capsules.list(), [{ id: 'mom_1' }])
  await capsules.revoke('mom_1')
  await client.capsule('moment_x').fork({ userId: 'bob' })
  assert.deepEqual(asked, [
    'POST /v1/sessions/session_1/capsules {"user_id":"ada","scope":"fork","event_id":7,"expires_in":60}',
    'GET /v1/sessions/session_1/capsules?user_id=ada',
    'DELETE /v1/sessions/session_1/capsules/mom_1?user_id=ada',
    'POST /v1/capsules/moment_x/fork {"user_id":"bob"}',
  ])
})
