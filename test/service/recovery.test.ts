import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import type { ReconcileReport } from '../../src/sandbox/index.ts'
import { forgetSandboxes, hold, throwsCode, worlds } from './world.ts'

const { makeWorld, sharedStore } = worlds()

afterEach(() => forgetSandboxes(sharedStore()))

test('recovery: every record says what became of its machine', async () => {
  const first = await makeWorld()
  const { orgId, store } = first
  const create = async () => (await first.service.create(orgId, {})).sandbox.id
  const [adopted, rebooted, lost, cutOff] = [await create(), await create(), await create(), await create()]
  const [asleep, awakeByCrash, forgotten] = [await create(), await create(), await create()]
  for (const id of [asleep, awakeByCrash, forgotten]) await first.service.hibernate(orgId, id)
  await store.sandboxes.updateSandbox(cutOff, { status: 'creating' })
  const ready = await first.service.checkpoints.create(orgId, adopted, { name: 'ready', kind: 'disk_only' })
  const dumping = await first.service.checkpoints.create(orgId, adopted, { name: 'dumping', kind: 'disk_only' })
  await first.service.checkpoints.settled(orgId, ready.id)
  await first.service.checkpoints.settled(orgId, dumping.id)
  await store.sandboxes.updateCheckpoint(dumping.id, { status: 'processing' })
  const deleted = await create()
  await first.service.delete(orgId, deleted)
  const removed = await first.service.checkpoints.create(orgId, adopted, { name: 'removed', kind: 'disk_only' })
  first.machines.before.deleteCheckpoint = () => Promise.reject(new Error('cut off'))
  await assert.rejects(first.service.checkpoints.delete(orgId, adopted, removed.id), /cut off/)
  await first.service.close()

  const second = await makeWorld()
  for (const [id, machine] of first.machines.machines)
    second.machines.machines.set(id, { ...machine, state: 'running' })
  second.machines.report = {
    running: [adopted, awakeByCrash],
    dormant: [asleep, rebooted, forgotten],
    forgotten: [forgotten],
    lost: [lost],
  }
  await second.service.start()

  const known = second.machines.opened
  assert.deepEqual(known?.sandboxIds.toSorted(), [adopted, asleep, awakeByCrash, forgotten, lost, rebooted].toSorted())
  assert.deepEqual(known?.checkpointIds, [ready.id])
  assert.deepEqual(known?.abandoned.sandboxIds.toSorted(), [cutOff, deleted].toSorted())
  assert.deepEqual(known?.abandoned.checkpointIds.toSorted(), [dumping.id, removed.id].toSorted())
  assert.deepEqual(await store.sandboxes.deletedCheckpointIds(), [])
  for (const [id, ...expected] of [
    [adopted, 'running', undefined],
    [asleep, 'hibernated', undefined],
    [forgotten, 'hibernated', 'host_lost'],
    [rebooted, 'hibernated', 'host_lost'],
    [lost, 'error', 'host_lost'],
    [awakeByCrash, 'hibernated', undefined],
    [cutOff, 'error', 'runtime_failed'],
  ] as const) {
    const { status, reason } = await second.service.get(orgId, id)
    assert.deepEqual([status, reason], expected)
  }
  assert.equal(second.machines.state(awakeByCrash), 'hibernated')
  assert.equal((await second.service.checkpoints.settled(orgId, dumping.id)).status, 'failed')
  assert.equal((await second.service.checkpoints.settled(orgId, ready.id)).status, 'ready')
  await second.service.close()
})

test('recovery: sandboxes on an unreachable host keep their records and answer unavailable', async () => {
  const first = await makeWorld()
  const { orgId } = first
  const create = async () => (await first.service.create(orgId, {})).sandbox.id
  const [running, hibernated] = [await create(), await create()]
  await first.service.hibernate(orgId, hibernated)
  await first.service.close()

  const { service, machines, warnings } = await makeWorld()
  machines.report = { unreachable: [running, hibernated] }
  machines.before.wake = () => Promise.reject(new ServiceError('unavailable', 'the host does not answer'))
  await service.start()
  const states = () => Promise.all([running, hibernated].map(async (id) => (await service.get(orgId, id)).status))
  assert.deepEqual(await states(), ['running', 'hibernated'])
  // The fake has no machines now, so its guests do not answer.
  for (const id of [running, hibernated]) {
    await assert.rejects(service.exec.list(orgId, id), throwsCode('unavailable'))
  }
  assert.deepEqual(await states(), ['running', 'hibernated'])
  const kept = await service.get(orgId, running)
  assert.deepEqual([kept.reason, warnings], [undefined, []])
  await service.close()
})

test('quarantine: a quarantined record says so, and a returned one can be used again', async () => {
  const first = await makeWorld()
  const { orgId } = first
  const { sandbox } = await first.service.create(orgId, {})
  const other = (await first.service.create(orgId, {})).sandbox
  const input = { name: 'a', kind: 'disk_only' } as const
  const checkpoint = await first.service.checkpoints.create(orgId, other.id, input)
  await first.service.checkpoints.settled(orgId, checkpoint.id)
  await first.service.close()

  const start = async (report: Partial<ReconcileReport>) => {
    const { service, machines } = await makeWorld()
    machines.report = { dormant: [other.id], ...report }
    await service.start()
    const { status, reason, reasonMessage = '' } = await service.get(orgId, sandbox.id)
    const settled = await service.checkpoints.settled(orgId, checkpoint.id)
    await service.close()
    return { sandbox: [status, reason], reasonMessage, checkpoint: [settled.status, settled.error] }
  }
  const quarantined = [
    { kind: 'sandbox', id: sandbox.id, reason: 'unreadable', fault: 'it is damaged' },
    { kind: 'checkpoint', id: checkpoint.id, reason: 'damaged' },
  ] as const
  const lists = { lost: [sandbox.id], lostCheckpoints: [checkpoint.id] }
  const lost = await start({ ...lists, quarantined: [...quarantined] })
  assert.deepEqual(lost.sandbox, ['error', 'host_lost'])
  assert.match(lost.reasonMessage, /its record cannot be read \(it is damaged\); its disk is in quarantine/)
  const why = 'its disk or memory is not whole; what is left of it is in quarantine'
  assert.deepEqual(lost.checkpoint, ['failed', why])
  assert.deepEqual(await start(lists), lost, 'the reason stays')

  const back = await start({ dormant: [other.id, sandbox.id], takenBack: [sandbox.id, checkpoint.id] })
  assert.deepEqual(back.sandbox, ['hibernated', 'host_lost'])
  assert.deepEqual(back.checkpoint, ['ready', undefined])
})

test('purge: each stopped sandbox is deleted again, and a failure keeps the record', async () => {
  const { service, machines, orgId, store, warnings } = await makeWorld()
  const ids = [(await service.create(orgId, {})).sandbox.id, (await service.create(orgId, {})).sandbox.id] as const
  for (const id of ids) await store.sandboxes.updateSandbox(id, { status: 'stopped', stoppedAt: new Date(0) })
  machines.before.delete = (id) => (id === ids[0] ? Promise.reject(new Error('stuck')) : Promise.resolve())
  await service.purge(new Date(1), new AbortController().signal)
  assert.deepEqual(await store.sandboxes.stoppedSandboxIds(), [ids[0]])
  assert.deepEqual([...machines.machines.keys()], [ids[0]])
  assert.deepEqual(warnings, ['remains of a stopped sandbox cannot be removed'])
  machines.before = {}
  await service.close()
})

test('recovery: a machine that cannot be hibernated runs on', async () => {
  const first = await makeWorld()
  const { sandbox } = await first.service.create(first.orgId, {})
  await first.service.hibernate(first.orgId, sandbox.id)
  await first.service.close()

  const second = await makeWorld()
  second.machines.report = { running: [sandbox.id] }
  second.machines.before.hibernate = async () => {
    throw new ServiceError('conflict', 'its memory cannot be saved')
  }
  await second.service.start()
  assert.equal((await second.service.get(first.orgId, sandbox.id)).status, 'running')
  await second.service.close()
})

test('close: transitions under way are recorded first', async () => {
  const { service, machines, orgId, store } = await makeWorld()
  const { sandbox } = await service.create(orgId, {})
  const { begun, release } = hold(machines, 'hibernate')
  const hibernation = service.hibernate(orgId, sandbox.id)
  await begun
  const closing = service.close()
  release()
  await closing
  assert.equal((await store.sandboxes.sandbox(sandbox.id))?.status, 'hibernated')
  await hibernation
})
