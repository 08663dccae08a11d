import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Sandbox, SandboxStore } from '../sandbox/index.ts'
import { cachedSandboxStore } from './cached-sandboxes.ts'

const sandbox = { id: 'sb-1', orgId: 'org_1', status: 'running' } as Sandbox

/** A store of one sandbox whose reads and writes wait until they are let go. */
function slowStore() {
  let row = sandbox
  let reads = 0
  let gate: Promise<void> = Promise.resolve()
  const store = {
    async sandbox() {
      reads += 1
      const seen = row
      await gate
      return seen
    },
    async updateSandbox(_id: string, change: Partial<Sandbox>) {
      row = { ...row, ...change }
      return row
    },
  } as unknown as SandboxStore
  return { store: cachedSandboxStore(store), reads: () => reads, hold: (until: Promise<void>) => void (gate = until) }
}

test('sandbox cache: a sandbox is read once, and never returned to another organisation', async () => {
  const { store, reads } = slowStore()
  assert.equal(await store.sandbox('sb-1'), sandbox)
  assert.equal(await store.sandbox('sb-1', 'org_1'), sandbox)
  assert.equal(await store.sandbox('sb-1', 'org_2'), undefined)
  assert.equal(reads(), 1)
})

test('sandbox cache: the next read sees a write', async () => {
  const { store } = slowStore()
  await store.sandbox('sb-1')
  await store.updateSandbox('sb-1', { status: 'stopped' })
  assert.equal((await store.sandbox('sb-1'))?.status, 'stopped')
})

test('sandbox cache: a read during a write is not cached', async () => {
  const { store, hold } = slowStore()
  const gate = Promise.withResolvers<void>()
  hold(gate.promise)
  const early = store.sandbox('sb-1')
  await store.updateSandbox('sb-1', { status: 'stopped' })
  gate.resolve()
  assert.equal((await early)?.status, 'running')
  assert.equal((await store.sandbox('sb-1'))?.status, 'stopped')
})
