import assert from 'node:assert/strict'
import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { BodyBudget, readBody } from './body-budget.ts'
import { TokenBuckets } from './token-bucket.ts'

test('body budget: the bytes of all requests are bounded and returned', () => {
  const budget = new BodyBudget(100)
  const one = budget.open()
  assert.ok(one.take(60))
  {
    using two = budget.open()
    assert.ok(two.take(40))
    assert.ok(!two.take(1))
  }
  assert.ok(one.take(40))
  one[Symbol.dispose]()
  one[Symbol.dispose]()
  assert.ok(budget.open().take(100))
})

test('body budget: one owner gets a part of it, and the parts of others are unaffected', () => {
  const budget = new BodyBudget(100, { ownerBytesMax: 50 })
  const one = budget.open('a')
  assert.ok(one.take(30))
  const two = budget.open('a')
  assert.ok(!two.take(21))
  assert.ok(two.take(20))
  assert.ok(budget.open('b').take(50))
  one[Symbol.dispose]()
  one[Symbol.dispose]()
  assert.ok(!two.take(31))
  assert.ok(two.take(30))
})

test('body budget: small bodies are accepted when it is exhausted, and are charged beyond the free bytes', () => {
  const budget = new BodyBudget(100, { freeBytes: 10 })
  const large = budget.open()
  assert.ok(large.take(110))
  const small = budget.open()
  assert.ok(small.take(10))
  assert.ok(!small.take(1))
  large[Symbol.dispose]()
  assert.ok(small.take(100))
  assert.ok(!budget.open().take(11))
})

test('body budget: many tiny chunks are charged more than their bytes', async () => {
  const parts = (count: number) => Object.assign(Readable.from(Array(count).fill(Buffer.of(0))), { headers: {} })
  const read = async (count: number) => {
    using share = new BodyBudget(100_000).open()
    const request = parts(count) as unknown as IncomingMessage
    return await readBody(request, { bytesMax: 100_000, share, refuse: (why) => new Error(why) })
  }
  assert.equal((await read(100)).length, 100)
  await assert.rejects(read(1000), /no_room/)
})

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
