import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Allocator, References } from './references.ts'
import { checkpointRecord, memoryOf, sandboxRecord } from './testing/records.ts'

test('references: a path is unused from its last reference until another, or until it is gone', () => {
  const references = new References()
  const layers = [{ checkpointId: 'cp-1', rangeStart: 7 }]
  const sandbox = sandboxRecord('sb-1', 3, { rangeStart: 5, layers, memory: memoryOf('sb-1.a') })
  const checkpoint = checkpointRecord('cp-1', { layers })
  references.add(sandbox)
  references.add(checkpoint)
  references.remove(sandbox)
  assert.deepEqual(references.unused, ['memory/saved/sb-1.a'])
  assert.deepEqual([references.slots.has(3), references.ranges.has(5), references.ranges.has(7)], [false, false, true])
  references.remove(checkpoint)
  assert.deepEqual(references.unused, ['memory/saved/sb-1.a', 'layers/cp-1'])
  references.add(sandbox)
  assert.deepEqual(references.unused, [])
  references.remove(sandbox)
  references.forget('layers/cp-1')
  references.found('layers/cp-2')
  assert.deepEqual(references.unused, ['memory/saved/sb-1.a', 'layers/cp-2'])
})

test('references: paths other than layers and memory are never removed', () => {
  const references = new References()
  for (const name of ['..', '.', '', 'cp/../..', '../sandboxes/sb-2']) {
    const folders = [`memory/saved/${name}`, `memory/${name}`, name, `sandboxes/sb-2`, '/etc', 'memory/runs/sb-2']
    for (const folder of folders) {
      const layers = [{ checkpointId: name, rangeStart: 7 }]
      const record = sandboxRecord('sb-1', 3, { layers, memory: memoryOf('', { folder }) })
      references.add(record)
      references.remove(record)
    }
  }
  assert.deepEqual(references.unused, [])
})

test('allocator: a released number is reused after all others, and no free number is no_capacity', () => {
  const allocator = new Allocator('slots', 3, 4)
  const take = (...taken: number[]) => allocator.take((number) => taken.includes(number))
  assert.deepEqual([take(), take(), take()], [1, 2, 0])
  assert.equal(take(1), 2)
  assert.throws(() => take(0, 1, 2), { code: 'no_capacity' })
})
