import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WarmShares } from './warm-shares.ts'

test('warm shares: an organisation alone may take the last one, one of several if it has taken the fewest lately', () => {
  let nowMs = 0
  const shares = new WarmShares(() => nowMs)
  const take = (orgId: string) => {
    const may = shares.mayTakeLast(orgId)
    if (may) shares.noteTaken(orgId)
    return may
  }
  assert.deepEqual([take('a'), take('a'), shares.isShared], [true, true, false])
  assert.deepEqual([take('b'), take('a'), shares.isShared], [true, false, true])
  assert.deepEqual([take('b'), take('b'), take('b')], [true, true, false], 'it has taken three, the other two')
  nowMs += 11_000
  assert.deepEqual([take('a'), take('a')], [true, false], 'what was taken long ago does not count')
  nowMs += 11 * 60_000
  assert.deepEqual([take('a'), take('a')], [true, true], 'the other has gone')
})

test('warm shares: many takes cost no more than some', () => {
  const shares = new WarmShares()
  for (let count = 0; count < 100_000; count += 1) {
    if (count % 100 === 0) shares.mayTakeLast(`org_${count % 7}`)
    shares.noteTaken(`org_${count % 7}`)
  }
  assert.equal(shares.isShared, true)
})
