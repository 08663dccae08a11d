/** A session that goes on from where another one stands. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { makeWorld } from '../support/world.ts'
import type { World } from '../support/world.ts'

let world: World

before(async () => {
  world = await makeWorld()
})

after(() => world.close())

test('a fork answers 201 with a session of its own, once per idempotency key, and refuses what it must', async () => {
  const { api, stranger, sessions } = world
  const { id, sandboxId, messages } = (await api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })).body
  const path = `/v1/sessions/${id}/fork`
  const early = await api.post(path, { user_id: 'ann' })
  assert.deepEqual([early.status, early.body.error.type], [409, 'conflict'])
  sessions.kept.get(id)!.session.activity = 'idle'
  assert.equal((await api.post(path, {})).status, 400)
  assert.equal((await api.post(path, { user_id: 'bob' })).status, 403)
  assert.equal((await stranger.post(path, { user_id: 'ann' })).status, 404)
  assert.equal((await api.post(path, { user_id: 'ann' }, { key: null })).status, 401)
  const { token } = (await api.post(`/v1/sessions/${id}/tokens`, { user_id: 'ann', scope: 'steer' })).body
  assert.equal((await api.post(`${path}?token=${token}`, { user_id: 'ann' }, { key: null })).status, 401)
  const options = { headers: { 'idempotency-key': 'once' } }
  const forked = await api.post(path, { user_id: 'ann' }, options)
  assert.equal(forked.status, 201)
  assert.notEqual(forked.body.id, id)
  assert.notEqual(forked.body.sandboxId, sandboxId)
  assert.equal(forked.body.messages[0].content, messages[0].content)
  const again = await api.post(path, { user_id: 'ann' }, options)
  assert.deepEqual([again.status, again.body.id], [201, forked.body.id])
})
