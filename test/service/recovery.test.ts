import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
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

test('a sandbox that is deleted while it starts is no error of the server', async () => {
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

test('after a restart every record says what became of its machine', async () => {
  await using store = await emptyStore()
  const first = await makeWorld(store)
  const { orgId } = first
  const create = async () => (await first.service.create(orgId, {})).sandbox.id
  const adopted = await create()
  const asleep = await create()
  const rebooted = await create()
  const lost = await create()
  const awakeByCrash = await create()
  await first.service.hibernate(orgId, asleep)
  await first.service.hibernate(orgId, awakeByCrash)
  const cutOff = await create()
  await store.sandboxes.updateSandbox(cutOff, { status: 'creating' })
  const ready = await first.service.checkpoints.create(orgId, adopted, { name: 'ready', kind: 'disk_only' })
  const dumping = await first.service.checkpoints.create(orgId, adopted, { name: 'dumping', kind: 'disk_only' })
  await first.service.checkpoints.settled(orgId, ready.id)
  await first.service.checkpoints.settled(orgId, dumping.id)
  await store.sandboxes.updateCheckpoint(dumping.id, { status: 'processing' })
  await first.service.close()

  const second = await makeWorld(store)
  for (const [id, machine] of first.machines.machines)
    second.machines.machines.set(id, { ...machine, state: 'running' })
  second.machines.report = { running: [adopted, awakeByCrash], dormant: [asleep, rebooted], lost: [lost] }
  await second.service.start()

  const known = second.machines.opened
  assert.deepEqual(known?.sandboxIds.toSorted(), [adopted, asleep, awakeByCrash, lost, rebooted].toSorted())
  assert.deepEqual(known?.checkpointIds, [ready.id])
  const states = async (id: string) => {
    const { status, reason } = await second.service.get(orgId, id)
    return [status, reason]
  }
  assert.deepEqual(await states(adopted), ['running', undefined])
  assert.deepEqual(await states(asleep), ['hibernated', undefined])
  assert.deepEqual(await states(rebooted), ['hibernated', 'host_lost'])
  assert.deepEqual(await states(lost), ['error', 'host_lost'])
  assert.deepEqual(await states(awakeByCrash), ['hibernated', undefined])
  assert.deepEqual(await states(cutOff), ['error', 'runtime_failed'])
  assert.equal(second.machines.state(awakeByCrash), 'hibernated')
  assert.equal((await second.service.checkpoints.settled(orgId, dumping.id)).status, 'failed')
  assert.equal((await second.service.checkpoints.settled(orgId, ready.id)).status, 'ready')
  await second.service.close()
})

test('a machine that cannot be put to sleep again at a restart runs on, and is no obstacle', async () => {
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

test('what a closing service has begun is written down before it lets go', async () => {
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
