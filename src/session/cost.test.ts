import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sessionCostUsd } from './session.ts'

const price = { inputPerMillion: 1, cacheReadPerMillion: 0.1, cacheWritePerMillion: 1.25, outputPerMillion: 10 }
const used = { inputTokens: 1000, cacheReadTokens: 500, cacheWriteTokens: 100, outputTokens: 10 }

test('a session has cost what its calls cost when they were made, whatever a call costs now', () => {
  assert.equal(sessionCostUsd({ ...used, costNanoUsd: 1_500_000_000 }, price), 1.5)
  assert.equal(sessionCostUsd({ ...used, costNanoUsd: 1_500_000_000 }, undefined), 1.5)
})

test('where that is not known, it is what the tokens cost now, and nothing is told without a price', () => {
  assert.equal(sessionCostUsd(used, price), (400 * 1 + 500 * 0.1 + 100 * 2 + 10 * 10) / 1e6)
  assert.equal(sessionCostUsd(used, undefined), undefined)
})
