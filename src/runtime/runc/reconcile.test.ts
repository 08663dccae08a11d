import assert from 'node:assert/strict'
import { test } from 'node:test'
import { adoptAll } from './reconcile.ts'
import type { SandboxRecord } from './records.ts'

test('sandboxes that let the server wait do so at the same time, and hold up no other', async () => {
  const ids = Array.from({ length: 10 }, (_, index) => `sb-${index}`)
  const liars = ids.slice(0, 9)
  let waiting = 0
  const everyLiar = Promise.withResolvers<void>()
  const adopted = await adoptAll(
    {
      pool: { has: async () => true },
      sandboxes: { get: (id) => ({ id, layers: [] }) as unknown as SandboxRecord },
      adopt: async ({ id }) => {
        if (!liars.includes(id)) return true
        waiting += 1
        if (waiting === liars.length) everyLiar.resolve()
        await everyLiar.promise
        return false
      },
    },
    ids,
  )
  assert.deepEqual([...adopted], ['sb-9'])
})
