import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defined } from './defined.ts'

test('defined: fields without a value are left out, null and empty ones stay', () => {
  assert.deepEqual(Object.keys(defined({ a: undefined, b: null, c: '', d: 0 })), ['b', 'c', 'd'])
})
