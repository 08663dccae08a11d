import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import { guestProcess, hold, throwsCode, worlds } from './world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const { makeWorld, makeSandbox } = worlds()

test('driver permits: slow starts and dumps of one organisation leave permits to others, and a waiting sandbox can be deleted', async () => {
  const { service, machines, orgId, store } = await makeWorld({ startsAtOnce: 2 })
  machines.capabilities = { fullCheckpoints: true }
  const { sandbox } = await service.create(orgId, {})
  const held = Promise.withResolvers<void>()
  let under = 0
  const slow = async () => {
    under += 1
    await held.promise
  }
  machines.before = { create: slow, checkpoint: slow }
  const checkpoint = await service.checkpoints.create(orgId, sandbox.id, { name: 'slow' })
  const started = service.create(orgId, {})
  await eventually(() => under === 2)
  const id = newId('sb-')
  const outcome = assert.rejects(service.create(orgId, { id }), throwsCode('sandbox_stopped'))
  await eventually(async () => (await store.sandboxes.sandbox(id)) !== undefined)
  await service.delete(orgId, id)
  await outcome
  assert.equal(under, 2)

  machines.before = {}
  const other = newId('org_')
  await store.organisations.insertOrganisation({ id: other, name: 'other' })
  assert.equal((await service.create(other, {})).sandbox.status, 'running')
  held.resolve()
  assert.equal((await started).sandbox.status, 'running')
  assert.equal((await service.checkpoints.settled(orgId, checkpoint.id)).status, 'ready')
})

/** An organisation whose one driver permit a checkpoint holds until `end`, and another sandbox. */
async function busyWorld() {
  const world = await makeWorld({ startsAtOnce: 1, wakeWaitMs: 50 })
  const { service, machines, orgId } = world
  const dumped = (await service.create(orgId, {})).sandbox
  const { id } = (await service.create(orgId, { timeoutSeconds: 0 })).sandbox
  const { begun, release } = hold(machines, 'checkpoint')
  const checkpoint = await service.checkpoints.create(orgId, dumped.id, { name: 'slow', kind: 'disk_only' })
  await begun
  return { ...world, id, dumpedId: dumped.id, checkpointId: checkpoint.id, end: release }
}

test('driver permits: an idle sandbox that waits for one serves its users, and does not hibernate once it is used', async () => {
  const { service, machines, orgId, id, end } = await busyWorld()
  const asked = Promise.withResolvers<void>()
  machines.before.processes = async () => asked.resolve()
  await service.setTimeout(orgId, id, 1)
  await asked.promise
  await sleep(20)
  await service.files.list(orgId, id, '/')
  const release = service.previews.keepAlive(id)
  end()
  // Permits are served in order: this boot runs after the wait of the idle sandbox.
  await service.create(orgId, {})
  assert.equal(machines.state(id), 'running')
  release()
  await eventually(() => machines.state(id) === 'hibernated')
})

test('driver permits: an idle sandbox that waits for one is checked again for client processes', async () => {
  const { service, machines, orgId, id, end } = await busyWorld()
  const asked = Promise.withResolvers<void>()
  machines.before.processes = async () => asked.resolve()
  await service.setTimeout(orgId, id, 1)
  await asked.promise
  await sleep(20)
  machines.clientProcesses = [guestProcess(newId('es-'))]
  end()
  await service.create(orgId, {})
  assert.equal(machines.state(id), 'running')
})

test('driver permits: a waiting sandbox can be deleted, and a stopping server waits only for transitions that have begun', async () => {
  const { service, machines, orgId, id, dumpedId, checkpointId, end, store } = await busyWorld()
  const other = (await store.sandboxes.sandbox(id))!
  const givesUp = throwsCode('unavailable', /server stops/)
  const rebooted = assert.rejects(service.reboot(orgId, id), givesUp)
  await sleep(20)
  await service.delete(orgId, id)
  assert.equal(machines.state(id), undefined)
  const slept = assert.rejects(service.hibernate(orgId, dumpedId), givesUp)
  await sleep(20)
  const closed = service.close()
  end()
  await Promise.all([closed, rebooted, slept])
  assert.equal(machines.state(dumpedId), 'running')
  assert.equal((await store.sandboxes.checkpoint(checkpointId, other.orgId))?.status, 'ready')
})

test('wake: concurrent operations share one', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  await service.hibernate(orgId, sandbox.id)
  let wakes = 0
  machines.before.wake = async () => {
    wakes += 1
    await sleep(30)
  }
  await Promise.all(Array.from({ length: 8 }, () => service.files.list(orgId, sandbox.id, '/')))
  assert.equal(wakes, 1)
})

test('wake: one that waits for a hibernation to end holds back operations too', async () => {
  const { service, machines, sandbox, orgId } = await makeSandbox()
  const { begun, release } = hold(machines, 'hibernate')
  const asleep = service.hibernate(orgId, sandbox.id)
  await begun
  const woken = service.wake(orgId, sandbox.id)
  await setImmediate()
  let isListed = false
  const listed = service.files.list(orgId, sandbox.id, '/').then(() => (isListed = true))
  await sleep(20)
  assert.equal(isListed, false)
  release()
  await Promise.all([asleep, woken, listed])
  assert.equal(machines.state(sandbox.id), 'running')
})

test('wake: past its deadline it answers unavailable and goes on', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox({ wakeWaitMs: 50 })
  await service.hibernate(orgId, sandbox.id)
  const { release } = hold(machines, 'wake')
  await assert.rejects(service.files.list(orgId, sandbox.id, '/'), throwsCode('unavailable'))
  release()
  await eventually(async () => (await service.get(orgId, sandbox.id)).status === 'running')
})

test('wake: one failure is the answer of all that wait for it, and keeps the sandbox hibernated', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  await service.hibernate(orgId, sandbox.id)
  const begun = Promise.withResolvers<void>()
  const held = Promise.withResolvers<void>()
  let wakes = 0
  machines.before.wake = async () => {
    wakes += 1
    begun.resolve()
    await held.promise
    throw new ServiceError('no_capacity', 'no memory left')
  }
  const list = () => assert.rejects(service.files.list(orgId, sandbox.id, '/'), throwsCode('no_capacity'))
  const first = Array.from({ length: 20 }, list)
  await begun.promise
  const then = [
    ...Array.from({ length: 20 }, list),
    assert.rejects(service.wake(orgId, sandbox.id, { timeoutSeconds: 60 })),
  ]
  await sleep(20)
  held.resolve()
  await Promise.all([...first, ...then])
  assert.equal(wakes, 1)
  assert.equal((await service.get(orgId, sandbox.id)).status, 'hibernated')
  machines.before = {}
  assert.equal((await service.wake(orgId, sandbox.id, { timeoutSeconds: 60 })).timeoutSeconds, 60)
})

test('hibernate: a failure that ended the processes leaves the sandbox hibernated with the reason', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  machines.before.hibernate = async () => {
    machines.machines.get(sandbox.id)!.state = 'hibernated'
    throw new Error('the disk could not be measured')
  }
  await assert.rejects(service.hibernate(orgId, sandbox.id), /could not be measured/)
  const asleep = await service.get(orgId, sandbox.id)
  assert.deepEqual([asleep.status, asleep.reason], ['hibernated', 'runtime_failed'])
  await service.files.list(orgId, sandbox.id, '/')
  const awake = await service.get(orgId, sandbox.id)
  assert.deepEqual([awake.status, awake.reason], ['running', undefined])
})

test('wake: a failed patch keeps the sandbox hibernated, also when the machine ends meanwhile', async () => {
  const { service, machines, orgId, checkpoint } = await makeSandbox()
  const { id } = await checkpoint('x')
  const { sandbox } = await service.checkpoints.start(orgId, id, {})
  await service.hibernate(orgId, sandbox.id)
  await service.patches.create(orgId, id, { script: 'exit 3', strategy: 'on_resume' })
  machines.before.hibernate = async () => {
    machines.machines.get(sandbox.id)!.state = 'hibernated'
    throw new Error('the disk could not be measured')
  }
  await assert.rejects(service.wake(orgId, sandbox.id), throwsCode('patch_failed'))
  const asleep = await service.get(orgId, sandbox.id)
  assert.deepEqual([asleep.status, asleep.reason], ['hibernated', 'patch_failed'])
})

test('wake: calls on records and refused input cause none; calls that need the guest do', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  const { id } = sandbox
  await service.hibernate(orgId, id)
  const { exec, files, previews } = service
  await service.get(orgId, id)
  await service.checkpoints.list(orgId, id)
  await previews.put(orgId, id, { port: 3000 })
  await previews.list(orgId, id)
  await service.setTags(orgId, id, { team: 'a' })
  await service.setTimeout(orgId, id, 60)
  await files.sign(orgId, id, { operation: 'upload', path: '/a', expiresInSeconds: 3600 })
  for (const input of [
    { cmd: 'ls', cwd: 'relative' },
    { cmd: 'ls', envs: { 'A=B': 'c' } },
    { cmd: 'ls', user: 'a b' },
    { cmd: 'ls', args: ['\0'] },
    { cmd: ' ' },
  ]) {
    await assert.rejects(exec.run(orgId, id, input), throwsCode('invalid_request'))
    await assert.rejects(exec.runAsync(orgId, id, input), throwsCode('invalid_request'))
    await assert.rejects(exec.start(orgId, id, input), throwsCode('invalid_request'))
  }
  await assert.rejects(exec.startPty(orgId, id, { cols: 80, rows: 24, cwd: 'relative' }), throwsCode('invalid_request'))
  await assert.rejects(exec.kill(orgId, id, newId('ps-')), throwsCode('not_found'))
  await assert.rejects(exec.attach(orgId, id, newId('ps-')), throwsCode('not_found'))
  assert.equal(machines.state(id), 'hibernated')
  await exec.list(orgId, id)
  assert.equal(machines.state(id), 'running')
})

test('exit: the sandbox is in error with the reason, and only a delete is possible', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  machines.exit({ sandboxId: sandbox.id, reason: 'oom', message: 'out of memory' })
  await eventually(async () => (await service.get(orgId, sandbox.id)).status === 'error')
  assert.equal((await service.get(orgId, sandbox.id)).reason, 'oom')
  for (const operation of [
    service.files.list(orgId, sandbox.id, '/'),
    service.setTimeout(orgId, sandbox.id, 60),
    service.setTags(orgId, sandbox.id, { team: 'a' }),
    service.scaling.scale(orgId, sandbox.id, 2048),
    service.previews.put(orgId, sandbox.id, { port: 3000 }),
    service.previews.rotate(orgId, sandbox.id),
    service.files.sign(orgId, sandbox.id, { operation: 'download', path: '/a', expiresInSeconds: 3600 }),
  ]) {
    await assert.rejects(operation, throwsCode('conflict', /out of memory/))
  }
  await service.delete(orgId, sandbox.id)
  assert.equal((await service.get(orgId, sandbox.id)).status, 'stopped')
})

test('exit: one during a restart does not count after it', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  machines.before.restart = async () => {
    machines.exit({ sandboxId: sandbox.id, reason: 'runtime_failed', message: 'the first process ended' })
  }
  await service.powerCycle(orgId, sandbox.id)
  // Waits until its reported exit is handled.
  await service.wake(orgId, sandbox.id)
  assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
})

test('exit: one during a hibernation is an error, because the memory is lost', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  machines.before.hibernate = async () => {
    machines.exit({ sandboxId: sandbox.id, reason: 'oom', message: 'out of memory' })
  }
  await assert.rejects(service.hibernate(orgId, sandbox.id), throwsCode('unavailable'))
  await eventually(async () => (await service.get(orgId, sandbox.id)).status === 'error')
  assert.equal((await service.get(orgId, sandbox.id)).reason, 'oom')
})

test('reboot: it leaves the sandbox running, and a failure leaves it hibernated with the reason', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  assert.equal((await service.reboot(orgId, sandbox.id)).status, 'running')
  machines.before.restart = async () => {
    await machines.hibernate(sandbox.id)
    throw new ServiceError('no_capacity', 'the pool is full')
  }
  await assert.rejects(service.powerCycle(orgId, sandbox.id), throwsCode('no_capacity'))
  const asleep = await service.get(orgId, sandbox.id)
  assert.deepEqual([asleep.status, asleep.reasonMessage], ['hibernated', 'the pool is full'])
  await service.files.list(orgId, sandbox.id, '/')
  assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
})
