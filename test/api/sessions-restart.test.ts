/** A session whose sandbox was lost gets a new one. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { makeWorld } from '../support/world.ts'
import type { World } from '../support/world.ts'

let world: World

before(async () => {
  world = await makeWorld()
})

after(() => world.close())

test('a restart answers the session with its new sandbox, and refuses what it must', async () => {
  const { api, stranger, sessions } = world
  const { id, sandboxId } = (await api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })).body
  const path = `/v1/sessions/${id}/restart`
  const early = await api.post(path, { user_id: 'ann' })
  assert.deepEqual([early.status, early.body.error.type], [409, 'conflict'])
  sessions.kept.get(id)!.session.activity = 'failed'
  assert.equal((await api.post(path, {})).status, 400)
  assert.equal((await api.post(path, { user_id: 'ann', checkpoint_id: 7 })).status, 400)
  assert.equal((await api.post(path, { user_id: 'bob' })).status, 403)
  assert.equal((await stranger.post(path, { user_id: 'ann' })).status, 404)
  assert.equal((await api.post(path, { user_id: 'ann' }, { key: null })).status, 401)
  const restarted = await api.post(path, { user_id: 'ann', checkpoint_id: 'cp-abc' })
  assert.deepEqual([restarted.status, restarted.body.id], [200, id])
  assert.notEqual(restarted.body.sandboxId, sandboxId)
  assert.equal(sessions.kept.get(id)!.session.checkpointId, 'cp-abc')
})
