import assert from 'node:assert/strict'
import { test } from 'node:test'
import { silentLog } from '../lib/log.ts'
import { Changes } from './changes.ts'

const store = { id: 'ss-1', orgId: 'org_1', name: 'production', isDefault: false }

test('changes: all listeners are told by every name, and their answers are added up', async () => {
  const changes = new Changes(silentLog)
  const told: string[] = []
  const end = changes.listen(async (orgId, { storeId, storeName }) => {
    told.push(`${orgId} ${storeId} ${storeName}`)
    return { refreshed: 1, failures: [] }
  })
  changes.listen(async () => ({ refreshed: 2, failures: [{ sandboxId: 'sb-1', error: 'it is busy' }] }))
  const failure = { sandboxId: 'sb-1', error: 'it is busy' }
  assert.deepEqual(await changes.tell([store]), { refreshed: 3, failures: [failure], isComplete: true })
  assert.equal((await changes.tell([store, { ...store, name: 'former' }])).refreshed, 6)
  assert.deepEqual(told, ['org_1 ss-1 production', 'org_1 ss-1 production', 'org_1 ss-1 former'])
  end()
  assert.equal((await changes.tell([store])).refreshed, 2)
})

test('changes: who takes too long or fails is not waited for, and the answer says so', async () => {
  const changes = new Changes(silentLog, { toldMs: 1 })
  const { promise, resolve } = Promise.withResolvers<{ refreshed: number; failures: [] }>()
  const end = changes.listen(() => promise)
  const failures = Array.from({ length: 500 }, (_, index) => ({ sandboxId: `sb-${index}`, error: 'it is busy' }))
  changes.listen(async () => ({ refreshed: 1, failures }))
  const answer = await changes.tell([store])
  assert.deepEqual([answer.refreshed, answer.failures.length, answer.isComplete], [1, 100, false])
  resolve({ refreshed: 5, failures: [] })
  await promise
  assert.equal(answer.refreshed, 1)
  end()
  changes.listen(async () => Promise.reject(new Error('no host')))
  assert.equal((await changes.tell([store])).isComplete, false)
})
