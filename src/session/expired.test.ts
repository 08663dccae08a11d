import assert from 'node:assert/strict'
import { test } from 'node:test'
import { orgId, useWorld } from './testing/world.ts'

const world = useWorld()

test('expired sessions: those that ended before go, others stay, and an aborted call deletes none', async () => {
  const service = world.serve()
  const [ended, kept] = [await world.idle(service), await world.idle(service)]
  await service.delete(orgId, ended.id)
  const later = new Date(Date.now() + 60_000)
  await service.deleteExpired(later, AbortSignal.abort())
  assert.ok(await world.store.session(ended.id))
  await service.deleteExpired(new Date(0), new AbortController().signal)
  assert.ok(await world.store.session(ended.id))
  await service.deleteExpired(later, new AbortController().signal)
  assert.equal(await world.store.session(ended.id), undefined)
  assert.ok(await world.store.session(kept.id))
})
