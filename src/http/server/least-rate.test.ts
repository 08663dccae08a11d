import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertLeastRate } from './least-rate.ts'

const rate = { bytesPerSecondMin: 1000, graceMs: 3_000, lookMs: 1_000 }

interface Peer {
  bytes: number
  isAwaited: boolean
  isEnded: boolean
  stop: () => void
}

function watched(): Peer {
  const peer: Peer = { bytes: 5_000, isAwaited: true, isEnded: false, stop: () => undefined }
  peer.stop = assertLeastRate(
    { bytes: () => peer.bytes, isAwaited: () => peer.isAwaited, end: () => (peer.isEnded = true) },
    rate,
  )
  return peer
}

test('least rate: a peer of a byte a second is let go when its grace is over', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const peer = watched()
  for (let second = 0; second < 3; second += 1) {
    peer.bytes += 1
    t.mock.timers.tick(1_000)
    assert.equal(peer.isEnded, false, `after ${second + 1} s`)
  }
  t.mock.timers.tick(1_000)
  assert.equal(peer.isEnded, true)
})

test('least rate: a peer that keeps to it, on average, is never let go', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const peer = watched()
  for (let second = 0; second < 100; second += 1) {
    if (second % 3 === 0) peer.bytes += 3_000
    t.mock.timers.tick(1_000)
  }
  assert.equal(peer.isEnded, false)
})

test('least rate: time in which nobody waits for the peer does not count, and none after the end', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const peer = watched()
  peer.isAwaited = false
  t.mock.timers.tick(100_000)
  assert.equal(peer.isEnded, false)
  peer.isAwaited = true
  peer.stop()
  t.mock.timers.tick(100_000)
  assert.equal(peer.isEnded, false)
})
