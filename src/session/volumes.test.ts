import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { ServiceError } from '../errors.ts'
import { refuses } from '../lib/testing/refuses.ts'
import type { Sessions } from './service.ts'
import { orgId, simple, useWorld } from './testing/world.ts'

const world = useWorld()
let service: Sessions
beforeEach(() => {
  service = world.serve()
})

const volumes = [{ name: 'v', path: '/v', readOnly: true }]

test('volume: the sandbox of a session has the volumes that the session was created with', async () => {
  const { session } = await service.create(orgId, { ...simple, volumes })
  await world.until(session.id, 'idle')
  assert.deepEqual(world.sandboxes.created.find(({ id }) => id === session.sandboxId)?.volumes, volumes)
  const { session: fork } = await service.fork(orgId, session.id, 'u1')
  await world.until(fork.id, 'idle')
  assert.deepEqual(world.sandboxes.created.find(({ id }) => id === fork.sandboxId)?.volumes, volumes)
  const { session: other } = await service.create(orgId, simple)
  await world.until(other.id, 'idle')
  assert.equal(world.sandboxes.created.find(({ id }) => id === other.sandboxId)?.volumes, undefined)
})

test('volume: a session that could not have its volumes is refused, and nothing is written down', async () => {
  world.sandboxes.assertVolumes = () => Promise.reject(new ServiceError('conflict', 'another writes it'))
  const before = (await service.list(orgId, {})).items.length
  await refuses(service.create(orgId, { ...simple, volumes }), 'conflict')
  assert.equal((await service.list(orgId, {})).items.length, before)
})

test('volume: a session whose sandbox writes one is not forked', async () => {
  const source = await world.idle(service)
  const { sandbox } = world.sandboxes.machine(source.sandboxId)
  sandbox.volumes = [{ id: 'vol-1', name: 'v', path: '/v', readOnly: false }]
  await refuses(service.fork(orgId, source.id, 'u1'), 'conflict')
  assert.equal(world.sandboxes.checkpoints.size, 0)
})
