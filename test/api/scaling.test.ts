import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Atoll, OomFloorError, Sandbox, ScalingLockedError } from '../../sdk/src/index.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

const mebibyte = 1024 * 1024

async function made(body: object = {}): Promise<{ id: string; path: string }> {
  const id = await world.sandbox(body)
  return { id, path: `/api/sandboxes/${id}` }
}

test('scale: it changes memory and CPU in step, and says what there is now', async () => {
  const { api } = world
  const { id, path } = await made({ memoryMB: 1024 })
  const answer = { sandboxID: id, workerID: 'worker-1', migrated: false, ok: true, autoscaleDisabled: false }
  const larger = await api.post(`${path}/scale`, { memoryMB: 8192 })
  assert.deepEqual([larger.status, larger.body], [200, { ...answer, memoryMB: 8192, cpuPercent: 200 }])
  const now = (await api.get(path)).body
  assert.deepEqual([now.memoryMB, now.cpuCount], [8192, 2])
  const smaller = await api.post(`${path}/scale`, { memoryMB: 512 })
  assert.deepEqual(smaller.body, { ...answer, memoryMB: 512, cpuPercent: 200 })
  for (const memoryMB of [undefined, 0, -1, 1, 1.5, '512', 1e9]) {
    const refused = await api.post(`${path}/scale`, { memoryMB })
    assert.deepEqual([refused.status, refused.body.code, refused.body.field], [400, 'invalid_request', 'memoryMB'])
  }
})

test('scale: a size below what its processes need is refused with how much that is', async () => {
  const { api, machines } = world
  const { id, path } = await made()
  const none = { cpuUs: 0, diskBytes: 0, networkReceivedBytes: 0, networkSentBytes: 0, processCount: 1 }
  machines.usages.set(id, { ...none, memoryBytes: 400 * mebibyte })
  for (const [method, call] of [
    ['POST', 'scale'],
    ['PUT', 'limits'],
  ] as const) {
    const { status, body } = await api.send(method, `${path}/${call}`, { body: { memoryMB: 300 } })
    const { error, ...facts } = body
    assert.match(error, /420 MB/)
    const details = { requestedMB: 300, floorMB: 420, workingSetBytes: 400 * mebibyte }
    assert.deepEqual([status, facts], [409, { code: 'oom_floor', details }])
  }
  assert.equal((await api.get(path)).body.memoryMB, 1024)
})

test('limits: memory, CPU or both change, and a part of a CPU is possible', async () => {
  const { api } = world
  const { id, path } = await made()
  const put = async (body: object) => await api.put(`${path}/limits`, body)
  const answer = { sandboxID: id, workerID: 'worker-1', migrated: false, ok: true }
  assert.deepEqual((await put({})).body, { ...answer, memoryMB: 1024, cpuPercent: 100 })
  assert.deepEqual((await put({ memoryMB: 512, cpuPercent: 0 })).body, { ...answer, memoryMB: 512, cpuPercent: 100 })
  assert.deepEqual((await put({ cpuPercent: 29 })).body, { ...answer, memoryMB: 512, cpuPercent: 29 })
  assert.equal((await api.get(path)).body.cpuCount, 0.29)
  assert.deepEqual((await put({ memoryMB: 2048, cpuPercent: 800 })).body.cpuPercent, 800)
  for (const field of ['memoryMB', 'cpuPercent']) {
    for (const value of [-1, 1.5, 1e9, '100']) {
      const { status, body } = await put({ [field]: value })
      assert.deepEqual([status, body.field], [400, field])
    }
  }
})

test('autoscale: it is set and read, and turned off by a scale and a lock', async () => {
  const { api } = world
  const { id, path } = await made()
  const unset = { sandboxID: id, enabled: false, minMemoryMB: 0, maxMemoryMB: 0 }
  assert.deepEqual((await api.get(`${path}/autoscale`)).body, unset)
  assert.deepEqual((await api.put(`${path}/autoscale`, { enabled: false })).body, unset)
  const bounds = { minMemoryMB: 1024, maxMemoryMB: 8192 }
  const on = { sandboxID: id, enabled: true, ...bounds }
  const enable = () => api.put(`${path}/autoscale`, { enabled: true, ...bounds })
  assert.deepEqual((await enable()).body, on)
  assert.equal((await api.put(`${path}/limits`, { memoryMB: 2048 })).status, 200)
  assert.deepEqual((await api.get(`${path}/autoscale`)).body, on)
  assert.equal((await api.post(`${path}/scale`, { memoryMB: 1024 })).body.autoscaleDisabled, true)
  assert.deepEqual((await api.get(`${path}/autoscale`)).body, { ...on, enabled: false })
  await enable()
  assert.deepEqual((await api.put(`${path}/scaling-lock`, { locked: true })).body, { sandboxID: id, locked: true })
  assert.equal((await api.get(`${path}/autoscale`)).body.enabled, false)
  for (const [body, field] of [
    [{}, 'enabled'],
    [{ enabled: true }, 'minMemoryMB'],
    [{ enabled: true, minMemoryMB: 1024 }, 'maxMemoryMB'],
    [{ enabled: true, minMemoryMB: 1, maxMemoryMB: 1024 }, 'minMemoryMB'],
    [{ enabled: true, minMemoryMB: 4096, maxMemoryMB: 1024 }, 'minMemoryMB'],
    [{ enabled: true, minMemoryMB: 1024, maxMemoryMB: 1e9 }, 'maxMemoryMB'],
  ] as const) {
    const refused = await api.put(`${path}/autoscale`, body)
    assert.deepEqual([refused.status, refused.body.field], [400, field], JSON.stringify(body))
  }
})

test('scaling lock: every change of size is refused until it is unlocked', async () => {
  const { api } = world
  const { id, path } = await made()
  assert.deepEqual((await api.get(`${path}/scaling-lock`)).body, { sandboxID: id, locked: false })
  await api.put(`${path}/scaling-lock`, { locked: true })
  assert.deepEqual((await api.get(`${path}/scaling-lock`)).body, { sandboxID: id, locked: true })
  for (const [method, call, body] of [
    ['POST', 'scale', { memoryMB: 2048 }],
    ['PUT', 'limits', { cpuPercent: 200 }],
    ['PUT', 'autoscale', { enabled: true, minMemoryMB: 1024, maxMemoryMB: 2048 }],
  ] as const) {
    const refused = await api.send(method, `${path}/${call}`, { body })
    assert.deepEqual([refused.status, refused.body.code], [403, 'scaling_locked'], call)
  }
  await api.put(`${path}/scaling-lock`, { locked: false })
  assert.equal((await api.post(`${path}/scale`, { memoryMB: 2048 })).status, 200)
})

test('scaling: unknown, foreign and stopped sandboxes are refused', async () => {
  const { api, stranger } = world
  const { path } = await made()
  const calls = [
    ['PUT', 'limits', { memoryMB: 2048 }],
    ['PUT', 'autoscale', { enabled: false }],
    ['PUT', 'scaling-lock', { locked: true }],
  ] as const
  for (const [method, call, body] of calls) {
    assert.equal((await api.send(method, `/api/sandboxes/sb-unknown00000/${call}`, { body })).status, 404)
    assert.equal((await stranger.send(method, `${path}/${call}`, { body })).status, 404)
  }
  for (const call of ['autoscale', 'scaling-lock']) {
    assert.equal((await stranger.get(`${path}/${call}`)).status, 404)
  }
  await api.delete(path)
  for (const [method, call, body] of calls) {
    const { status, body: error } = await api.send(method, `${path}/${call}`, { body })
    assert.deepEqual([status, error.code], [410, 'sandbox_stopped'], call)
  }
})

test('scaling: the SDK has all of it', async () => {
  const { id } = await made()
  const sandbox = await Sandbox.connect(id, { client: new Atoll({ url: world.origin, apiKey: world.api.key }) })
  assert.equal((await sandbox.scale(4096)).autoscaleDisabled, false)
  assert.deepEqual((await sandbox.setLimits({ cpuPercent: 250 })).cpuPercent, 250)
  const bounds = { minMemoryMB: 1024, maxMemoryMB: 4096 }
  assert.deepEqual(await sandbox.setAutoscale({ enabled: true, ...bounds }), {
    sandboxID: id,
    enabled: true,
    ...bounds,
  })
  assert.equal((await sandbox.setAutoscale({ enabled: false })).enabled, false)
  assert.equal((await sandbox.autoscale()).maxMemoryMB, 4096)
  await sandbox.setScalingLock(true)
  assert.equal(await sandbox.isScalingLocked(), true)
  await assert.rejects(sandbox.scale(1024), ScalingLockedError)
  await sandbox.setScalingLock(false)
  const none = { cpuUs: 0, diskBytes: 0, networkReceivedBytes: 0, networkSentBytes: 0, processCount: 1 }
  world.machines.usages.set(id, { ...none, memoryBytes: 400 * mebibyte })
  await assert.rejects(sandbox.scale(300), OomFloorError)
})
