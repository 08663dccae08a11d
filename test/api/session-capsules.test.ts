import assert from 'node:assert/strict'
import { test } from 'node:test'
import { capsuleTokenPrefix } from '../../src/lib/secret.ts'
import type { ApiClient } from '../support/api-client.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

async function create(): Promise<string> {
  const { status, body, text } = await world.api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })
  assert.equal(status, 201, text)
  return body.id
}

async function share(sessionId: string, body: object = {}) {
  const answer = await world.api.post(`/v1/sessions/${sessionId}/capsules`, { user_id: 'ann', scope: 'read', ...body })
  assert.equal(answer.status, 201, answer.text)
  return answer
}

/** One without a key, or with what is no key. */
async function visit(path: string, headers: Record<string, string> = {}) {
  const response = await fetch(`${world.origin}${path}`, { headers })
  return { status: response.status, headers: response.headers, text: await response.text() }
}

test('capsule: the answer shows its link once, and the list does not', async () => {
  const id = await create()
  const { body, headers } = await share(id, { event_id: 7, expires_in: 60 })
  assert.match(body.id, /^mom_/)
  assert.match(body.token, new RegExp(`^${capsuleTokenPrefix}[A-Za-z0-9_-]{43}$`))
  assert.equal(body.url, `${world.origin}/v1/capsules/${body.token}`)
  assert.deepEqual([body.scope, body.event, body.exact], ['read', 7, undefined])
  assert.equal(headers['cache-control'], 'no-store')
  assert.deepEqual(world.sessions.asked['capsule'], { userId: 'ann', scope: 'read', event: 7, expiresInSeconds: 60 })
  assert.equal((await share(id, { scope: 'fork' })).body.exact, false)
  const listed = await world.api.get(`/v1/sessions/${id}/capsules?user_id=ann`)
  assert.equal(listed.body.data.length, 2)
  assert.doesNotMatch(listed.text, new RegExp(capsuleTokenPrefix))
})

test('capsule: a repeat of its creation answers the same link', async () => {
  const id = await create()
  const headers = { 'idempotency-key': 'share-once' }
  const body = { user_id: 'ann', scope: 'read' }
  const first = await world.api.post(`/v1/sessions/${id}/capsules`, body, { headers })
  const again = await world.api.post(`/v1/sessions/${id}/capsules`, body, { headers })
  assert.deepEqual([again.status, again.body], [201, first.body])
})

test('capsule: bad input names the field', async () => {
  const id = await create()
  const path = `/v1/sessions/${id}/capsules`
  const { token } = (await share(id, { scope: 'fork' })).body
  const cases: [path: string, body: object, status: number, message: RegExp][] = [
    [path, { scope: 'read' }, 400, /^user_id: /],
    [path, { user_id: '', scope: 'read' }, 400, /^user_id: /],
    [path, { user_id: 'ann' }, 400, /^scope: /],
    [path, { user_id: 'ann', scope: 'steer' }, 400, /^scope: /],
    ...[0, -1, 1.5, '1', 2 ** 31].map(
      (event_id) =>
        [path, { user_id: 'ann', scope: 'read', event_id }, 400, /^event_id: /] as [string, object, number, RegExp],
    ),
    ...[0, 31_536_001, 1.5, '7d'].map(
      (expires_in) =>
        [path, { user_id: 'ann', scope: 'read', expires_in }, 400, /^expires_in: /] as [string, object, number, RegExp],
    ),
    [path, { user_id: 'ann', scope: 'read', token: 'mine' }, 400, /token/],
    [path, { user_id: 'bob', scope: 'read' }, 403, /owner/],
    ['/v1/sessions/session_none/capsules', { user_id: 'ann', scope: 'read' }, 404, /session/],
    [`/v1/capsules/${token}/fork`, {}, 400, /^user_id: /],
    [`/v1/capsules/${token}/fork`, { user_id: 'bob', name: 'No Name' }, 400, /^name: /],
  ]
  for (const [to, body, status, message] of cases) {
    const answer = await world.api.post(to, body)
    assert.equal(answer.status, status, `${JSON.stringify(body)}: ${answer.text}`)
    assert.match(answer.body.error.message, message)
  }
  for (const query of ['limit=0', 'limit=501', 'cursor=x', "cursor=msg_'"])
    assert.equal((await visit(`/v1/capsules/${token}?${query}`)).status, 400, query)
  for (const query of ['limit=0', 'after=-1', 'after=x', 'after=1.5'])
    assert.equal((await visit(`/v1/capsules/${token}/events?${query}`)).status, 400, query)
})

test('capsule: its link is read without a key, as JSON that nobody keeps', async () => {
  const id = await create()
  for (const text of ['<script>alert(1)</script>', 'two']) world.sessions.emit(id, { type: 'assistant', text })
  const { token } = (await share(id)).body
  const read = await visit(`/v1/capsules/${token}?utm_source=mail`)
  assert.equal(read.status, 200, read.text)
  const { session, messages, nextCursor, ...rest } = JSON.parse(read.text)
  assert.deepEqual(Object.keys(session), ['title', 'framework', 'createdAt'])
  assert.deepEqual(Object.keys(messages[0]), ['id', 'role', 'content', 'createdAt'])
  assert.deepEqual([rest.scope, rest.event, nextCursor], ['read', 1, null])
  const events = await visit(`/v1/capsules/${token}/events`)
  assert.deepEqual(JSON.parse(events.text), {
    events: [{ id: 1, data: { type: 'assistant', text: '<script>alert(1)</script>' } }],
    nextAfter: null,
  })
  for (const { headers } of [read, events]) {
    assert.match(headers.get('content-type') ?? '', /^application\/json/)
    assert.equal(headers.get('x-content-type-options'), 'nosniff')
    assert.equal(headers.get('cache-control'), 'no-store')
    assert.equal(headers.get('referrer-policy'), 'no-referrer')
    assert.equal(headers.get('access-control-allow-origin'), '*')
  }
})

test('capsule: what is no token, or is one no more, is 404 alike', async () => {
  const id = await create()
  const { token, id: capsuleId } = (await share(id)).body
  assert.equal((await visit(`/v1/capsules/${token}`)).status, 200)
  for (let times = 0; times < 2; times += 1)
    assert.equal((await world.api.delete(`/v1/sessions/${id}/capsules/${capsuleId}?user_id=ann`)).status, 204)
  const others = [
    token,
    `${token}x`,
    token.slice(1),
    'x',
    id,
    capsuleId,
    '..%2f..%2fetc%2fpasswd',
    '%00',
    'x'.repeat(9000),
  ]
  for (const other of others) {
    const { status, text } = await visit(`/v1/capsules/${other}`)
    assert.equal(status, 404, other)
    assert.deepEqual(JSON.parse(text).error.code, 'not_found')
    assert.ok(!text.includes(token))
  }
})

test('capsule: another organisation, another user and a token of a session make, list and revoke none', async () => {
  const id = await create()
  const { body } = await share(id, { scope: 'fork' })
  const path = `/v1/sessions/${id}/capsules`
  const { stranger, api } = world
  assert.equal((await stranger.post(path, { user_id: 'ann', scope: 'read' })).status, 404)
  assert.equal((await stranger.get(path)).status, 404)
  assert.equal((await stranger.delete(`${path}/${body.id}`)).status, 404)
  assert.equal((await stranger.post(`/v1/capsules/${body.token}/fork`, { user_id: 'ann' })).status, 404)
  assert.equal((await api.get(`${path}?user_id=bob`)).status, 404)
  assert.equal((await api.delete(`${path}/${body.id}?user_id=bob`)).status, 404)
  const { token } = (await api.post(`/v1/sessions/${id}/tokens`, { user_id: 'ann', scope: 'steer' })).body
  for (const [method, to] of [
    ['POST', path],
    ['GET', path],
    ['DELETE', `${path}/${body.id}`],
    ['POST', `/v1/capsules/${body.token}/fork`],
  ] as const) {
    const sent = method === 'POST' ? { body: '{"user_id":"ann","scope":"read"}' } : {}
    const headers = { 'content-type': 'application/json' }
    const answer = await fetch(`${world.origin}${to}?token=${token}`, { method, headers, ...sent })
    assert.equal(answer.status, 401, `${method} ${to}: ${await answer.text()}`)
  }
  assert.equal((await visit(`/v1/capsules/${body.token}`)).status, 200)
})

test('capsule: a fork needs a key and the scope, and may be of another person', async () => {
  const id = await create()
  const { token: read } = (await share(id)).body
  const { token } = (await share(id, { scope: 'fork' })).body
  assert.equal((await world.api.post(`/v1/capsules/${read}/fork`, { user_id: 'bob' })).status, 403)
  const bare = await fetch(`${world.origin}/v1/capsules/${token}/fork`, { method: 'POST', body: '{}' })
  assert.equal(bare.status, 401)
  const made = await world.api.post(`/v1/capsules/${token}/fork`, { user_id: 'bob', name: 'second' })
  assert.deepEqual([made.status, made.body.userId, made.body.name], [201, 'bob', 'second'], made.text)
})

test('capsule: its token is in no log and in no audit, however it is written', async () => {
  const id = await create()
  const { token } = (await share(id, { scope: 'fork' })).body
  const secret = token.slice(capsuleTokenPrefix.length)
  world.logs.length = 0
  const escaped = token.replace('m', '%6d')
  const paths = [
    token,
    escaped,
    `${token}/`,
    `${token}/events`,
    `${token}/none`,
    `${token}/%zz`,
    `${token}%zz`,
    `%zz/${token}`,
  ]
  for (const path of paths) await visit(`/v1/capsules/${path}`)
  for (const path of [`/v1/%63apsules/${token}`, `/v1/capsules%2f${secret}`, `/v1/capsules//${token}`])
    await visit(path)
  await fetch(`${world.origin}/v1/capsules/${token}`, { method: 'HEAD' })
  await fetch(`${world.origin}/v1/capsules/${token}`, { method: 'PUT' })
  await world.api.post(`/v1/capsules/${token}/fork`, { user_id: 'bob' })
  await world.api.post(`/v1/capsules/${escaped}/fork`, { user_id: 'bob' })
  const told = world.logs.map((line) => JSON.stringify(line))
  assert.ok(told.length >= paths.length)
  for (const line of told) assert.ok(!line.includes(secret), line)
  assert.ok(told.some((line) => line.includes('/v1/capsules/:token')))
  const audit = await entriesOf(world.api)
  assert.ok(audit.includes('forkCapsule'))
  assert.ok(!audit.includes(secret), audit)
})

async function entriesOf(api: ApiClient): Promise<string> {
  return (await api.get('/api/audit?limit=100')).text
}
