import assert from 'node:assert/strict'
import { test } from 'node:test'
import { useWorld } from '../support/world.ts'

const world = useWorld({ sandboxLimits: { diskMbPerOrganisationMax: 400 } })

test('disk quota: 403 with the numbers, for a sandbox, a volume and each of many forks; nothing is kept under the key', async () => {
  const { api } = world
  const id = await world.sandbox({ diskMB: 100 })
  const checkpoint = await api.post(`/api/sandboxes/${id}/checkpoints`, { name: 'c', kind: 'disk_only' })
  assert.equal(checkpoint.status, 201)
  const limit = 'sandbox.diskMbPerOrganisationMax'
  const keyed = { headers: { 'idempotency-key': 'late' } }
  const create = () => api.post('/api/sandboxes', { diskMB: 350 }, keyed)
  const refused = await create()
  assert.deepEqual([refused.status, refused.body.code], [403, 'quota_exceeded'])
  const { limitMB, askedMB, usedMB } = refused.body
  assert.deepEqual([refused.body.limit, limitMB, askedMB], [limit, 400, 350])
  assert.ok(usedMB >= 100)
  const volume = await api.post('/api/volumes', { name: 'v', sizeMB: 350 })
  assert.deepEqual([volume.status, volume.body.code, volume.body.askedMB], [403, 'quota_exceeded', 350])
  const { status, body } = await api.post(`/api/sandboxes/from-checkpoint/${checkpoint.body.id}`, { count: 4 })
  assert.equal(status, 201)
  const codes = body.sandboxes.map((one: { code?: string }) => one.code ?? 'made').toSorted()
  assert.deepEqual(codes, ['made', 'made', 'quota_exceeded', 'quota_exceeded'])
  for (const { sandboxID } of (await api.get('/api/sandboxes')).body) await api.delete(`/api/sandboxes/${sandboxID}`)
  assert.equal((await create()).status, 201, 'the key is free')
})
