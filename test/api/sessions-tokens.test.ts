/** Tokens with which a browser reads or steers one session. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { useWorld } from '../support/world.ts'

const world = useWorld()

const keyless = { key: null }

async function create(): Promise<string> {
  return (await world.api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })).body.id
}

async function tokenOf(id: string, scope: string, more: object = {}): Promise<string> {
  const answer = await world.api.post(`/v1/sessions/${id}/tokens`, { user_id: 'ann', scope, ...more })
  assert.equal(answer.status, 201, answer.text)
  return answer.body.token
}

/** Opens the stream, which `fetch` gives as text once it has ended. */
async function stream(id: string, token: string, lastEventId = ''): Promise<Response> {
  const headers = { 'last-event-id': lastEventId }
  return await fetch(`${world.origin}/v1/sessions/${id}/events?token=${token}`, { headers })
}

test('session token: a token says when it ends, an hour from now unless told otherwise; only the owner gets one', async () => {
  const { api, stranger } = world
  const id = await create()
  const path = `/v1/sessions/${id}/tokens`
  for (const [ttl, seconds] of [
    [undefined, 3600],
    [1, 1],
    [86_400, 86_400],
  ]) {
    const { status, body } = await api.post(path, { user_id: 'ann', scope: 'read', ttl })
    assert.equal(status, 201)
    const left = (Date.parse(body.expiresAt) - Date.now()) / 1000
    assert.ok(left <= seconds! && left > seconds! - 60, `${left} of ${seconds}`)
  }
  for (const [body, field] of [
    [{ scope: 'read' }, 'user_id'],
    [{ user_id: 'ann' }, 'scope'],
    [{ user_id: 'ann', scope: 'admin' }, 'scope'],
    [{ user_id: 'ann', scope: 'read', ttl: 0 }, 'ttl'],
    [{ user_id: 'ann', scope: 'read', ttl: 86_401 }, 'ttl'],
    [{ user_id: 'ann', scope: 'read', ttl: 1.5 }, 'ttl'],
  ] as const) {
    const answer = await api.post(path, body)
    assert.deepEqual([answer.status, answer.body.error.message.split(':')[0]], [400, field])
  }
  assert.equal((await api.post(path, { user_id: 'bob', scope: 'read' })).status, 403)
  assert.equal((await stranger.post(path, { user_id: 'ann', scope: 'read' })).status, 404)
  assert.equal((await api.post(path, { user_id: 'ann', scope: 'read' }, keyless)).status, 401)
  const token = await tokenOf(id, 'steer')
  assert.equal((await api.post(`${path}?token=${token}`, { user_id: 'ann', scope: 'read' }, keyless)).status, 401)
})

test('session token: a read token opens its session and nothing else', async () => {
  const { api } = world
  const [id, other] = [await create(), await create()]
  const token = await tokenOf(id, 'read')
  const seen = await api.get(`/v1/sessions/${id}?token=${token}`, keyless)
  assert.deepEqual([seen.status, seen.body.id], [200, id])
  const foreign = await api.get(`/v1/sessions/${other}?token=${token}`, keyless)
  assert.deepEqual([foreign.status, foreign.body.error.type], [404, 'not_found'])
  const message = { message: 'x', user_id: 'ann' }
  for (const answer of [
    await api.post(`/v1/sessions/${id}/messages?token=${token}`, message, keyless),
    await api.post(`/v1/sessions/${id}/interrupt?token=${token}`, { user_id: 'ann' }, keyless),
    await api.delete(`/v1/sessions/${id}/messages/${seen.body.messages[0].id}?token=${token}`, keyless),
  ]) {
    assert.deepEqual([answer.status, answer.body.error.type], [403, 'forbidden'])
  }
  for (const answer of [
    await api.get(`/v1/sessions?token=${token}`, keyless),
    await api.delete(`/v1/sessions/${id}?token=${token}`, keyless),
    await api.get(`/api/sandboxes?token=${token}`, keyless),
    await api.get(`/v1/sessions/${id}?token=${token}x`, keyless),
    await api.get(`/v1/sessions/${other}?token=${token.replace(id, other)}`, keyless),
    await api.get(`/v1/sessions/${id}?token=${'x'.repeat(600)}`, keyless),
    await api.get(`/v1/sessions/${id}?token=`, keyless),
    await api.get(`/v1/sessions/${id}?api_key=${token}`, keyless),
    await api.get(`/v1/sessions/${id}`, { key: token }),
  ]) {
    assert.equal(answer.status, 401)
  }
})

test('session token: a steer token sends messages, takes them back and interrupts, for the owner alone', async () => {
  const { api } = world
  const id = await create()
  const token = await tokenOf(id, 'steer')
  assert.equal((await api.get(`/v1/sessions/${id}?token=${token}`, keyless)).status, 200)
  const path = `/v1/sessions/${id}/messages`
  const options = { ...keyless, headers: { 'idempotency-key': `steer-${id}` } }
  const sent = await api.post(`${path}?token=${token}`, { message: 'and red', user_id: 'ann' }, options)
  assert.equal(sent.status, 200)
  const again = await api.post(`${path}?token=${token}`, { message: 'and red', user_id: 'ann' }, options)
  assert.equal(again.headers['idempotent-replayed'], 'true')
  const messageId = sent.body.messages.at(-1).id
  const cancelled = await api.delete(`${path}/${messageId}?token=${token}`, keyless)
  assert.equal(cancelled.body.messages.at(-1).state, 'cancelled')
  const interrupt = `/v1/sessions/${id}/interrupt?token=${token}`
  assert.equal((await api.post(interrupt, { user_id: 'ann' }, keyless)).status, 200)
  assert.equal((await api.post(interrupt, { user_id: 'bob' }, keyless)).status, 403)
})

test('session token: an open stream ends with its token, and the next connection is refused', async () => {
  const { sessions } = world
  const id = await create()
  sessions.emit(id, { type: 'ready' })
  // On a busy machine a token may end before it is used.
  let token: string
  for (let ttl = 1, isTold = false; !isTold; ttl *= 2) {
    assert.ok(ttl < 200, 'every token had ended before it was used')
    token = await tokenOf(id, 'read', { ttl })
    const first = await stream(id, token)
    isTold = first.status === 200 && /id: 1\n/.test(await first.text())
  }
  assert.equal((await stream(id, token!, '1')).status, 401)
  assert.equal(sessions.reading, 0)
})

test('session token: reconnects go on with the same token; after the end of the session it reads the rest and no more', async () => {
  const { api, sessions } = world
  const id = await create()
  const token = await tokenOf(id, 'steer')
  sessions.emit(id, { type: 'ready' })
  sessions.emit(id, { type: 'configured' })
  for (const last of ['', '1']) {
    const response = await stream(id, token, last)
    assert.equal(response.status, 200)
    await response.body?.cancel()
  }
  await api.delete(`/v1/sessions/${id}`)
  assert.match(await (await stream(id, token, '1')).text(), /id: 2\n/)
  assert.equal((await stream(id, token, '2')).status, 204)
  for (const answer of [
    await api.get(`/v1/sessions/${id}?token=${token}`, keyless),
    await api.post(`/v1/sessions/${id}/messages?token=${token}`, { message: 'x', user_id: 'ann' }, keyless),
  ]) {
    assert.deepEqual([answer.status, answer.body.error.type], [401, 'unauthorized'])
  }
})

test('session token: no token reaches a log', async () => {
  const id = await create()
  const token = await tokenOf(id, 'steer')
  await world.api.get(`/v1/sessions/${id}?token=${token}`, keyless)
  await world.api.post(`/v1/sessions/${id}/interrupt?token=${token}`, {}, keyless)
  await world.api.raw('GET', `/nowhere?token=${token}`, keyless)
  assert.ok(world.logs.length > 0)
  assert.ok(!JSON.stringify(world.logs).includes(token.split('.').at(-1)!))
})
