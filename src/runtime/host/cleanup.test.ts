import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as later } from 'node:timers/promises'
import { allDone } from './cleanup.ts'

test('a fault of parallel steps is thrown only when all have ended', async () => {
  let slowEnded = false
  const slow = later().then(() => {
    slowEnded = true
  })
  await assert.rejects(allDone([Promise.reject(new Error('fast fault')), slow]), /fast fault/)
  assert.ok(slowEnded)
})
