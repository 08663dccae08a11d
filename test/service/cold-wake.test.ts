import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { hold, throwsCode, worlds } from './world.ts'

const { makeSandbox } = worlds()

/** A hibernated sandbox whose memory CRIU refuses. */
async function makeRefused(limits = {}) {
  const world = await makeSandbox(limits)
  const { service, machines, orgId, sandbox } = world
  await service.hibernate(orgId, sandbox.id)
  const wakes = { count: 0 }
  machines.before.wake = async () => {
    wakes.count += 1
    throw new ServiceError('memory_not_restorable', 'the memory cannot be restored: a lease is held')
  }
  return { ...world, wakes, wake: (memory?: boolean) => service.wake(orgId, sandbox.id, memoryOf(memory)) }
}

function memoryOf(memory: boolean | undefined) {
  return memory === undefined ? {} : { memory }
}

const refused = throwsCode('memory_not_restorable', /a lease is held; wake sandbox sb-\S+ with "memory": false/)

test('wake: memory that CRIU refuses is told once as final, and later operations answer without a try', async () => {
  const { service, orgId, sandbox, wakes, wake } = await makeRefused()
  await assert.rejects(wake(), refused)
  const { status, reason, reasonMessage } = await service.get(orgId, sandbox.id)
  assert.deepEqual([status, reason], ['hibernated', 'memory_not_restorable'])
  assert.match(reasonMessage ?? '', /a lease is held$/)
  await assert.rejects(service.files.list(orgId, sandbox.id, '/'), refused)
  await assert.rejects(service.checkpoints.create(orgId, sandbox.id, { name: 'x', kind: 'disk_only' }), refused)
  await assert.rejects(wake(), refused)
  assert.equal(wakes.count, 1)
})

test('wake: other failures are tried again, and so is refused memory where that is asked for', async () => {
  const { service, machines, orgId, sandbox, wakes, wake } = await makeRefused()
  const refuse = machines.before.wake!
  for (const code of ['no_capacity', 'full_checkpoint_unavailable', 'unavailable', 'conflict'] as const) {
    machines.before.wake = () => Promise.reject(new ServiceError(code, 'not now'))
    await assert.rejects(wake(), throwsCode(code))
    assert.equal((await service.get(orgId, sandbox.id)).reason, undefined)
  }
  machines.before.wake = refuse
  await assert.rejects(wake(), refused)
  await assert.rejects(wake(true), refused)
  assert.equal(wakes.count, 2)
  machines.before = {}
  await assert.rejects(wake(), refused)
  assert.equal((await wake(true)).reason, undefined)
  assert.equal(machines.state(sandbox.id), 'running')
})

test('cold wake: the memory stays as a full checkpoint, and the sandbox runs on its disk', async () => {
  const { service, machines, orgId, sandbox, wake } = await makeRefused()
  await assert.rejects(wake(), refused)
  const running = await wake(false)
  assert.deepEqual([running.status, running.reason, running.reasonMessage], ['running', undefined, undefined])
  const [kept, ...others] = await service.checkpoints.list(orgId, sandbox.id)
  assert.deepEqual([kept?.kind, kept?.status, kept?.sizeBytes, others.length], ['full', 'ready', 11, 0])
  assert.match(kept?.name ?? '', /^before-cold-wake-\d{4}-/)
  const fork = await service.checkpoints.start(orgId, kept!.id, {})
  assert.equal(machines.machines.get(fork.sandbox.id)?.spec.from?.checkpointId, kept!.id)
  // Nothing to keep, and nothing to start.
  await wake(false)
  assert.equal((await service.checkpoints.list(orgId, sandbox.id)).length, 1)
})

test('cold wake: any hibernated sandbox takes it, and one without memory makes no checkpoint', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  await service.hibernate(orgId, sandbox.id)
  await service.wake(orgId, sandbox.id, { memory: false })
  await service.hibernate(orgId, sandbox.id)
  machines.withMemory.clear()
  assert.equal((await service.wake(orgId, sandbox.id, { memory: false, timeoutSeconds: 70 })).timeoutSeconds, 70)
  assert.equal((await service.checkpoints.list(orgId, sandbox.id)).length, 1)
})

test('cold wake: at the limit of full checkpoints it is refused and changes nothing', async () => {
  const { service, machines, orgId, sandbox, wake } = await makeRefused({ fullCheckpointsMax: 1 })
  await wake(false)
  await service.hibernate(orgId, sandbox.id)
  await assert.rejects(wake(false), throwsCode('conflict', /1 full checkpoints, the most/))
  assert.equal(machines.state(sandbox.id), 'hibernated')
  assert.ok(machines.withMemory.has(sandbox.id))
  const [kept] = await service.checkpoints.list(orgId, sandbox.id)
  await service.checkpoints.delete(orgId, sandbox.id, kept!.id)
  await wake(false)
  assert.equal((await service.checkpoints.list(orgId, sandbox.id)).length, 1)
})

test('cold wake: a failure before the memory is kept keeps it; one after it leaves a sandbox that wakes on its disk', async () => {
  const { service, machines, orgId, sandbox, wake } = await makeRefused()
  await assert.rejects(wake(), refused)
  machines.before.checkpoint = () => Promise.reject(new ServiceError('no_capacity', 'the disk pool is full'))
  await assert.rejects(wake(false), throwsCode('no_capacity'))
  assert.ok(machines.withMemory.has(sandbox.id))
  assert.deepEqual(await service.checkpoints.list(orgId, sandbox.id), [])
  delete machines.before.checkpoint
  machines.before.restart = () => Promise.reject(new ServiceError('unavailable', 'the guest is mute'))
  await assert.rejects(wake(false), throwsCode('unavailable'))
  machines.before = {}
  assert.equal((await wake()).status, 'running')
  assert.equal((await service.checkpoints.list(orgId, sandbox.id)).length, 1)
})

test('cold wake: a repeat keeps no memory twice, so that it succeeds at the limit too', async () => {
  const { service, machines, orgId, sandbox, wake } = await makeRefused({ fullCheckpointsMax: 1 })
  const { restart } = machines
  machines.restart = () => Promise.reject(new ServiceError('unavailable', 'its image is gone'))
  await assert.rejects(wake(false), throwsCode('unavailable'))
  assert.ok(machines.withMemory.has(sandbox.id))
  machines.restart = restart
  assert.equal((await wake(false)).status, 'running')
  assert.equal((await service.checkpoints.list(orgId, sandbox.id)).length, 1)
})

test('cold wake: it waits for a wake under way, and operations wait for it', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  await service.hibernate(orgId, sandbox.id)
  const wake = hold(machines, 'wake')
  const restart = hold(machines, 'restart')
  const warm = service.wake(orgId, sandbox.id)
  await wake.begun
  const cold = service.wake(orgId, sandbox.id, { memory: false })
  wake.release()
  await Promise.all([warm, cold])
  assert.deepEqual(await service.checkpoints.list(orgId, sandbox.id), [], 'the wake under way has started it')

  await service.hibernate(orgId, sandbox.id)
  const colds = [1, 2].map(() => service.wake(orgId, sandbox.id, { memory: false }))
  await restart.begun
  const listed = service.files.list(orgId, sandbox.id, '/')
  restart.release()
  await Promise.all([...colds, listed])
  assert.equal((await service.checkpoints.list(orgId, sandbox.id)).length, 1)
})

test('cold wake: it counts for the running sandboxes, and a deletion cancels it', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox({ runningSandboxesMax: 1 })
  await service.hibernate(orgId, sandbox.id)
  const { sandbox: other } = await service.create(orgId, {})
  await assert.rejects(service.wake(orgId, sandbox.id, { memory: false }), throwsCode('rate_limited'))
  await service.delete(orgId, other.id)
  const restart = hold(machines, 'restart')
  const cold = assert.rejects(service.wake(orgId, sandbox.id, { memory: false }), throwsCode('sandbox_stopped'))
  await restart.begun
  const deleted = service.delete(orgId, sandbox.id)
  await eventually(async () => (await service.get(orgId, sandbox.id)).status === 'stopped')
  restart.release()
  await Promise.all([cold, deleted])
  assert.equal(machines.state(sandbox.id), undefined)
})
