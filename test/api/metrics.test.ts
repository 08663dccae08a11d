import assert from 'node:assert/strict'
import { test } from 'node:test'
import { useWorld } from '../support/world.ts'

const world = useWorld()

const usage = {
  cpuUs: 7,
  memoryBytes: 1000,
  diskBytes: 5000,
  networkReceivedBytes: 10,
  networkSentBytes: 20,
  processCount: 3,
}

async function metrics(id: string, api = world.api) {
  return await api.get(`/api/sandboxes/${id}/metrics`)
}

test('metrics: a running sandbox tells what it uses and may use', async () => {
  const id = await world.sandbox({ timeout: 0, memoryMB: 512, diskMB: 256 })
  world.machines.usages.set(id, usage)
  const { status, body } = await metrics(id)
  assert.equal(status, 200)
  const { at, ...now } = body.now as { at: string }
  assert.match(at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
  assert.deepEqual(now, {
    cpuPercent: 0,
    cpuCount: 1,
    memoryBytes: 1000,
    memoryLimitBytes: 512 * 2 ** 20,
    diskBytes: 5000,
    diskLimitBytes: 256 * 2 ** 20,
    networkReceivedBytes: 10,
    networkSentBytes: 20,
    processCount: 3,
  })
  assert.deepEqual(body.samples, [])
  world.machines.usages.set(id, { ...usage, diskBytes: undefined })
  assert.equal((await metrics(id)).body.now.diskBytes, null)
})

test('metrics: a hibernated sandbox has none now and is not woken; a stopped one is as when it is read', async () => {
  const id = await world.sandbox({ timeout: 0 })
  world.machines.usages.set(id, usage)
  await world.api.post(`/api/sandboxes/${id}/hibernate`)
  assert.deepEqual((await metrics(id)).body, { now: null, samples: [] })
  assert.equal((await world.api.get(`/api/sandboxes/${id}`)).body.status, 'hibernated')
  await world.api.delete(`/api/sandboxes/${id}`)
  const stopped = await metrics(id)
  assert.deepEqual([stopped.status, stopped.body], [200, { now: null, samples: [] }])
  assert.equal((await world.api.get(`/api/sandboxes/${id}`)).status, stopped.status)
})

test('metrics: the call is no activity, and others do not find the sandbox', async () => {
  const id = await world.sandbox({ timeout: 300 })
  const before = (await world.api.get(`/api/sandboxes/${id}`)).body.endAt as string
  const until = Date.now() + 1100
  while (Date.now() < until) await metrics(id)
  assert.ok(before !== undefined)
  assert.equal((await world.api.get(`/api/sandboxes/${id}`)).body.endAt, before)
  assert.equal((await metrics(id, world.stranger)).status, 404)
  assert.equal((await metrics('sb-0000000000000000')).status, 404)
})
