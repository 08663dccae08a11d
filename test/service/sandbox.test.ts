import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import { type Sandbox } from '../../src/sandbox/index.ts'
import { makeWorld as makeWorldOn, throwsCode, worlds } from './world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const { makeWorld, makeSandbox, sharedStore } = worlds()

test('sandbox: one without options runs with the defaults', async () => {
  const { machines, sandbox } = await makeSandbox()
  assert.equal(sandbox.status, 'running')
  assert.equal(machines.state(sandbox.id), 'running')
  const { cpuCount, memoryMb, diskMb, timeoutSeconds, image } = sandbox
  assert.deepEqual([cpuCount, memoryMb, diskMb, timeoutSeconds, image], [1, 1024, 10_240, 300, 'base'])
})

test('sandbox: a value outside the configured limits names its field and creates nothing', async () => {
  const { service, machines, orgId } = await makeWorld()
  const wrong = [
    [{ timeoutSeconds: -1 }, /timeout/],
    [{ timeoutSeconds: 2_592_001 }, /timeout/],
    [{ memoryMb: 1.5 }, /memoryMB/],
    [{ cpuCount: 0 }, /cpuCount/],
    [{ envs: { 'A=B': 'c' } }, /envs/],
    [{ envs: { A: 'b\0' } }, /envs\.A/],
    [{ previewAuth: { scheme: 'bearer', token: 'short' } }, /previewAuth\.token/],
    [{ image: '../base' }, /templateID/],
  ] as const
  for (const [input, field] of wrong) {
    await assert.rejects(service.create(orgId, input), throwsCode('invalid_request', field))
  }
  assert.equal(machines.machines.size, 0)
})

test('boot: a failure leaves no machine, and its reason on the record', async () => {
  const { service, machines, orgId } = await makeWorld()
  machines.before.create = () => Promise.reject(new ServiceError('no_capacity', 'the pool is full'))
  await assert.rejects(service.create(orgId, {}), throwsCode('no_capacity', /pool/))
  const [stopped] = (await service.list(orgId, { status: 'stopped' })).items
  assert.equal(stopped?.reason, 'runtime_failed')
  assert.equal(stopped?.reasonMessage, 'the pool is full')
  assert.equal(machines.machines.size, 0)
})

test('boot: a failure under an announced id can be retried under that id', async () => {
  const { service, machines, orgId } = await makeWorld()
  const id = newId('sb-')
  machines.before.create = () => Promise.reject(new Error('a fault of ours'))
  await assert.rejects(service.create(orgId, { id }), /a fault of ours/)
  assert.equal((await service.get(orgId, id)).status, 'error')
  await assert.rejects(service.exec.list(orgId, id), throwsCode('conflict'))
  machines.before = {}
  const { sandbox } = await service.create(orgId, { id })
  assert.equal(sandbox.status, 'running')
  assert.equal(sandbox.reason, undefined)
})

test('boot: a retry keeps tags, timeout and preview token that were set in between', async () => {
  const { service, machines, orgId } = await makeWorld()
  const id = newId('sb-')
  machines.before.create = async () => {
    await service.setTags(orgId, id, { team: 'reef' })
    await service.setTimeout(orgId, id, 7)
    await service.previews.rotate(orgId, id)
    throw new Error('a fault of ours')
  }
  await assert.rejects(service.create(orgId, { id }), /a fault of ours/)
  machines.before = {}
  const failed = await service.get(orgId, id)
  assert.ok(failed.previewTokenHash)
  const { sandbox } = await service.create(orgId, { id })
  const kept = ({ tags, tagsUpdatedAt, timeoutSeconds, previewTokenHash }: Sandbox) =>
    [tags, tagsUpdatedAt, timeoutSeconds, previewTokenHash] as const
  assert.deepEqual(kept(sandbox), kept(failed))
  assert.deepEqual([sandbox.tags, sandbox.timeoutSeconds], [{ team: 'reef' }, 7])
})

test('boot: a delete that comes as soon as the record is there aborts it', async () => {
  const store = sharedStore()
  let recorded = async (_id: string) => {}
  const insertSandbox = async (sandbox: Sandbox) => {
    await store.sandboxes.insertSandbox(sandbox)
    await recorded(sandbox.id)
  }
  const { service, machines, orgId } = await makeWorldOn({ ...store, sandboxes: { ...store.sandboxes, insertSandbox } })
  recorded = (id) => service.delete(orgId, id)
  let starts = 0
  machines.before.create = async () => void starts++
  const id = newId('sb-')
  await assert.rejects(service.create(orgId, { id }), throwsCode('sandbox_stopped', /deleted while it started/))
  assert.equal((await service.get(orgId, id)).status, 'stopped')
  assert.deepEqual([starts, machines.machines.size], [0, 0])
})

test('boot: a delete aborts it, leaves nothing and logs no error; a fault is logged', async () => {
  const { service, machines, orgId, store, errors } = await makeWorld()
  const id = newId('sb-')
  machines.before.create = (signal) =>
    new Promise((_resolve, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted'))))
  const creating = service.create(orgId, { id })
  await eventually(async () => (await store.sandboxes.sandbox(id)) !== undefined)
  const outcome = assert.rejects(creating, throwsCode('sandbox_stopped', /deleted while it started/))
  await service.delete(orgId, id)
  await outcome
  assert.equal((await service.get(orgId, id)).status, 'stopped')
  assert.equal(machines.machines.size, 0)
  assert.deepEqual(errors, [])
  machines.before.create = () => Promise.reject(new Error('a bug'))
  await assert.rejects(service.create(orgId, {}), /a bug/)
  assert.deepEqual(errors, ['a sandbox could not be started'])
})

test('delete: it is final, repeatable, and ends every operation with sandbox_stopped', async () => {
  const { service, machines, events, orgId, sandbox } = await makeSandbox()
  await service.delete(orgId, sandbox.id)
  await service.delete(orgId, sandbox.id)
  assert.equal(machines.machines.size, 0)
  const operations = [
    service.files.list(orgId, sandbox.id, '/'),
    service.files.pack(orgId, sandbox.id, [{ path: '/', name: '' }]),
    service.files.unpack(orgId, sandbox.id, Readable.from([]), { target: '/' }),
    service.wake(orgId, sandbox.id),
    service.setTimeout(orgId, sandbox.id, 5),
    service.files.sign(orgId, sandbox.id, { operation: 'upload', path: '/a', expiresInSeconds: 3600 }),
    service.checkpoints.create(orgId, sandbox.id, { name: 'x', kind: 'disk_only' }),
  ]
  await Promise.all(operations.map((operation) => assert.rejects(operation, throwsCode('sandbox_stopped'))))
  await eventually(() => events.length >= 2)
  const statuses = events.map((event) => event.type === 'sandbox_changed' && event.status)
  assert.deepEqual(statuses, ['running', 'stopped'])
})

test('quota: the limit of running sandboxes holds for concurrent creations', async () => {
  const { service, machines, orgId } = await makeWorld({ runningSandboxesMax: 3 })
  const outcomes = await Promise.allSettled(Array.from({ length: 6 }, () => service.create(orgId, {})))
  assert.equal(outcomes.filter((outcome) => outcome.status === 'fulfilled').length, 3)
  assert.equal(machines.machines.size, 3)
  const [refused] = outcomes.filter((outcome) => outcome.status === 'rejected')
  assert.ok(refused && throwsCode('rate_limited')(refused.reason))
})

test('quota: the limit of running sandboxes holds for concurrent wakes and restarts', async () => {
  const { service, orgId } = await makeWorld({ runningSandboxesMax: 6 })
  const created = await Promise.all(Array.from({ length: 6 }, () => service.create(orgId, {})))
  const ids = created.map(({ sandbox }) => sandbox.id)
  for (const id of ids) await service.hibernate(orgId, id)
  for (let index = 0; index < 4; index++) await service.create(orgId, {})
  const outcomes = await Promise.allSettled(
    ids.map((id, index) => (index % 2 === 0 ? service.wake(orgId, id) : service.reboot(orgId, id))),
  )
  const refused = outcomes.filter((outcome) => outcome.status === 'rejected')
  assert.equal(refused.length, 4)
  for (const { reason } of refused) assert.ok(throwsCode('rate_limited')(reason))
  const { items } = await service.list(orgId, { status: 'running' })
  assert.equal(items.length, 6)
  const [first] = items
  await service.delete(orgId, first!.id)
  const left = (await service.list(orgId, { status: 'hibernated' })).items
  await service.wake(orgId, left[0]!.id)
})

test('preview host: it resolves to sandbox, port and the token last rotated; a hostile one resolves to nothing', async () => {
  const { service, orgId, sandbox } = await makeSandbox()
  const resolve = () => service.previews.resolve(service.previews.hostname(sandbox.id, 3000))
  const target = await resolve()
  assert.deepEqual([target?.sandbox.id, target?.port, target?.tokenHash], [sandbox.id, 3000, undefined])
  await service.previews.rotate(orgId, sandbox.id)
  const rotated = (await resolve())?.tokenHash
  await service.previews.rotate(orgId, sandbox.id)
  const again = (await resolve())?.tokenHash
  assert.ok(rotated && again && rotated !== again)
  const labels = ['-p0', '-p65536', '-p03000', ''].map((end) => `${sandbox.id}${end}.`)
  for (const label of [...labels, `x.${sandbox.id}-p1.`, '', `${newId('sb-')}-p80.`]) {
    assert.equal(await service.previews.resolve(`${label}preview.test`), undefined, label)
  }
})
