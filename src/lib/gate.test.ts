import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as later } from 'node:timers/promises'
import { Gate } from './gate.ts'

test('a gate lets through as many as it is wide, and the next when one is done or has failed', async () => {
  const gate = new Gate(2)
  let inside = 0
  let most = 0
  const work = (fails: boolean) =>
    gate.pass(async () => {
      inside += 1
      most = Math.max(most, inside)
      await later()
      inside -= 1
      if (fails) throw new Error('failed')
    })
  const results = await Promise.allSettled([true, false, true, false, true].map(work))
  assert.equal(most, 2)
  assert.deepEqual(
    results.map((result) => result.status),
    ['rejected', 'fulfilled', 'rejected', 'fulfilled', 'rejected'],
  )
  await work(false)
})

test('who has entered leaves once, however often it says so', async () => {
  const gate = new Gate(1)
  const leave = await gate.enter()
  const second = gate.enter()
  leave()
  leave()
  const leaveAgain = await second
  const third = gate.enter()
  let isIn = false
  void third.then(() => (isIn = true))
  await later()
  assert.equal(isIn, false)
  leaveAgain()
  await third
})

test('who gives up while waiting takes nobody’s turn', async () => {
  const gate = new Gate(1)
  const leave = await gate.enter()
  const controller = new AbortController()
  const first = gate.enter(controller.signal)
  const second = gate.enter()
  controller.abort(new Error('given up'))
  await assert.rejects(first, /given up/)
  leave()
  const leaveSecond = await second
  controller.abort()
  leaveSecond()
  await gate.pass(() => Promise.resolve())
})
