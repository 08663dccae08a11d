import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ownVersion } from '../../src/lib/version.ts'
import { ApiClient } from '../support/api-client.ts'
import { useWorld } from '../support/world.ts'

const capacity = {
  cpuCount: 2,
  memoryBytes: 2 ** 33,
  memoryAvailableBytes: 2 ** 32,
  diskBytes: 2 ** 40,
  diskAvailableBytes: 2 ** 39,
  runningSandboxes: 5,
  warmSandboxes: 1,
}
const checks = [{ name: 'Node', status: 'works' as const, detail: 'v24' }]
const world = useWorld({
  host: async () => ({
    kernel: '6.1.0',
    runtime: 'runc',
    startedAt: new Date('2026-01-02T03:04:05.678Z'),
    capacity,
    checks,
    checkedAt: new Date('2026-01-02T03:05:00.999Z'),
  }),
})

test('host: a key reads version, capacity and checks, with times to the second', async () => {
  const { status, body } = await world.api.get('/api/host')
  assert.equal(status, 200)
  const { version, ...report } = body
  assert.equal(version, ownVersion())
  assert.deepEqual(report, {
    kernel: '6.1.0',
    runtime: 'runc',
    startedAt: '2026-01-02T03:04:05Z',
    capacity,
    checks,
    checkedAt: '2026-01-02T03:05:00Z',
  })
})

test('host: nobody reads it without a key', async () => {
  assert.equal((await new ApiClient(world.origin, 'no-such-key').get('/api/host')).status, 401)
})

test('host: the operator reads it with its key', async () => {
  const { status, body } = await world.operator.get('/api/host')
  assert.deepEqual([status, body.runtime], [200, 'runc'])
})
