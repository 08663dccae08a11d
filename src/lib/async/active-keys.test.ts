import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ActiveKeys } from './active-keys.ts'

test('active keys: each counts once, until it has not been used for the time', () => {
  let now = 0
  const keys = new ActiveKeys(10, () => now)
  assert.equal(keys.count, 0)
  keys.note('a')
  now = 5
  keys.note('b')
  keys.note('b')
  assert.equal(keys.count, 2)
  now = 9
  keys.note('a')
  now = 14
  assert.equal(keys.count, 2)
  now = 15
  assert.equal(keys.count, 1)
  now = 19
  assert.equal(keys.count, 0)
})
