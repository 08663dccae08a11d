import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { costNanoUsd, type ModelPrice, type TokenUsage } from './model-price.ts'

const price: ModelPrice = {
  inputPerMillion: 3,
  cacheReadPerMillion: 0.3,
  cacheWritePerMillion: 3.75,
  outputPerMillion: 15,
}
const million = 1_000_000
const none: TokenUsage = {
  inputTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  longCacheWriteTokens: 0,
  outputTokens: 0,
}

test('cost: each kind of token has its rate', () => {
  const cost = (usage: Partial<TokenUsage>) => costNanoUsd(price, { ...none, ...usage }) / 1e9
  assert.equal(cost({ inputTokens: million }), 3)
  assert.equal(cost({ inputTokens: million, cacheReadTokens: million }), 0.3)
  assert.equal(cost({ inputTokens: million, cacheWriteTokens: million }), 3.75)
  assert.equal(cost({ inputTokens: million, cacheWriteTokens: million, longCacheWriteTokens: million }), 6)
  assert.equal(cost({ outputTokens: million }), 15)
  const mixed = { inputTokens: 1000, cacheReadTokens: 700, cacheWriteTokens: 200, longCacheWriteTokens: 50 }
  assert.equal(
    costNanoUsd(price, { ...none, ...mixed, outputTokens: 10 }),
    300_000 + 210_000 + 562_500 + 300_000 + 150_000,
  )
})

test('cost: it is an integer of billionths, and never less for more tokens', () => {
  const count = fc.nat({ max: 1e9 })
  const rate = fc.double({ min: 0, max: 1000, noNaN: true })
  const prices = fc.record({
    inputPerMillion: rate,
    cacheReadPerMillion: rate,
    cacheWritePerMillion: rate,
    outputPerMillion: rate,
  })
  fc.assert(
    fc.property(prices, count, count, count, count, (some, fresh, read, write, output) => {
      const usage = { ...none, inputTokens: fresh + read + write, cacheReadTokens: read, cacheWriteTokens: write }
      const cost = costNanoUsd(some, { ...usage, outputTokens: output })
      assert.ok(Number.isInteger(cost) && cost >= 0)
      const more = { ...usage, inputTokens: usage.inputTokens + 1000, outputTokens: output + 1000 }
      assert.ok(costNanoUsd(some, more) >= cost)
    }),
  )
})
