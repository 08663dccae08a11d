import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { lockName } from './process-lock.ts'

test('process lock: a name has one holder until it is released', async () => {
  const name = `atoll-test-${randomUUID()}`
  const first = await lockName(name)
  assert.ok(first)
  assert.equal(await lockName(name), undefined)
  await first[Symbol.asyncDispose]()
  const second = await lockName(name)
  assert.ok(second)
  await second[Symbol.asyncDispose]()
})
