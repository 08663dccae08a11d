import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { sortedInSlices } from './sorted.ts'
import { roundsDuring } from './testing/rounds.ts'

test('sorted: a list is sorted as toSorted does, with equal items in their order', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 0, max: 5000 }),
      fc.integer({ min: 1, max: 2000 }),
      async (length, different) => {
        const items = Array.from({ length }, (_, index) => ({ key: (index * 7919) % different, index }))
        const compare = (a: { key: number }, b: { key: number }) => a.key - b.key
        assert.deepEqual(await sortedInSlices(items, compare), items.toSorted(compare))
      },
    ),
    { numRuns: 30 },
  )
})

test('sorted: other work goes on meanwhile', async () => {
  const items = Array.from({ length: 200_000 }, (_, index) => `file-${(index * 7919) % 200_003}`)
  const rounds = await roundsDuring(() => sortedInSlices(items, (a, b) => (a < b ? -1 : a > b ? 1 : 0)))
  assert.ok(rounds > 20, String(rounds))
})
