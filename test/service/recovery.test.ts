import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import { type Log, silentLog } from '../../src/lib/log.ts'
import type { ReconcileReport } from '../../src/sandbox/index.ts'
import { purgeSandboxes } from '../../src/sandbox/recovery.ts'
import { openStore } from '../../src/store/index.ts'
import { imageDir } from '../support/images.ts'
import { makeWorld, throwsCode } from './world.ts'

async function emptyStore() {
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-recovery-'))
  const store = await openStore({ dataDir, imageDir })
  return Object.assign(store, {
    async [Symbol.asyncDispose]() {
      await store.close()
      await rm(dataDir, { recursive: true })
    },
  })
}

test('boot: a delete aborts it without an error in the log', async () => {
  await using store = await emptyStore()
  const { service, machines, errors, orgId } = await makeWorld(store)
  const begun = Promise.withResolvers<void>()
  machines.before.create = (signal) => {
    begun.resolve()
    return new Promise((_resolve, reject) => signal?.addEventListener('abort', () => reject(signal.reason as Error)))
  }
  const id = newId('sb-')
  const created = assert.rejects(
    service.create(orgId, { id }),
    throwsCode('sandbox_stopped', /deleted while it started/),
  )
  await begun.promise
  await service.delete(orgId, id)
  await created
  assert.equal((await service.get(orgId, id)).status, 'stopped')
  assert.deepEqual(errors, [])
  machines.before.create = () => Promise.reject(new Error('a bug'))
  await assert.rejects(service.create(orgId, {}), /a bug/)
  assert.deepEqual(errors, ['a sandbox could not be started'])
  await service.close()
})

test('recovery: every record says what became of its machine', async () => {
  await using store = await emptyStore()
  const first = await makeWorld(store)
  const { orgId } = first
  const create = async () => (await first.service.create(orgId, {})).sandbox.id
  const adopted = await create()
  const asleep = await create()
  const rebooted = await create()
  const lost = await create()
  const awakeByCrash = await create()
  const forgotten = await create()
  for (const id of [asleep, forgotten]) await first.service.hibernate(orgId, id)
  await first.service.hibernate(orgId, awakeByCrash)
  const cutOff = await create()
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

  const second = await makeWorld(store)
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
  const states = async (id: string) => {
    const { status, reason } = await second.service.get(orgId, id)
    return [status, reason]
  }
  assert.deepEqual(await states(adopted), ['running', undefined])
  assert.deepEqual(await states(asleep), ['hibernated', undefined])
  assert.deepEqual(await states(forgotten), ['hibernated', 'host_lost'])
  assert.deepEqual(await states(rebooted), ['hibernated', 'host_lost'])
  assert.deepEqual(await states(lost), ['error', 'host_lost'])
  assert.deepEqual(await states(awakeByCrash), ['hibernated', undefined])
  assert.deepEqual(await states(cutOff), ['error', 'runtime_failed'])
  assert.equal(second.machines.state(awakeByCrash), 'hibernated')
  assert.equal((await second.service.checkpoints.settled(orgId, dumping.id)).status, 'failed')
  assert.equal((await second.service.checkpoints.settled(orgId, ready.id)).status, 'ready')
  await second.service.close()
})

test('recovery: sandboxes on an unreachable host keep their records and answer unavailable', async () => {
  await using store = await emptyStore()
  const first = await makeWorld(store)
  const { orgId } = first
  const create = async () => (await first.service.create(orgId, {})).sandbox.id
  const [running, hibernated] = [await create(), await create()]
  await first.service.hibernate(orgId, hibernated)
  await first.service.close()

  const { service, machines, warnings } = await makeWorld(store)
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
  await using store = await emptyStore()
  const first = await makeWorld(store)
  const { orgId } = first
  const { sandbox } = await first.service.create(orgId, {})
  const other = (await first.service.create(orgId, {})).sandbox
  const input = { name: 'a', kind: 'disk_only' } as const
  const checkpoint = await first.service.checkpoints.create(orgId, other.id, input)
  await first.service.checkpoints.settled(orgId, checkpoint.id)
  await first.service.close()

  const start = async (report: Partial<ReconcileReport>) => {
    const { service, machines } = await makeWorld(store)
    machines.report = { dormant: [other.id], ...report }
    await service.start()
    const { status, reason, reasonMessage = '' } = await service.get(orgId, sandbox.id)
    const settled = await service.checkpoints.settled(orgId, checkpoint.id)
    await service.close()
    return { sandbox: [status, reason], reasonMessage, checkpoint: [settled.status, settled.error] }
  }
  const quarantined = [
    { kind: 'sandbox', id: sandbox.id, reason: 'unreadable' },
    { kind: 'checkpoint', id: checkpoint.id, reason: 'damaged' },
  ] as const
  const lists = { lost: [sandbox.id], lostCheckpoints: [checkpoint.id] }
  const lost = await start({ ...lists, quarantined: [...quarantined] })
  assert.deepEqual(lost.sandbox, ['error', 'host_lost'])
  assert.match(lost.reasonMessage, /its record cannot be read; its disk is in quarantine/)
  const why = 'its disk or memory is not whole; what is left of it is in quarantine'
  assert.deepEqual(lost.checkpoint, ['failed', why])
  assert.deepEqual(await start(lists), lost, 'the reason stays')

  const back = await start({ dormant: [other.id, sandbox.id], takenBack: [sandbox.id, checkpoint.id] })
  assert.deepEqual(back.sandbox, ['hibernated', 'host_lost'])
  assert.deepEqual(back.checkpoint, ['ready', undefined])
})

test('purge: each stopped sandbox is deleted again, and a failure keeps the record', async () => {
  await using store = await emptyStore()
  const { service, machines, orgId, warnings } = await makeWorld(store)
  const ids = [(await service.create(orgId, {})).sandbox.id, (await service.create(orgId, {})).sandbox.id] as const
  for (const id of ids) await store.sandboxes.updateSandbox(id, { status: 'stopped', stoppedAt: new Date(0) })
  machines.before.delete = (id) => (id === ids[0] ? Promise.reject(new Error('stuck')) : Promise.resolve())
  await purgeSandboxes({ store: store.sandboxes, driver: machines, log: recording(warnings) }, new Date(1))
  assert.deepEqual(await store.sandboxes.stoppedSandboxIds(), [ids[0]])
  assert.deepEqual([...machines.machines.keys()], [ids[0]])
  assert.deepEqual(warnings, ['remains of a stopped sandbox cannot be removed'])
  machines.before = {}
  await service.close()
})

function recording(warnings: string[]): Log {
  return { ...silentLog, warn: (_facts, message) => warnings.push(message) }
}

test('recovery: a machine that cannot be hibernated runs on', async () => {
  await using store = await emptyStore()
  const first = await makeWorld(store)
  const { sandbox } = await first.service.create(first.orgId, {})
  await first.service.hibernate(first.orgId, sandbox.id)
  await first.service.close()

  const second = await makeWorld(store)
  second.machines.report = { running: [sandbox.id] }
  second.machines.before.hibernate = async () => {
    throw new ServiceError('conflict', 'its memory cannot be saved')
  }
  await second.service.start()
  assert.equal((await second.service.get(first.orgId, sandbox.id)).status, 'running')
  await second.service.close()
})

test('close: transitions under way are recorded first', async () => {
  await using store = await emptyStore()
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const begun = Promise.withResolvers<void>()
  const goOn = Promise.withResolvers<void>()
  machines.before.hibernate = async () => {
    begun.resolve()
    await goOn.promise
  }
  const hibernation = service.hibernate(orgId, sandbox.id)
  await begun.promise
  const closing = service.close()
  goOn.resolve()
  await closing
  assert.equal((await store.sandboxes.sandbox(sandbox.id))?.status, 'hibernated')
  await hibernation
})
