import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { forgetSandboxes, throwsCode, worlds } from './world.ts'

const { makeSandbox, sharedStore } = worlds()

afterEach(() => forgetSandboxes(sharedStore()))

test('checkpoint of a turn: it has no quota of its sandbox, and takes nothing of that of others', async () => {
  const world = await makeSandbox({ diskOnlyCheckpointsMax: 2 })
  const { service, orgId, sandbox } = world
  for (const name of ['t1', 't2', 't3']) await world.checkpoint(name, { owner: 'turn' })
  for (const name of ['one', 'two']) await world.checkpoint(name)
  await assert.rejects(world.checkpoint('three'), throwsCode('conflict', /2 disk_only checkpoints/))
  await world.checkpoint('t4', { owner: 'turn' })
  await world.checkpoint('three', { retentionPolicy: { mode: 'delete_oldest', maxCount: 1 } })
  assert.deepEqual(await world.names(), ['three ready'])
  const turns = await service.checkpoints.list(orgId, sandbox.id, 'turn')
  assert.deepEqual(
    turns.map(({ name }) => name),
    ['t1', 't2', 't3', 't4'],
  )
  assert.equal((await service.checkpoints.listOwnedBy('turn')).length, 4)
  assert.equal(await sharedStore().sandboxes.countCheckpoints(orgId), 1)
})

test('checkpoint of a turn: lists leave it out that do not ask for it', async () => {
  const world = await makeSandbox()
  const { service, orgId } = world
  const [turn, own] = [await world.checkpoint('t', { owner: 'turn' }), await world.checkpoint('one')]
  const page = async (query: object) =>
    (await service.checkpoints.page(orgId, { limit: 10, ...query })).items.map(({ checkpoint }) => checkpoint.id)
  assert.deepEqual(await page({}), [own.id])
  assert.deepEqual(await page({ owner: 'turn' }), [turn.id])
  assert.deepEqual(await page({ owner: 'client' }), [own.id])
})

test('checkpoint of a turn: a client starts from it and restores it, and neither deletes it nor lets it expire', async () => {
  const world = await makeSandbox()
  const { service, machines, orgId, sandbox } = world
  const { checkpoints } = service
  const { id } = await world.checkpoint('t', { owner: 'turn' })
  assert.equal((await checkpoints.start(orgId, id, {})).sandbox.fromCheckpointId, id)
  await checkpoints.restore(orgId, sandbox.id, id)
  const words = /is of a session, and is deleted with it/
  await assert.rejects(checkpoints.delete(orgId, sandbox.id, id), throwsCode('conflict', words))
  await assert.rejects(checkpoints.delete(orgId, undefined, id), throwsCode('conflict', words))
  await assert.rejects(checkpoints.setExpiry(orgId, id, 60), throwsCode('conflict', words))
  assert.ok(machines.checkpoints.has(id))
  await checkpoints.deleteOwned(orgId, id)
  assert.ok(!machines.checkpoints.has(id))
  await assert.rejects(checkpoints.deleteOwned(orgId, id), throwsCode('not_found'))
})

test('checkpoint of a turn: a start for somebody else is on its disk alone, without these variables', async () => {
  const { service, machines, orgId } = await makeSandbox()
  const { checkpoints } = service
  const { sandbox: source } = await service.create(orgId, { envs: { PUBLIC: '1', SECRET: '2' } })
  const { id } = await checkpoints.create(orgId, source.id, { owner: 'turn', name: 't', kind: 'disk_only' })
  const handover = { withoutEnvs: ['SECRET'] }
  const { sandbox } = await checkpoints.start(orgId, id, { handover })
  assert.deepEqual([sandbox.envs, sandbox.fromCheckpointId], [{ PUBLIC: '1' }, id])
  assert.deepEqual(machines.machines.get(sandbox.id)?.spec.from, { checkpointId: id, memory: false })
  const { sandbox: own } = await checkpoints.start(orgId, id, {})
  assert.deepEqual(own.envs, { PUBLIC: '1', SECRET: '2' })
  assert.deepEqual(machines.machines.get(own.id)?.spec.from, { checkpointId: id })
})

test('checkpoint of a turn: it goes with its organisation', async () => {
  const world = await makeSandbox()
  const { id } = await world.checkpoint('t', { owner: 'turn' })
  await world.service.removeAll(world.orgId)
  assert.ok(!world.machines.checkpoints.has(id))
})

test('restore from another sandbox: it is counted, keeps the sandbox, and is of the organisation alone', async () => {
  const world = await makeSandbox()
  const { service, machines, orgId, sandbox } = world
  const { id } = await world.checkpoint('t', { owner: 'turn' })
  const { sandbox: other } = await service.create(orgId, {})
  await assert.rejects(service.checkpoints.restore(orgId, other.id, id), throwsCode('not_found'))
  await service.checkpoints.restoreFrom(orgId, other.id, id)
  assert.deepEqual(machines.machines.get(other.id)?.spec.from, { checkpointId: id })
  assert.equal((await service.get(orgId, other.id)).restores, 1)
  const stranger = await makeSandbox()
  const theirs = stranger.service.checkpoints.restoreFrom(stranger.orgId, stranger.sandbox.id, id)
  await assert.rejects(theirs, throwsCode('not_found'))
  machines.before.checkpoint = () => Promise.reject(new Error('no'))
  const failed = await world.checkpoint('f', { owner: 'turn' })
  await assert.rejects(service.checkpoints.restoreFrom(orgId, sandbox.id, failed.id), throwsCode('conflict'))
})
