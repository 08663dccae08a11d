import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import { RestartedOnDiskError } from '../../src/sandbox/index.ts'
import { type Store, openStore } from '../../src/store/index.ts'
import { makeWorld, throwsCode } from './world.ts'

let dataDir: string
let store: Store

before(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'atoll-service-'))
  store = await openStore({ dataDir })
})

after(async () => {
  await store.close()
  await rm(dataDir, { recursive: true })
})

const disk = { kind: 'disk_only' } as const

async function sandboxWorld(limits: Parameters<typeof makeWorld>[1] = {}) {
  const world = await makeWorld(store, limits)
  const { sandbox } = await world.service.create(world.orgId, {})
  const { checkpoints } = world.service
  return {
    ...world,
    sandbox,
    /** Makes one and waits for its end. */
    async checkpoint(name: string, more: object = {}) {
      const { id } = await checkpoints.create(world.orgId, sandbox.id, { name, ...disk, ...more })
      return await checkpoints.settled(world.orgId, id)
    },
    async names() {
      return (await checkpoints.list(world.orgId, sandbox.id)).map(({ name, status }) => `${name} ${status}`)
    },
  }
}

test('a patch that is created while starts run applies to the next one', async () => {
  const { service, machines, orgId, checkpoint } = await sandboxWorld()
  const { id } = await checkpoint('x')
  await service.patches.create(orgId, id, { script: 'echo first' })
  let created = 0
  machines.before.create = async () => {
    if (created++ === 0) await service.patches.create(orgId, id, { script: 'echo second', strategy: 'on_resume' })
  }
  const results = await service.checkpoints.startMany(orgId, id, {}, 3)
  const ids = results.map((result) => (result.status === 'fulfilled' ? result.value.sandbox.id : 'none'))
  assert.deepEqual(machines.scripts.toSorted(), ids.map((sandboxId) => `${sandboxId}: echo first`).toSorted())

  const later = await service.checkpoints.start(orgId, id, {})
  assert.deepEqual(machines.scripts.slice(3), [`${later.sandbox.id}: echo first`, `${later.sandbox.id}: echo second`])

  machines.scripts.length = 0
  await service.hibernate(orgId, later.sandbox.id)
  machines.before.wake = async () => {
    machines.before = {}
    await service.patches.create(orgId, id, { script: 'echo third', strategy: 'on_resume' })
  }
  await service.wake(orgId, later.sandbox.id)
  assert.deepEqual(machines.scripts, [`${later.sandbox.id}: echo second`])
})

test('a delete in the middle of a patch ends it: nobody waits for it, and nothing of it stays', async () => {
  const { service, machines, orgId, sandbox, checkpoint } = await sandboxWorld()
  const { id } = await checkpoint('x')
  const fork = await service.checkpoints.start(orgId, id, {})
  await service.hibernate(orgId, fork.sandbox.id)
  await service.patches.create(orgId, id, { script: 'hang', strategy: 'on_resume' })
  await service.patches.create(orgId, id, { script: 'echo never', strategy: 'on_resume' })
  machines.before.hibernate = () => Promise.reject(new Error('it was put to sleep'))
  const forkId = fork.sandbox.id
  const startedId = newId('sb-')
  for (const [sandboxId, start] of [
    [forkId, () => service.wake(orgId, forkId)],
    [startedId, () => service.checkpoints.start(orgId, id, { id: startedId })],
  ] as const) {
    const outcome = assert.rejects(start(), throwsCode('sandbox_stopped'))
    while (machines.running.size === 0) await sleep(5)
    await service.delete(orgId, sandboxId)
    await outcome
    assert.equal(machines.running.size, 0)
    assert.equal((await service.get(orgId, sandboxId)).status, 'stopped')
  }
  assert.deepEqual(machines.scripts, [`${forkId}: hang`, `${startedId}: hang`])
  assert.deepEqual([...machines.machines.keys()], [sandbox.id])
})

test('a server that stops in the middle of a patch ends it and waits for nobody', async () => {
  const { service, machines, orgId, checkpoint } = await sandboxWorld()
  const { id } = await checkpoint('x')
  const fork = await service.checkpoints.start(orgId, id, {})
  await service.hibernate(orgId, fork.sandbox.id)
  await service.patches.create(orgId, id, { script: 'hang', strategy: 'on_resume' })
  const starts = [service.wake(orgId, fork.sandbox.id), service.checkpoints.start(orgId, id, {})]
  const outcomes = starts.map((start) => assert.rejects(start, throwsCode('unavailable', /the server stops/)))
  while (machines.running.size < 2) await sleep(5)
  await service.close()
  await Promise.all(outcomes)
  assert.equal(machines.running.size, 0)
})

test('a failed patch after which the sandbox cannot sleep again leaves it running, and the record says so', async () => {
  const { service, machines, orgId, checkpoint } = await sandboxWorld()
  const { id } = await checkpoint('x')
  const { sandbox } = await service.checkpoints.start(orgId, id, {})
  const patch = await service.patches.create(orgId, id, { script: 'exit 3', strategy: 'on_resume' })
  await service.hibernate(orgId, sandbox.id)
  await assert.rejects(service.wake(orgId, sandbox.id), throwsCode('patch_failed'))
  assert.equal((await service.get(orgId, sandbox.id)).status, 'hibernated')
  machines.before.hibernate = () => Promise.reject(new ServiceError('conflict', 'an io_uring is open'))
  await assert.rejects(service.wake(orgId, sandbox.id), throwsCode('patch_failed'))
  const awake = await service.get(orgId, sandbox.id)
  assert.deepEqual([awake.status, awake.reason], ['running', 'patch_failed'])
  assert.match(awake.reasonMessage ?? '', new RegExp(patch.id))
  assert.ok(service.endAt(awake), 'its clock runs')
})

test('many starts at once each have their own result, and input that would fail all fails the call', async () => {
  const { service, machines, orgId, checkpoint } = await sandboxWorld({ runningSandboxesMax: 4 })
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

test('a hundred starts of one call each have a sandbox of their own', async () => {
  const { service, orgId, checkpoint } = await sandboxWorld()
  const { id } = await checkpoint('x')
  const results = await service.checkpoints.startMany(orgId, id, {}, 100)
  const ids = results.map((result) => (result.status === 'fulfilled' ? result.value.sandbox.id : 'none'))
  assert.equal(new Set(ids).size, 100)
  assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 100)
})

test('a taken name is refused before anything makes room for it', async () => {
  const { service, orgId, sandbox, checkpoint, names } = await sandboxWorld()
  await checkpoint('a')
  const retentionPolicy = { mode: 'delete_oldest', maxCount: 1 } as const
  const again = service.checkpoints.create(orgId, sandbox.id, { name: 'a', ...disk, retentionPolicy })
  await assert.rejects(again, throwsCode('conflict', /"a"/))
  assert.deepEqual(await names(), ['a ready'])
})

test('the oldest go once the new one is ready; a dump that fails costs none, and is the next to go', async () => {
  const { machines, checkpoint, names } = await sandboxWorld({ diskOnlyCheckpointsMax: 3 })
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

test('one that the service has made for itself makes room for none of a client', async () => {
  const { service, orgId, sandbox, checkpoint, names } = await sandboxWorld()
  await service.checkpoints.create(orgId, sandbox.id, {
    id: 'cp-0123456789abcdef',
    name: 'fork session_0123456789abcdef',
    ...disk,
  })
  await service.checkpoints.settled(orgId, 'cp-0123456789abcdef')
  for (const name of ['a', 'b']) await checkpoint(name, { retentionPolicy: { mode: 'delete_oldest', maxCount: 1 } })
  assert.deepEqual(await names(), ['fork session_0123456789abcdef ready', 'b ready'])
})

test('checkpoints that failed take no place', async () => {
  const { machines, checkpoint, names } = await sandboxWorld({ diskOnlyCheckpointsMax: 2 })
  machines.before.checkpoint = () => Promise.reject(new ServiceError('no_capacity', 'the disk is full'))
  for (const name of ['a', 'b', 'c']) await checkpoint(name)
  assert.deepEqual(await names(), ['b failed', 'c failed'], 'they are few all the same')
  machines.before = {}
  for (const name of ['d', 'e']) await checkpoint(name)
  assert.deepEqual(await names(), ['d ready', 'e ready'])
  await assert.rejects(checkpoint('f'), throwsCode('conflict'))
})

test('the limits are 10 full and 100 disk-only checkpoints, for calls at the same time too', async () => {
  const { service, machines, orgId, sandbox } = await sandboxWorld()
  machines.capabilities = { fullCheckpoints: true }
  for (const [kind, max] of [
    ['full', 10],
    ['disk_only', 100],
  ] as const) {
    const outcomes = await Promise.allSettled(
      Array.from({ length: max + 5 }, (_, index) =>
        service.checkpoints.create(orgId, sandbox.id, { name: `${kind} ${index}`, kind }),
      ),
    )
    const refused = outcomes.filter((outcome) => outcome.status === 'rejected')
    assert.equal(refused.length, 5)
    for (const { reason } of refused) assert.ok(throwsCode('conflict', new RegExp(`${max} ${kind}`))(reason))
  }
})

test('a checkpoint keeps its sandbox awake until it is ready, and its clock begins anew then', async () => {
  const { service, machines, orgId, sandbox } = await sandboxWorld()
  await service.setTimeout(orgId, sandbox.id, 1)
  const dump = Promise.withResolvers<void>()
  machines.before.checkpoint = () => dump.promise
  const { id } = await service.checkpoints.create(orgId, sandbox.id, { name: 'x', ...disk })
  machines.before.hibernate = () => Promise.reject(new Error('it was put to sleep'))
  await sleep(1300)
  assert.equal((await service.get(orgId, sandbox.id)).reasonMessage, undefined)
  const readyAfter = Date.now()
  dump.resolve()
  await service.checkpoints.settled(orgId, id)
  const end = service.endAt(await service.get(orgId, sandbox.id))
  assert.ok(end && end.getTime() >= readyAfter + 1000)
})

test('a stopped sandbox and one in error are not checkpointed, and a failed checkpoint starts nothing', async () => {
  const { service, machines, orgId, sandbox, checkpoint } = await sandboxWorld()
  machines.before.checkpoint = () => Promise.reject(new ServiceError('conflict', 'an io_uring is open'))
  const failed = await checkpoint('x')
  for (const start of [
    () => service.checkpoints.start(orgId, failed.id, {}),
    () => service.checkpoints.startMany(orgId, failed.id, {}, 2),
  ]) {
    await assert.rejects(start(), throwsCode('conflict', /io_uring/))
  }
  await service.delete(orgId, sandbox.id)
  await assert.rejects(checkpoint('y'), throwsCode('sandbox_stopped'))
  const { sandbox: other } = await service.create(orgId, {})
  machines.exit({ sandboxId: other.id, reason: 'oom', message: 'out of memory' })
  while ((await service.get(orgId, other.id)).status !== 'error') await sleep(5)
  await assert.rejects(
    service.checkpoints.create(orgId, other.id, { name: 'z', ...disk }),
    throwsCode('conflict', /out of memory/),
  )
})

test('a restore is counted before it happens, and one that touched nothing is not counted', async () => {
  const { service, machines, orgId, sandbox, checkpoint } = await sandboxWorld()
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
