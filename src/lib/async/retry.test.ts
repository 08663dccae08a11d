import assert from 'node:assert/strict'
import { test } from 'node:test'
import { backOffMs } from './retry.ts'

test('back-off: the pause doubles with each failure, up to its bound, and jitter only shortens it', () => {
  const pauses = [1, 2, 3, 4, 50].map((failures) => backOffMs(failures, { firstMs: 100, maxMs: 500 }))
  assert.deepEqual(pauses, [100, 200, 400, 500, 500])
  for (let sample = 0; sample < 100; sample++) {
    const pause = backOffMs(2, { firstMs: 100, maxMs: 500, jitter: 0.5 })
    assert.ok(pause > 100 && pause <= 200, String(pause))
  }
})
