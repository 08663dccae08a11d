import assert from 'node:assert/strict'
import { test } from 'node:test'
import { boundOf, changedLimits, limitText } from './limits.ts'

test('limits: only what differs is sent, and an empty field is the default again', () => {
  const before = { sandboxesMax: 10, weight: 100 }
  assert.deepEqual(changedLimits({ sandboxesMax: '10', weight: '', keysMax: '0' }, before), {
    weight: null,
    keysMax: 0,
  })
  assert.deepEqual(changedLimits({ sandboxesMax: '10', weight: '100' }, before), {})
})

test('limits: what stands for no bound is called so', () => {
  const limits = {
    memoryMbMax: 1_000_000_000,
    diskBytesPerSecondMax: 2 ** 40,
    diskMbMax: 2048,
    budgetUsdPerMonth: null,
  }
  assert.equal(boundOf(limits, 'memoryMbMax'), undefined)
  assert.equal(boundOf(limits, 'diskBytesPerSecondMax'), undefined)
  assert.deepEqual([limitText(limits, 'diskMbMax'), limitText(limits, 'budgetUsdPerMonth')], ['2 GiB', 'no bound'])
})
