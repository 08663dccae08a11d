import assert from 'node:assert/strict'
import { test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { ServiceError } from '../../src/errors.ts'
import { RestartedOnDiskError } from '../../src/sandbox/index.ts'
import { throwsCode, worlds } from './world.ts'

const { makeWorld, makeSandbox } = worlds()
const disk = { kind: 'disk_only' } as const

test('checkpoint: it is processing, then ready, and outlives its sandbox', async () => {
  const { service, machines, orgId } = await makeWorld()
  const { sandbox } = await service.create(orgId, { envs: { A: '1' }, memoryMb: 512 })
  const checkpoint = await service.checkpoints.create(orgId, sandbox.id, { name: 'one', kind: 'disk_only' })
  assert.equal(checkpoint.status, 'processing')
  const settled = await service.checkpoints.settled(orgId, checkpoint.id)
  assert.deepEqual([settled.status, settled.sizeBytes], ['ready', 11])
  await assert.rejects(
    service.checkpoints.create(orgId, sandbox.id, { name: 'one', kind: 'disk_only' }),
    throwsCode('conflict'),
  )
  const fork = await service.checkpoints.start(orgId, checkpoint.id, { envs: { B: '2' } })
  assert.deepEqual(fork.sandbox.envs, { A: '1', B: '2' })
  assert.deepEqual([fork.sandbox.memoryMb, fork.sandbox.timeoutSeconds], [512, 300])
  assert.equal(machines.machines.get(fork.sandbox.id)?.spec.from?.checkpointId, checkpoint.id)
  await service.delete(orgId, sandbox.id)
  assert.equal((await service.checkpoints.list(orgId, sandbox.id)).length, 1)
  await service.checkpoints.delete(orgId, sandbox.id, checkpoint.id)
  assert.equal(machines.checkpoints.size, 0)
})

test('checkpoint: a full one is refused with the reason where memory cannot be kept', async () => {
  const { service, orgId, sandbox } = await makeSandbox()
  await assert.rejects(
    service.checkpoints.create(orgId, sandbox.id, { name: 'x' }),
    throwsCode('full_checkpoint_unavailable', /this is a test/),
  )
})

test('restore: it keeps the id, and a failure before the switch changes nothing', async () => {
  const { service, machines, orgId, sandbox, checkpoint } = await makeSandbox()
  const { id } = await checkpoint('x')
  await service.checkpoints.restore(orgId, sandbox.id, id)
  assert.equal(machines.machines.get(sandbox.id)?.spec.from?.checkpointId, id)
  await service.hibernate(orgId, sandbox.id)
  await service.checkpoints.restore(orgId, sandbox.id, id)
  assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
  machines.before.restore = () => Promise.reject(new ServiceError('no_capacity', 'the pool is full'))
  await assert.rejects(service.checkpoints.restore(orgId, sandbox.id, id), throwsCode('no_capacity'))
  assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
  const other = await service.create(orgId, {})
  await assert.rejects(service.checkpoints.restore(orgId, other.sandbox.id, id), throwsCode('not_found'))
})

test('restore: a failure with a restart on the old disk is a reason on the record until the next success', async () => {
  const { service, machines, orgId, sandbox, checkpoint } = await makeSandbox()
  const { id } = await checkpoint('x')
  const message = 'the memory cannot be restored; the sandbox was started anew'
  machines.before.restore = () => Promise.reject(new RestartedOnDiskError('full_checkpoint_unavailable', message))
  await assert.rejects(service.checkpoints.restore(orgId, sandbox.id, id), throwsCode('full_checkpoint_unavailable'))
  const anew = await service.get(orgId, sandbox.id)
  assert.deepEqual([anew.status, anew.reason, anew.reasonMessage], ['running', 'runtime_failed', message])
  machines.before = {}
  await service.checkpoints.restore(orgId, sandbox.id, id)
  assert.equal((await service.get(orgId, sandbox.id)).reason, undefined)
})

test('start: each of many has its own result, and input that would fail all fails the call', async () => {
  const { service, machines, orgId, checkpoint } = await makeSandbox({ runningSandboxesMax: 4 })
  const { id } = await checkpoint('x')
  const results = await service.checkpoints.startMany(
    orgId,
    id,
    { memoryMb: 128, timeoutSeconds: 7, envs: { A: '1' } },
    5,
  )
  const started = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value.sandbox] : []))
  assert.equal(started.length, 3)
  for (const { memoryMb, timeoutSeconds, envs } of started) {
    assert.deepEqual([memoryMb, timeoutSeconds, envs], [128, 7, { A: '1' }])
  }
  for (const result of results) {
    assert.ok(result.status === 'fulfilled' || throwsCode('rate_limited')(result.reason))
  }
  assert.equal(machines.machines.size, 4)
  const refused = service.checkpoints.startMany(orgId, id, { memoryMb: 1 }, 5)
  await assert.rejects(refused, throwsCode('invalid_request', /memoryMB/))
})

test('start: a hundred of one call each have a sandbox of their own', async () => {
  const { service, orgId, checkpoint } = await makeSandbox()
  const { id } = await checkpoint('x')
  const results = await service.checkpoints.startMany(orgId, id, {}, 100)
  const ids = results.map((result) => (result.status === 'fulfilled' ? result.value.sandbox.id : 'none'))
  assert.equal(new Set(ids).size, 100)
  assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 100)
})

test('checkpoint: a taken name is refused before the retention policy applies', async () => {
  const { service, orgId, sandbox, checkpoint, names } = await makeSandbox()
  await checkpoint('a')
  const retentionPolicy = { mode: 'delete_oldest', maxCount: 1 } as const
  const again = service.checkpoints.create(orgId, sandbox.id, { name: 'a', ...disk, retentionPolicy })
  await assert.rejects(again, throwsCode('conflict', /"a"/))
  assert.deepEqual(await names(), ['a ready'])
})

test('retention policy: the oldest go once the new one is ready; a failed dump deletes none and goes next', async () => {
  const { machines, checkpoint, names } = await makeSandbox({ diskOnlyCheckpointsMax: 3 })
  const retentionPolicy = { mode: 'delete_oldest', maxCount: 2 } as const
  for (const name of ['a', 'b']) await checkpoint(name)
  machines.before.checkpoint = () => Promise.reject(new ServiceError('no_capacity', 'the disk is full'))
  await checkpoint('c', { retentionPolicy })
  assert.deepEqual(await names(), ['a ready', 'b ready', 'c failed'])
  machines.before = {}
  await checkpoint('d', { retentionPolicy })
  assert.deepEqual(await names(), ['b ready', 'd ready'])
  assert.equal(machines.checkpoints.size, 2)
})

test('retention policy: it never deletes a checkpoint of the service itself', async () => {
  const { checkpoint, names } = await makeSandbox()
  for (const owner of ['session', 'image'] as const) await checkpoint(owner, { owner })
  for (const name of ['a', 'b']) await checkpoint(name, { retentionPolicy: { mode: 'delete_oldest', maxCount: 1 } })
  assert.deepEqual(await names(), ['session ready', 'image ready', 'b ready'])
})

test('quota: failed checkpoints do not count', async () => {
  const { machines, checkpoint, names } = await makeSandbox({ diskOnlyCheckpointsMax: 2 })
  machines.before.checkpoint = () => Promise.reject(new ServiceError('no_capacity', 'the disk is full'))
  for (const name of ['a', 'b', 'c']) await checkpoint(name)
  assert.deepEqual(await names(), ['b failed', 'c failed'], 'they are few all the same')
  machines.before = {}
  for (const name of ['d', 'e']) await checkpoint(name)
  assert.deepEqual(await names(), ['d ready', 'e ready'])
  await assert.rejects(checkpoint('f'), throwsCode('conflict'))
  await checkpoint('f', { retentionPolicy: { mode: 'delete_oldest', maxCount: 2 } })
  assert.deepEqual(await names(), ['e ready', 'f ready'], 'a retention policy frees its own unit')
})

test('quota: 10 full and 100 disk-only checkpoints, for concurrent calls too', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  machines.capabilities = { fullCheckpoints: true }
  for (const [kind, max] of Object.entries({ full: 10, disk_only: 100 }) as ['full' | 'disk_only', number][]) {
    const create = (index: number) => service.checkpoints.create(orgId, sandbox.id, { name: `${kind} ${index}`, kind })
    const outcomes = await Promise.allSettled(Array.from({ length: max + 5 }, (_, index) => create(index)))
    const refused = outcomes.filter((outcome) => outcome.status === 'rejected')
    assert.equal(refused.length, 5)
    for (const { reason } of refused) assert.ok(throwsCode('conflict', new RegExp(`${max} ${kind}`))(reason))
  }
})

test('checkpoint: a stopped sandbox and one in error have none, and a failed one starts nothing', async () => {
  const { service, machines, orgId, sandbox, checkpoint } = await makeSandbox()
  machines.before.checkpoint = () => Promise.reject(new ServiceError('no_capacity', 'the disk is full'))
  const failed = await checkpoint('x')
  assert.deepEqual([failed.status, failed.error], ['failed', 'the disk is full'])
  for (const start of [
    () => service.checkpoints.start(orgId, failed.id, {}),
    () => service.checkpoints.startMany(orgId, failed.id, {}, 2),
  ]) {
    await assert.rejects(start(), throwsCode('conflict', /disk is full/))
  }
  await service.delete(orgId, sandbox.id)
  await assert.rejects(checkpoint('y'), throwsCode('sandbox_stopped'))
  const { sandbox: other } = await service.create(orgId, {})
  machines.exit({ sandboxId: other.id, reason: 'oom', message: 'out of memory' })
  await eventually(async () => (await service.get(orgId, other.id)).status === 'error')
  await assert.rejects(
    service.checkpoints.create(orgId, other.id, { name: 'z', ...disk }),
    throwsCode('conflict', /out of memory/),
  )
})

test('restore: it is counted before it happens, and one that changed nothing is not counted', async () => {
  const { service, machines, orgId, sandbox, checkpoint } = await makeSandbox()
  const { id } = await checkpoint('a')
  const restores = async () => (await service.get(orgId, sandbox.id)).restores
  const counted: number[] = []
  machines.before.restore = async () => void counted.push(await restores())
  await service.checkpoints.restore(orgId, sandbox.id, id)
  assert.deepEqual([counted, await restores()], [[1], 1])

  machines.before.restore = () => Promise.reject(new ServiceError('no_capacity', 'the disk pool is full'))
  await assert.rejects(service.checkpoints.restore(orgId, sandbox.id, id), throwsCode('no_capacity'))
  assert.equal(await restores(), 1)

  // What ran has ended: only its disk is what it was.
  machines.before.restore = () => Promise.reject(new RestartedOnDiskError('unavailable', 'the guest is mute'))
  await assert.rejects(service.checkpoints.restore(orgId, sandbox.id, id), throwsCode('unavailable'))
  assert.equal(await restores(), 2)

  machines.before.restore = async () => {
    machines.exit({ sandboxId: sandbox.id, reason: 'runtime_failed', message: 'it died' })
    throw new ServiceError('unavailable', 'what was left could not be started')
  }
  await assert.rejects(service.checkpoints.restore(orgId, sandbox.id, id), throwsCode('unavailable'))
  assert.equal(await restores(), 3)
})
