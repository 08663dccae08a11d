import assert from 'node:assert/strict'
import { test } from 'node:test'
import { singleFlight } from './single-flight.ts'

test('a shared call: those who ask while it runs get its result, the next one a new one', async () => {
  let calls = 0
  let running = Promise.withResolvers<number>()
  const shared = singleFlight(() => {
    calls++
    return running.promise
  })
  const first = [shared(), shared(), shared()]
  running.resolve(1)
  assert.deepEqual(await Promise.all(first), [1, 1, 1])
  assert.equal(calls, 1)
  running = Promise.withResolvers()
  const second = [shared(), shared()]
  running.reject(new Error('away'))
  for (const result of await Promise.allSettled(second)) assert.equal(result.status, 'rejected')
  assert.equal(calls, 2)
  running = Promise.withResolvers()
  running.resolve(3)
  assert.equal(await shared(), 3)
})
