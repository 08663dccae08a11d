import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startDefaults } from '../sandbox.ts'
import { mayBeWarm } from './warm-start.ts'

test('warm start: limits, and what commands get, do not matter; volumes and saved memory do', () => {
  const spec = { id: 'sb-1', ...startDefaults }
  assert.equal(mayBeWarm({}), true)
  assert.equal(mayBeWarm({ ...spec, memoryMb: 4096, from: { checkpointId: 'cp-1' }, volumes: [] }), true)
  assert.equal(
    mayBeWarm({ envs: { A: 'b' }, user: 'node', previewAuth: { scheme: 'bearer' }, timeoutSeconds: 0 }),
    true,
  )
  assert.equal(mayBeWarm({ ...spec, keepsMemory: false }), true)
  assert.equal(mayBeWarm({ ...spec, keepsMemory: true }), false)
  assert.equal(mayBeWarm({ ...spec, volumes: [{ id: 'vol-1', path: '/data', readOnly: true }] }), false)
  assert.equal(mayBeWarm({ volumes: [{ name: 'data', path: '/data' }] }), false)
})
