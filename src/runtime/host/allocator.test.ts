import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { Allocator } from './allocator.ts'

test('allocator: a released number is reused after all others', () => {
  const claims = new Allocator('places', 3, 4)
  assert.deepEqual([claims.take(new Set()), claims.take(new Set()), claims.take(new Set())], [1, 2, 0])
  assert.equal(claims.take(new Set([1])), 2)
})

test('allocator: no free number is no_capacity', () => {
  const claims = new Allocator('places', 2, 0)
  assert.throws(
    () => claims.take(new Set([0, 1])),
    (error) => isServiceError(error, 'no_capacity'),
  )
})
