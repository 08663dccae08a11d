import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addedLimits, removedLimits } from './limits.ts'

const table = 'inet atoll_test'

test('network limits: sandboxes of a group refer to one rate in each direction, whatever the group is called', () => {
  const limit = { group: 'org "}', bytesPerSecond: 8_000_000 }
  const limits = new Map([
    ['10.0.0.2', limit],
    ['10.0.0.3', limit],
    ['10.0.0.4', { group: 'other', bytesPerSecond: 100_000 }],
  ])
  assert.deepEqual(
    addedLimits(table, limits).filter((line) => !line.includes('_in')),
    [
      'add limit inet atoll_test group_0_out { rate over 8000000 bytes/second burst 2000000 bytes }',
      'add limit inet atoll_test group_1_out { rate over 100000 bytes/second burst 524288 bytes }',
      'add element inet atoll_test limits_out { 10.0.0.2 : "group_0_out" }',
      'add element inet atoll_test limits_out { 10.0.0.3 : "group_0_out" }',
      'add element inet atoll_test limits_out { 10.0.0.4 : "group_1_out" }',
    ],
  )
})

test('network limits: what is added is removed', () => {
  const limits = new Map([['10.0.0.2', { group: 'one', bytesPerSecond: 1_000_000 }]])
  assert.deepEqual(removedLimits(table, limits), [
    'flush map inet atoll_test limits_out',
    'delete limit inet atoll_test group_0_out',
    'flush map inet atoll_test limits_in',
    'delete limit inet atoll_test group_0_in',
  ])
})
