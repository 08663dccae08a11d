import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KeyedGate } from './keyed-gate.ts'

test('each key has the whole width, and is forgotten when nobody is in it or waits', async () => {
  const gate = new KeyedGate(1)
  const leaveOne = await gate.enter('one')
  const next = gate.enter('one')
  const leaveOther = await gate.enter('other')
  assert.deepEqual([gate.users('one'), gate.users('other')], [2, 1])
  leaveOne()
  leaveOne()
  assert.equal(gate.users('one'), 1)
  ;(await next)()
  leaveOther()
  assert.deepEqual([gate.users('one'), gate.users('other')], [0, 0])
  assert.equal(await gate.pass('one', () => Promise.resolve('through')), 'through')
})

test('who gives up while waiting is not counted any more', async () => {
  const gate = new KeyedGate(1)
  const leave = await gate.enter('key')
  const controller = new AbortController()
  const waiting = gate.pass('key', () => assert.fail('it was let in'), controller.signal)
  controller.abort(new Error('given up'))
  await assert.rejects(waiting, /given up/)
  await assert.rejects(gate.enter('key', controller.signal), /given up/)
  assert.equal(gate.users('key'), 1)
  leave()
  assert.equal(gate.users('key'), 0)
})
