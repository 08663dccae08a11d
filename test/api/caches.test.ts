import assert from 'node:assert/strict'
import { test } from 'node:test'
import { useWorld } from '../support/world.ts'

const world = useWorld()

async function attach(key: string, orgId = world.orgId) {
  const id = await world.sandbox()
  const mount = { type: 'cache', key, target: '/cache' } as const
  return await world.sandboxes.mounts.attach(orgId, id, mount)
}

test('cache: they are listed, deleted one by one and together, and none that a build has', async () => {
  const { api, stranger } = world
  assert.deepEqual((await api.get('/api/images/caches')).body, [])
  const [pip, npm, held] = [await attach('pip'), await attach('npm'), await attach('held')]
  for (const mount of [pip, npm]) await mount.detach()
  const listed = (await api.get('/api/images/caches')).body
  assert.equal(listed.length, 3)
  assert.deepEqual(Object.keys(listed[0]).toSorted(), ['id', 'lastUsedAt', 'sizeBytes'])
  assert.deepEqual((await stranger.get('/api/images/caches')).body, [])
  const sizes = new Map<string, number>(
    listed.map(({ id, sizeBytes }: { id: string; sizeBytes: number }) => [id, sizeBytes]),
  )
  const [first] = sizes.keys()
  const foreign = await stranger.delete(`/api/images/caches/${first}`)
  assert.deepEqual([foreign.status, foreign.body.code], [404, 'not_found'])
  const answers = await Promise.all([...sizes.keys()].map((id) => api.delete(`/api/images/caches/${id}`)))
  assert.equal(answers.filter(({ status }) => status === 204).length, 2)
  assert.equal(answers.filter(({ status }) => status === 409).length, 1)
  assert.equal((await api.get('/api/images/caches')).body.length, 1)
  await (await attach('pip')).detach()
  const { status, body } = await api.delete('/api/images/caches')
  assert.deepEqual([status, body.removed.length, body.freedBytes], [200, 1, body.removed[0].sizeBytes])
  await held.detach()
  assert.equal((await api.delete('/api/images/caches')).body.removed.length, 1)
  assert.deepEqual((await api.delete('/api/images/caches')).body, { removed: [], freedBytes: 0 })
  const bad = await api.delete('/api/images/caches/..%2F..%2Fetc')
  assert.deepEqual([bad.status, bad.body.code], [404, 'not_found'])
})

test('cache: those of a sandbox that is deleted are free', async () => {
  const id = await world.sandbox()
  const mount = { type: 'cache', key: 'left', target: '/cache', sharing: 'locked' } as const
  await world.sandboxes.mounts.attach(world.orgId, id, mount)
  assert.equal((await world.api.delete('/api/images/caches')).body.removed.length, 0)
  await world.api.delete(`/api/sandboxes/${id}`)
  assert.equal((await world.api.delete('/api/images/caches')).body.removed.length, 1)
})
