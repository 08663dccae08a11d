import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import { guestProcess, hold, throwsCode, worlds } from './world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const { makeWorld, makeSandbox } = worlds()
const disk = { kind: 'disk_only' } as const

test('idle timeout: the sandbox hibernates, and the next operation wakes it', async () => {
  const { service, machines, orgId } = await makeWorld()
  const { sandbox } = await service.create(orgId, { timeoutSeconds: 1 })
  await eventually(() => machines.state(sandbox.id) === 'hibernated')
  await eventually(async () => (await service.get(orgId, sandbox.id)).status === 'hibernated')
  await service.files.list(orgId, sandbox.id, '/')
  assert.equal(machines.state(sandbox.id), 'running')
})

test('idle timeout: a keep-alive lease and a client process prevent hibernation', async () => {
  const { service, machines, orgId } = await makeWorld()
  const { sandbox } = await service.create(orgId, {})
  const release = service.previews.keepAlive(sandbox.id)
  await service.setTimeout(orgId, sandbox.id, 1)
  await sleep(1300)
  assert.equal(machines.state(sandbox.id), 'running')
  machines.clientProcesses = [guestProcess(newId('es-'))]
  release()
  await sleep(1300)
  assert.equal(machines.state(sandbox.id), 'running')
  machines.clientProcesses = []
  await eventually(() => machines.state(sandbox.id) === 'hibernated')
})

test('idle timeout: the clock begins at the end of a client process, to the second', async () => {
  const { service, machines, orgId } = await makeWorld()
  const endedAt = `${new Date().toISOString().slice(0, 19)}Z`
  machines.clientProcesses = [guestProcess(newId('es-'), { running: false, exitCode: 0, endedAt })]
  const slept = Promise.withResolvers<number>()
  machines.before.hibernate = async () => slept.resolve(Date.now())
  await service.create(orgId, { timeoutSeconds: 1 })
  assert.ok((await slept.promise) >= Date.parse(endedAt) + 2000)
})

test('idle timeout: calls of another organisation do not restart the clock', async () => {
  const { service, sandbox } = await makeSandbox()
  const end = service.endAt(sandbox)
  const stranger = newId('org_')
  await sleep(5)
  for (const operation of [
    service.exec.run(stranger, sandbox.id, { cmd: 'true' }),
    service.exec.attach(stranger, sandbox.id, newId('es-')),
    service.files.read(stranger, sandbox.id, '/a'),
    service.files.list(stranger, sandbox.id, '/'),
  ]) {
    await assert.rejects(operation, throwsCode('not_found'))
  }
  assert.deepEqual(service.endAt(sandbox), end)
})

test('idle timeout: a refused hibernation leaves the sandbox running with the reason', async () => {
  const { service, machines, orgId } = await makeWorld()
  machines.before.hibernate = () => Promise.reject(new Error('an open io_uring'))
  const { sandbox } = await service.create(orgId, { timeoutSeconds: 1 })
  await eventually(async () => (await service.get(orgId, sandbox.id)).reason !== undefined)
  const still = await service.get(orgId, sandbox.id)
  assert.equal(still.status, 'running')
  assert.match(still.reasonMessage ?? '', /io_uring/)
})

test('idle timeout: 0 never ends, and endAt is the end of another', async () => {
  const { service, orgId } = await makeWorld()
  const { sandbox } = await service.create(orgId, { timeoutSeconds: 0 })
  assert.equal(service.endAt(sandbox), undefined)
  await service.setTimeout(orgId, sandbox.id, 2_592_000)
  const end = service.endAt(await service.get(orgId, sandbox.id))
  assert.ok(end && end.getTime() - Date.now() > 2_591_000_000)
})

/** Reboots an idle sandbox at the moment at which the service asks its guest for client processes. */
async function rebootedWhileIdle(answer: () => Promise<void>) {
  const world = await makeWorld()
  const { service, machines, orgId } = world
  const restart = Promise.withResolvers<void>()
  const reboot = Promise.withResolvers<unknown>()
  machines.before.restart = () => restart.promise
  machines.before.hibernate = () => Promise.reject(new Error('it was hibernated'))
  machines.before.processes = async () => {
    delete machines.before.processes
    reboot.resolve(service.reboot(orgId, id))
    // The clock must not run out once more before the test has ended.
    await service.setTimeout(orgId, id, 3600)
    setImmediate(restart.resolve)
    await answer()
  }
  const { id } = (await service.create(orgId, {})).sandbox
  await service.setTimeout(orgId, id, 1)
  await reboot.promise
  // Waits for the transitions that were requested meanwhile.
  await service.wake(orgId, id)
  return { ...world, sandbox: await service.get(orgId, id) }
}

const isSilent = () => Promise.reject(new ServiceError('unavailable', 'the guest does not answer'))
for (const [guest, answer] of [
  ['an answering', async () => undefined],
  ['a silent', isSilent],
] as const) {
  test(`idle timeout: a clock that runs out during a reboot has no effect, with ${guest} guest`, async () => {
    const { sandbox, warnings } = await rebootedWhileIdle(answer)
    assert.deepEqual([sandbox.status, sandbox.reason, warnings], ['running', undefined, []])
  })
}

test('idle timeout: the clock stands still during a reboot', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  const { begun, release } = hold(machines, 'restart')
  const reboot = service.reboot(orgId, sandbox.id)
  await begun
  const beganMs = Date.now()
  await sleep(5)
  assert.ok(service.endAt(sandbox)!.getTime() > beganMs + 300_000)
  release()
  await reboot
})

test('idle timeout: a checkpoint keeps its sandbox alive until it is ready, and the clock restarts then', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  const dump = Promise.withResolvers<void>()
  machines.before.checkpoint = () => dump.promise
  machines.before.hibernate = () => Promise.reject(new Error('it was hibernated'))
  const { id } = await service.checkpoints.create(orgId, sandbox.id, { name: 'x', ...disk })
  await service.setTimeout(orgId, sandbox.id, 1)
  await sleep(1300)
  assert.equal((await service.get(orgId, sandbox.id)).reasonMessage, undefined)
  const readyAfter = Date.now()
  dump.resolve()
  await service.checkpoints.settled(orgId, id)
  const end = service.endAt(await service.get(orgId, sandbox.id))
  assert.ok(end && end.getTime() >= readyAfter + 1000)
})
