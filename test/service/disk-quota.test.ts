import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ServiceError, isServiceError } from '../../src/errors.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { hold, worlds } from './world.ts'

const { makeWorld } = worlds()

/** A world whose organisation may have so much disk. */
function worldWith(diskMbPerOrganisationMax: number) {
  return makeWorld({ diskMbPerOrganisationMax })
}

/** How many of the calls were made. All others must have been refused for the disk of the organisation. */
function made(outcomes: PromiseSettledResult<unknown>[]): number {
  for (const outcome of outcomes) {
    if (outcome.status === 'rejected')
      assert.ok(isServiceError(outcome.reason, 'quota_exceeded'), String(outcome.reason))
  }
  return outcomes.filter(({ status }) => status === 'fulfilled').length
}

const mebibyte = 1024 * 1024

test('disk quota: a refusal names the limit, what is used and what was asked', async () => {
  const { service, orgId } = await worldWith(250)
  await service.create(orgId, { diskMb: 200 })
  const refused = await service.create(orgId, { diskMb: 100 }).catch((error: ServiceError) => error)
  assert.ok(isServiceError(refused, 'quota_exceeded'))
  const limit = 'sandbox.diskMbPerOrganisationMax'
  assert.deepEqual(refused.details, { limit, limitMB: 250, usedMB: 200, askedMB: 100 })
  assert.match(refused.message, /200 MB of the 250 MB/)
})

test('disk quota: concurrent creates and volumes share the last unit, and a deletion frees it', async () => {
  const { service, machines, orgId } = await worldWith(300)
  const creates = Array.from({ length: 4 }, () => service.create(orgId, { diskMb: 100 }))
  const volumes = Array.from({ length: 4 }, (_, index) =>
    service.volumes.create(orgId, { name: `v${index}`, sizeMb: 100 }),
  )
  assert.equal(made(await Promise.allSettled([...creates, ...volumes])), 3)
  assert.equal(machines.machines.size + machines.volumes.size, 3)
  for (const { id } of (await service.list(orgId, {})).items) await service.delete(orgId, id)
  for (const { name } of await service.volumes.list(orgId)) await service.volumes.delete(orgId, name)
  await service.create(orgId, { diskMb: 300 })
})

test('disk quota: a hibernated sandbox and one in error count, another organisation does not', async () => {
  const { service, machines, orgId } = await worldWith(200)
  const { sandbox } = await service.create(orgId, { diskMb: 100 })
  await service.hibernate(orgId, sandbox.id)
  machines.before.create = () => Promise.reject(new Error('no'))
  await assert.rejects(service.create(orgId, { id: 'sb-announced', diskMb: 100 }))
  delete machines.before.create
  assert.equal((await service.get(orgId, 'sb-announced')).status, 'error')
  await refuses(service.create(orgId, { diskMb: 64 }), 'quota_exceeded')
  const other = await makeWorld({ diskMbPerOrganisationMax: 200 })
  await other.service.create(other.orgId, { diskMb: 200 })
  // A retry writes the record that counts already.
  await service.create(orgId, { id: 'sb-announced', diskMb: 100 })
})

test('disk quota: a start of many from a checkpoint makes as many as fit', async () => {
  const { service, orgId } = await worldWith(450)
  const { sandbox } = await service.create(orgId, { diskMb: 100 })
  const { id } = await service.checkpoints.create(orgId, sandbox.id, { name: 'c', kind: 'disk_only' })
  assert.equal(made(await service.checkpoints.startMany(orgId, id, {}, 6)), 3)
  assert.equal((await service.list(orgId, {})).items.length, 4)
})

test('disk quota: a snapshot of a volume counts as much as the volume', async () => {
  const { service, orgId } = await worldWith(250)
  await service.volumes.create(orgId, { name: 'v', sizeMb: 100 })
  await service.volumes.createSnapshot(orgId, 'v', 'one')
  await refuses(service.volumes.createSnapshot(orgId, 'v', 'two'), 'quota_exceeded')
  await refuses(service.volumes.create(orgId, { name: 'w', from: 'v@one' }), 'quota_exceeded')
  await service.volumes.deleteSnapshot(orgId, 'v', 'one')
  await service.volumes.create(orgId, { name: 'w', from: 'v' })
})

test('disk quota: a checkpoint is refused at once where nothing is left, and fails without data where it is too large', async () => {
  const { service, machines, orgId } = await worldWith(102)
  const { sandbox } = await service.create(orgId, { diskMb: 100 })
  const create = async (name: string) => {
    const { id } = await service.checkpoints.create(orgId, sandbox.id, { name, kind: 'disk_only' })
    return await service.checkpoints.settled(orgId, id)
  }
  machines.checkpointBytes = 3 * mebibyte
  const { status, error } = await create('large')
  assert.equal(status, 'failed')
  assert.match(error ?? '', /102 MB of disk/)
  assert.equal(machines.checkpoints.size, 0)
  machines.checkpointBytes = 2 * mebibyte
  assert.equal((await create('fits')).status, 'ready')
  await refuses(create('more'), 'quota_exceeded')
})

test('disk quota: of two checkpoints at once that fit alone, one is kept', async () => {
  const { service, machines, orgId } = await worldWith(203)
  machines.checkpointBytes = 2 * mebibyte
  const { begun, release } = hold(machines, 'checkpoint')
  const ids = await Promise.all(
    ['a', 'b'].map(async (name) => {
      const { sandbox } = await service.create(orgId, { diskMb: 100 })
      return (await service.checkpoints.create(orgId, sandbox.id, { name, kind: 'disk_only' })).id
    }),
  )
  await begun
  release()
  const ends = await Promise.all(ids.map((id) => service.checkpoints.settled(orgId, id)))
  assert.deepEqual(ends.map(({ status }) => status).toSorted(), ['failed', 'ready'])
  assert.equal(machines.checkpoints.size, 1)
})

test('disk quota: the memory that a cold wake keeps counts, and what is too large wakes nothing', async () => {
  const { service, machines, orgId } = await worldWith(102)
  const { sandbox } = await service.create(orgId, { diskMb: 100 })
  await service.hibernate(orgId, sandbox.id)
  machines.checkpointBytes = 3 * mebibyte
  await refuses(service.wake(orgId, sandbox.id, { memory: false }), 'quota_exceeded')
  assert.equal((await service.get(orgId, sandbox.id)).status, 'hibernated')
  assert.equal(machines.checkpoints.size, 0)
  assert.deepEqual(await service.checkpoints.list(orgId, sandbox.id), [])
})

test('disk quota: an import that is too large leaves nothing', async () => {
  const { service, machines, orgId } = await worldWith(10_240)
  Object.assign(machines, {
    async importImage(id: string) {
      machines.checkpoints.add(id)
      return { digest: 'sha256:0', config: { env: {} }, sizeBytes: 10_241 * mebibyte }
    },
  })
  const source = { reference: 'registry.example/none' }
  await refuses(service.checkpoints.import(orgId, { id: 'cp-1', name: 'i', source }), 'quota_exceeded')
  assert.equal(machines.checkpoints.size, 0)
})
