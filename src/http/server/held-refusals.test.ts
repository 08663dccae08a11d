import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextRound } from 'node:timers/promises'
import { HeldRefusals } from './held-refusals.ts'

test('held refusals: the first of a caller are prompt, further ones wait, and others are not touched', async () => {
  const refusals = new HeldRefusals(200)
  const began = performance.now()
  let prompt = 0
  const all = Array.from({ length: 60 }, () => refusals.hold('greedy').then(() => (prompt += 1)))
  await nextRound()
  assert.ok(prompt >= 50 && prompt < 60, `${prompt} of 60 at once`)
  let isAnswered = false
  void refusals.hold('modest').then(() => (isAnswered = true))
  await nextRound()
  assert.ok(isAnswered)
  // The timer does not keep a process alive.
  const alive = setInterval(() => undefined, 1000)
  await Promise.all(all)
  clearInterval(alive)
  assert.ok(performance.now() - began >= 190)
})

test('held refusals: a caller with too many that wait is answered at once', async () => {
  const refusals = new HeldRefusals(60_000)
  let answered = 0
  for (let count = 0; count < 1200; count++) void refusals.hold('greedy').then(() => (answered += 1))
  await nextRound()
  assert.ok(answered >= 150 && answered < 250, `${answered} of 1200`)
})
