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
const asked: boolean[] = []
const heldBack = {
  ...{ id: 'cp-1', kind: 'checkpoint' as const, why: 'the database does not know it', sizeBytes: 5 },
  since: new Date('2026-01-02T03:04:05.999Z'),
}
const world = useWorld({
  host: async ({ isFresh = false } = {}) => {
    asked.push(isFresh)
    return {
      kernel: '6.1.0',
      runtime: 'runc',
      startedAt: new Date('2026-01-02T03:04:05.678Z'),
      capacity,
      checks,
      checkedAt: new Date('2026-01-02T03:05:00.999Z'),
    }
  },
  quarantine: async () => ({
    count: 2001,
    items: [
      { ...heldBack, removedAt: new Date('2026-01-09T03:04:05.999Z') },
      { ...heldBack, id: 'sb-1', kind: 'sandbox', sizeBytes: null, removedAt: null },
    ],
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

test('host: checks are run again for who asks so', async () => {
  asked.length = 0
  for (const query of ['', '?fresh=false', '?fresh=true']) await world.api.get(`/api/host${query}`)
  assert.deepEqual(asked, [false, false, true])
  const { status, body } = await world.api.get('/api/host?fresh=1')
  assert.deepEqual([status, /fresh/.test(body.error)], [400, true])
})

test('quarantine: the operator reads what is held back, why and until when; others do not', async () => {
  const { status, body } = await world.operator.get('/api/operator/quarantine')
  assert.equal(status, 200)
  const told = { ...heldBack, since: '2026-01-02T03:04:05Z' }
  assert.deepEqual(body, {
    count: 2001,
    items: [
      { ...told, removedAt: '2026-01-09T03:04:05Z' },
      { ...told, id: 'sb-1', kind: 'sandbox', sizeBytes: null, removedAt: null },
    ],
  })
  assert.equal((await world.api.get('/api/operator/quarantine')).status, 403)
})
