import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { useWorld } from '../support/use-world.ts'

const world = useWorld()

const calls: [call: string, body: object][] = [
  ['reboot', {}],
  ['power-cycle', {}],
  ['scale', { memoryMB: 2048 }],
]

test('machine: a reboot and a power-cycle end all processes, and the sandbox runs on under its id', async () => {
  const { api } = world
  for (const call of ['reboot', 'power-cycle']) {
    const id = await world.sandbox()
    const path = `/api/sandboxes/${id}`
    const { body } = await api.post(`${path}/exec`, { cmd: 'sleep 60' })
    const again = await api.post(`${path}/${call}`)
    assert.deepEqual([again.status, again.body], [200, {}])
    assert.deepEqual((await api.get(`${path}/exec`)).body, [])
    assert.equal((await api.get(`${path}/exec/${body.sessionID}/result`)).status, 404)
    assert.equal((await api.get(path)).body.status, 'running')
    await api.post(`${path}/hibernate`)
    assert.equal((await api.post(`${path}/${call}`)).status, 200, 'a hibernated one is woken by it')
    assert.equal((await api.get(path)).body.status, 'running')
  }
})

test('machine: scale changes memory and CPU in step, and says what there is now', async () => {
  const { api } = world
  const id = await world.sandbox({ memoryMB: 1024 })
  const path = `/api/sandboxes/${id}`
  const larger = await api.post(`${path}/scale`, { memoryMB: 8192 })
  assert.deepEqual([larger.status, larger.body], [200, { sandboxID: id, memoryMB: 8192, cpuPercent: 200 }])
  const { memoryMB, cpuCount } = (await api.get(path)).body
  assert.deepEqual([memoryMB, cpuCount], [8192, 2])
  const smaller = await api.post(`${path}/scale`, { memoryMB: 512 })
  assert.deepEqual(smaller.body, { sandboxID: id, memoryMB: 512, cpuPercent: 200 })
  for (const body of [
    {},
    { memoryMB: 0 },
    { memoryMB: 1 },
    { memoryMB: 1.5 },
    { memoryMB: '512' },
    { memoryMB: 1e9 },
  ]) {
    const refused = await api.post(`${path}/scale`, body)
    assert.deepEqual([refused.status, refused.body.code], [400, 'invalid_request'], JSON.stringify(body))
    assert.match(refused.body.error, /memoryMB/)
  }
  const { resize } = world.machines
  world.machines.resize = async () => {
    throw new ServiceError('conflict', 'its processes hold more')
  }
  try {
    const full = await api.post(`${path}/scale`, { memoryMB: 128 })
    assert.deepEqual([full.status, full.body.code], [409, 'conflict'])
    assert.equal((await api.get(path)).body.memoryMB, 512)
  } finally {
    world.machines.resize = resize
  }
})

test('machine: unknown, foreign and stopped sandboxes are refused', async () => {
  const { api, stranger } = world
  const id = await world.sandbox()
  for (const [call, body] of calls) {
    assert.equal((await api.post(`/api/sandboxes/sb-unknown00000/${call}`, body)).status, 404)
    assert.equal((await stranger.post(`/api/sandboxes/${id}/${call}`, body)).status, 404)
  }
  await api.delete(`/api/sandboxes/${id}`)
  for (const [call, body] of calls) {
    const { status, body: error } = await api.post(`/api/sandboxes/${id}/${call}`, body)
    assert.deepEqual([status, error.code], [410, 'sandbox_stopped'], call)
  }
})
