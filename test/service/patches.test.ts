import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import { throwsCode, worlds } from './world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const { makeSandbox } = worlds()

test('patch: all run in order at a start, and a failure leaves nothing running', async () => {
  const { service, machines, events, orgId, sandbox } = await makeSandbox()
  const checkpoint = await service.checkpoints.create(orgId, sandbox.id, { name: 'x', kind: 'disk_only' })
  const first = await service.patches.create(orgId, checkpoint.id, { script: 'echo one' })
  assert.deepEqual([first.sequence, first.strategy, first.description], [1, 'on_wake', ''])
  await service.patches.create(orgId, checkpoint.id, { script: 'echo two', strategy: 'on_resume' })
  const fork = await service.checkpoints.start(orgId, checkpoint.id, {})
  assert.deepEqual(machines.scripts, [`${fork.sandbox.id}: echo one`, `${fork.sandbox.id}: echo two`])
  machines.scripts.length = 0
  await service.hibernate(orgId, fork.sandbox.id)
  await service.wake(orgId, fork.sandbox.id)
  assert.deepEqual(machines.scripts, [`${fork.sandbox.id}: echo two`])

  const failing = await service.patches.create(orgId, checkpoint.id, { script: 'exit 3' })
  await service.patches.create(orgId, checkpoint.id, { script: 'echo never' })
  await assert.rejects(service.checkpoints.start(orgId, checkpoint.id, {}), (error: unknown) => {
    assert.ok(throwsCode('patch_failed')(error))
    assert.deepEqual((error as ServiceError).details, {
      patchId: failing.id,
      exitCode: 3,
      stderr: 'told on stderr',
    })
    return true
  })
  assert.ok(!machines.scripts.some((script) => script.includes('never')))
  const told = () => events.filter((event) => event.type === 'patch_applied')
  await eventually(() => told().some((event) => event.patchId === failing.id))
  const exits = told().map(({ sequence, exitCode }) => `${sequence}: ${exitCode}`)
  assert.deepEqual(exits, ['1: 0', '2: 0', '2: 0', '1: 0', '2: 0', '3: 3'])
  assert.equal(told().at(-1)?.output, 'told on stderr')
  assert.deepEqual([...machines.machines.keys()].toSorted(), [sandbox.id, fork.sandbox.id].toSorted())
})

test('patch: one that is created during a start applies to the next', async () => {
  const { service, machines, orgId, checkpoint } = await makeSandbox()
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

test('patch: a delete aborts the running one and leaves nothing', async () => {
  const { service, machines, orgId, sandbox, checkpoint } = await makeSandbox()
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
    await eventually(() => machines.running.size !== 0)
    await service.delete(orgId, sandboxId)
    await outcome
    assert.equal(machines.running.size, 0)
    assert.equal((await service.get(orgId, sandboxId)).status, 'stopped')
  }
  assert.deepEqual(machines.scripts, [`${forkId}: hang`, `${startedId}: hang`])
  assert.deepEqual([...machines.machines.keys()], [sandbox.id])
})

test('patch: a stopping server aborts the running one', async () => {
  const { service, machines, orgId, checkpoint } = await makeSandbox()
  const { id } = await checkpoint('x')
  const fork = await service.checkpoints.start(orgId, id, {})
  await service.hibernate(orgId, fork.sandbox.id)
  await service.patches.create(orgId, id, { script: 'hang', strategy: 'on_resume' })
  const starts = [service.wake(orgId, fork.sandbox.id), service.checkpoints.start(orgId, id, {})]
  const outcomes = starts.map((start) => assert.rejects(start, throwsCode('unavailable', /the server stops/)))
  await eventually(() => machines.running.size >= 2)
  await service.close()
  await Promise.all(outcomes)
  assert.equal(machines.running.size, 0)
})

test('patch: a failure at a wake after which hibernation is refused leaves the sandbox running with the reason', async () => {
  const { service, machines, orgId, checkpoint } = await makeSandbox()
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
