import assert from 'node:assert/strict'
import { test } from 'node:test'
import { z } from 'zod'
import { firstFault } from './first-fault.ts'

test('first fault: a list of a hundred thousand faulty items makes one fault', () => {
  const item = z.object({ a: z.string(), b: z.string() })
  for (const schema of [z.object({ list: z.array(item) }), z.object({ list: z.array(item).optional(), more: item })]) {
    const { error } = schema.safeParse({ list: Array.from({ length: 100_000 }, () => ({})) }, firstFault)
    assert.deepEqual([error?.issues.length, error?.issues[0]?.path], [1, ['list', 0, 'a']])
  }
})
