import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TokenBuckets } from './token-bucket.ts'

test('token bucket: the burst passes at once, then one token per interval, and never more than the burst', () => {
  let ms = 0
  const buckets = new TokenBuckets({ perSecond: 10, burst: 3, now: () => ms })
  assert.deepEqual([0, 0, 0], [buckets.take('a'), buckets.take('a'), buckets.take('a')])
  assert.equal(buckets.take('a'), 100)
  assert.equal(buckets.take('b'), 0)
  ms += 100
  assert.equal(buckets.take('a'), 0)
  assert.equal(buckets.take('a'), 100)
  ms += 1_000_000
  assert.deepEqual([0, 0, 0, 100], [buckets.take('a'), buckets.take('a'), buckets.take('a'), buckets.take('a')])
})

test('token bucket: a flood of names drops the least recently used ones', () => {
  const buckets = new TokenBuckets({ perSecond: 1, burst: 1, now: () => 0 })
  assert.equal(buckets.take('first'), 0)
  assert.equal(buckets.take('first'), 1000)
  for (let index = 0; index < 10_000; index++) buckets.take(`flood-${index}`)
  assert.equal(buckets.take('first'), 0)
})
