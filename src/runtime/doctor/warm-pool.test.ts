import assert from 'node:assert/strict'
import { test } from 'node:test'
import { foundOf } from './warm-pool.ts'

const gib = 1024 ** 3

test('doctor: the row of warm sandboxes gives their number and what bounds it', () => {
  for (const [given, cores, memoryGib, found] of [
    [undefined, 2, 8, '10 wait for an owner by default: 5 for each of 2 cores'],
    [undefined, 8, 8, '20 wait for an owner by default: as many as 2 % of 8.0 GB of memory holds'],
    [undefined, 64, 512, '64 wait for an owner by default: the most without ATOLL_WARM_POOL'],
    [undefined, 2, 0.3, 'none by default: 2 % of 0.3 GB of memory is too little'],
    [30, 2, 8, '30, as ATOLL_WARM_POOL says'],
    [0, 2, 8, 'none, as ATOLL_WARM_POOL says'],
  ] as const) {
    assert.equal(foundOf(given, cores, memoryGib * gib), found)
  }
})
