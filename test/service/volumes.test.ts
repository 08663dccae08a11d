import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import type { VolumeMount } from '../../src/sandbox/index.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { hold, worlds } from './world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const { makeWorld } = worlds()

const mount = (name: string, readOnly = false, path = `/${name}`): VolumeMount => ({ name, path, readOnly })

/** A world with a volume `v` of 64 MiB. */
async function withVolume(...given: Parameters<typeof makeWorld>) {
  const world = await makeWorld(...given)
  const { service, orgId } = world
  const { volumes } = service
  await volumes.create(orgId, { name: 'v', sizeMb: 64 })
  const create = async (...mounts: VolumeMount[]) => (await service.create(orgId, { volumes: mounts })).sandbox.id
  const holders = async () => (await volumes.get(orgId, 'v')).attachments.map(({ sandboxId }) => sandboxId)
  return { ...world, volumes, create, holders }
}

test('volume: it is made with the default size, or that of its source, which is the least', async () => {
  const { service, orgId, machines } = await makeWorld()
  const { volumes } = service
  const plain = await volumes.create(orgId, { name: 'plain' })
  assert.equal(plain.sizeMb, 10_240)
  const small = await volumes.create(orgId, { name: 'small', sizeMb: 64 })
  await volumes.createSnapshot(orgId, 'small', 'then')
  const clone = await volumes.create(orgId, { name: 'clone', from: 'small@then' })
  assert.deepEqual([clone.sizeMb, clone.source], [64, 'small@then'])
  const [snapshot] = await volumes.listSnapshots(orgId, 'small')
  assert.equal(machines.volumes.get(clone.id)?.from, snapshot!.id)
  const larger = await volumes.create(orgId, { name: 'larger', from: 'small', sizeMb: 65 })
  assert.equal(machines.volumes.get(larger.id)?.from, small.id)
  const refused = [
    [{ name: 'x', from: 'small', sizeMb: 63 }, 'invalid_request', /sizeMB/],
    [{ name: 'x', sizeMb: 15 }, 'invalid_request', /sizeMB/],
    [{ name: 'x', sizeMb: 1_048_577 }, 'invalid_request', /sizeMB/],
    [{ name: 'X' }, 'invalid_request', /name/],
    [{ name: 'small' }, 'conflict', /small/],
    [{ name: 'x', from: 'none' }, 'not_found', /none/],
    [{ name: 'x', from: 'small@none' }, 'not_found', /none/],
    [{ name: 'x', from: 'a@b@c' }, 'invalid_request', /from/],
  ] as const
  for (const [input, code, words] of refused) await refuses(volumes.create(orgId, input), code, words)
})

test('volume: an organisation has so many, a volume so many snapshots, a sandbox so many volumes', async () => {
  const limits = { volumesMax: 2, snapshotsPerVolumeMax: 1, volumesPerSandboxMax: 1 }
  const { volumes, orgId, create } = await withVolume(limits)
  const made = await Promise.allSettled(['a', 'b'].map((name) => volumes.create(orgId, { name })))
  assert.deepEqual(made.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected'])
  await volumes.createSnapshot(orgId, 'v', 'one')
  await refuses(volumes.createSnapshot(orgId, 'v', 'one'), 'conflict', /named one/)
  await refuses(volumes.createSnapshot(orgId, 'v', 'two'), 'conflict', /the most/)
  await refuses(create(mount('v'), mount('a')), 'invalid_request', /at most 1/)
})

test('volume: one sandbox writes it, while it sleeps too, until its machine is gone; others read', async () => {
  const { service, orgId, create, holders, machines } = await withVolume()
  const writer = await create(mount('v'))
  assert.deepEqual(
    machines.machines.get(writer)?.spec.volumes?.map(({ path, readOnly }) => [path, readOnly]),
    [['/v', false]],
  )
  await refuses(create(mount('v')), 'conflict', new RegExp(`${writer} writes volume v`))
  const reader = await create(mount('v', true))
  await service.hibernate(orgId, writer)
  await refuses(create(mount('v')), 'conflict')
  await service.wake(orgId, writer)
  const deletion = Promise.withResolvers<void>()
  machines.before.delete = async (id) => (id === writer ? deletion.promise : undefined)
  const deleted = service.delete(orgId, writer)
  await eventually(async () => (await service.get(orgId, writer)).status === 'stopped')
  await refuses(create(mount('v')), 'conflict', /writes/)
  deletion.resolve()
  await deleted
  assert.deepEqual(await holders(), [reader])
  await create(mount('v'))
})

test('volume: of creates at the same time one writes', async () => {
  const { create, holders } = await withVolume()
  const made = await Promise.allSettled(Array.from({ length: 5 }, () => create(mount('v'))))
  assert.equal(made.filter(({ status }) => status === 'fulfilled').length, 1)
  assert.equal((await holders()).length, 1)
})

test('volume: a create that fails or is deleted meanwhile lets go of it', async () => {
  const { service, orgId, create, holders, machines } = await withVolume()
  machines.before.create = async () => {
    throw new ServiceError('no_capacity', 'full')
  }
  await refuses(create(mount('v')), 'no_capacity')
  assert.deepEqual(await holders(), [])
  const { begun, release } = hold(machines, 'create')
  const creation = create(mount('v'))
  await begun
  const [id] = await holders()
  const deletion = service.delete(orgId, id!)
  await eventually(async () => (await service.get(orgId, id!)).status === 'stopped')
  release()
  await refuses(creation, 'sandbox_stopped')
  await deletion
  assert.deepEqual(await holders(), [])
})

test('volume: a failed deletion of the machine keeps it, until a repeat or the next start', async () => {
  const first = await withVolume()
  const { service, orgId, create, holders, machines } = first
  const id = await create(mount('v'))
  machines.before.delete = () => Promise.reject(new Error('cut off'))
  await assert.rejects(service.delete(orgId, id), /cut off/)
  assert.deepEqual(await holders(), [id])
  await service.close()
  delete machines.before.delete
  const second = await makeWorld({}, { machines, orgId })
  await second.service.start()
  assert.deepEqual((await second.service.volumes.get(orgId, 'v')).attachments, [])
  await second.service.close()
})

test('volume: a start of the server names what is known, and removes what was cut off', async () => {
  const { service, orgId, volumes, machines, store } = await withVolume()
  machines.deleteVolume = () => Promise.reject(new Error('cut off'))
  const { id: gone } = await volumes.create(orgId, { name: 'gone' })
  await assert.rejects(volumes.delete(orgId, 'gone'), /cut off/)
  await refuses(volumes.get(orgId, 'gone'), 'not_found')
  const made = machines.createVolume.bind(machines)
  machines.createVolume = async (spec) => {
    await made(spec)
    throw new ServiceError('unavailable', 'cut off')
  }
  await refuses(volumes.create(orgId, { name: 'half' }), 'unavailable')
  const { id: snapshot } = await volumes.createSnapshot(orgId, 'v', 'then')
  const { volume } = await volumes.get(orgId, 'v')
  await service.close()
  Reflect.deleteProperty(machines, 'deleteVolume')
  const second = await makeWorld({}, { machines, orgId })
  const half = [...machines.volumes.keys()].find((id) => ![gone, snapshot, volume.id].includes(id))
  await second.service.start()
  const { volumeIds = [], abandoned } = machines.opened!
  assert.ok(volumeIds.includes(volume.id) && volumeIds.includes(snapshot))
  assert.ok(abandoned.volumeIds?.includes(gone) && abandoned.volumeIds.includes(half!))
  assert.deepEqual([...machines.volumes.keys()].toSorted(), [volume.id, snapshot].toSorted())
  assert.deepEqual(await store.sandboxes.volumeRemains(), [])
  await second.service.close()
})

test('volume: one in use, or with snapshots, is not deleted, and the refusal names them', async () => {
  const { service, orgId, volumes, create, machines } = await withVolume()
  const id = await create(mount('v', true))
  await service.hibernate(orgId, id)
  await refuses(volumes.delete(orgId, 'v'), 'conflict', new RegExp(id))
  await service.delete(orgId, id)
  await volumes.createSnapshot(orgId, 'v', 'then')
  await refuses(volumes.delete(orgId, 'v'), 'conflict', /then/)
  await volumes.deleteSnapshot(orgId, 'v', 'then')
  await refuses(volumes.deleteSnapshot(orgId, 'v', 'then'), 'not_found')
  await volumes.delete(orgId, 'v')
  await refuses(volumes.delete(orgId, 'v'), 'not_found')
  assert.equal(machines.volumes.size, 0)
})

test('volume: those of another organisation do not exist', async () => {
  const { orgId, service } = await withVolume()
  const other = await makeWorld()
  for (const call of [
    () => service.volumes.get(other.orgId, 'v'),
    () => service.volumes.delete(other.orgId, 'v'),
    () => service.volumes.createSnapshot(other.orgId, 'v', 's'),
    () => service.volumes.create(other.orgId, { name: 'w', from: 'v' }),
    () => service.create(other.orgId, { volumes: [mount('v')] }),
  ]) {
    await refuses(call(), 'not_found')
  }
  assert.equal((await service.volumes.list(orgId)).length, 1)
})

test('volume: a checkpoint records them, and a start from it has them again', async () => {
  const { service, orgId, volumes, create, machines } = await withVolume()
  const { checkpoints } = service
  const source = await create(mount('v', true))
  const { id } = await checkpoints.create(orgId, source, { name: 'c', kind: 'disk_only' })
  const checkpoint = await checkpoints.settled(orgId, id)
  assert.deepEqual(
    checkpoint.volumes.map(({ name, path, readOnly, generation }) => [name, path, readOnly, generation]),
    [['v', '/v', true, 7]],
  )
  const { sandbox: fork } = await checkpoints.start(orgId, id, {})
  assert.deepEqual(machines.machines.get(fork.id)?.spec.volumes, machines.machines.get(source)?.spec.volumes)
  const { sandbox: bare } = await checkpoints.start(orgId, id, { volumes: [] })
  assert.deepEqual([bare.volumes, machines.machines.get(bare.id)?.spec.volumes], [[], undefined])
  for (const sandboxId of [source, fork.id]) await service.delete(orgId, sandboxId)
  await volumes.delete(orgId, 'v')
  await refuses(checkpoints.start(orgId, id, {}), 'not_found', /name others/)
  await volumes.create(orgId, { name: 'v' })
  await refuses(checkpoints.start(orgId, id, {}), 'not_found', /name others/, 'another volume of the name is not it')
})

test('volume: a fork of a writer is refused with advice, goes with a clone, and goes once the writer is deleted', async () => {
  const { service, orgId, volumes, create } = await withVolume()
  const { checkpoints } = service
  const source = await create(mount('v'))
  const { id } = await checkpoints.create(orgId, source, { name: 'c', kind: 'disk_only' })
  await refuses(checkpoints.start(orgId, id, {}), 'conflict', new RegExp(`${source} writes volume v.*clone`))
  const many = await checkpoints.startMany(orgId, id, {}, 2)
  assert.deepEqual(
    many.map(({ status }) => status),
    ['rejected', 'rejected'],
  )
  await volumes.create(orgId, { name: 'w', from: 'v' })
  const { sandbox } = await checkpoints.start(orgId, id, { volumes: [mount('w', false, '/v')] })
  assert.deepEqual(
    sandbox.volumes.map(({ name }) => name),
    ['w'],
  )
  await service.delete(orgId, source)
  await checkpoints.start(orgId, id, {})
  await refuses(checkpoints.start(orgId, id, {}), 'conflict', /writes volume v/)
})

test('volume: a start from a full checkpoint has them at the same paths', async () => {
  const { service, orgId, volumes, create, machines } = await withVolume()
  machines.capabilities = { fullCheckpoints: true }
  await volumes.create(orgId, { name: 'w', sizeMb: 64 })
  const source = await create(mount('v', true))
  const { id } = await service.checkpoints.create(orgId, source, { name: 'c' })
  for (const given of [[], [mount('w')], [mount('w', false, '/v')], [mount('w', true), mount('v', true)]]) {
    await refuses(service.checkpoints.start(orgId, id, { volumes: given }), 'invalid_request', /^volumes /)
  }
  await service.checkpoints.start(orgId, id, { volumes: [mount('w', true, '/v')] })
})
