import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as yieldNow } from 'node:timers/promises'
import { FairYield } from './fair-yield.ts'

test('a fair yield: so many go on at a time, in order, and the event loop has its turn in between', async () => {
  const pieces = new FairYield(2)
  const done: string[] = []
  const workers = ['a', 'b', 'c', 'd', 'e'].map(async (name) => {
    for (let piece = 1; piece <= 2; piece++) {
      await pieces.next()
      done.push(`${name}${piece}`)
    }
  })
  const seen: number[] = []
  while (done.length < 10) {
    await yieldNow()
    seen.push(done.length)
  }
  await Promise.all(workers)
  assert.deepEqual(done, ['a1', 'b1', 'c1', 'd1', 'e1', 'a2', 'b2', 'c2', 'd2', 'e2'])
  const steps = seen.map((count, index) => count - (seen[index - 1] ?? 0))
  assert.ok(
    steps.every((step) => step <= 2),
    steps.join(' '),
  )
})
