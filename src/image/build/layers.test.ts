import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../../errors.ts'
import type { SandboxService } from '../../sandbox/index.ts'
import type { ImageStore } from '../store.ts'
import { Layers } from './layers.ts'

function layersWith(checkpoints: Set<string>) {
  const rows = new Map<string, string>()
  const removed: string[] = []
  const store = {
    layers: async (orgId: string, hashes: readonly string[]) =>
      hashes.flatMap((hash) => (rows.has(hash) ? [{ orgId, hash, checkpointId: rows.get(hash)! }] : [])),
    putLayer: async ({ hash, checkpointId }) => void rows.set(hash, checkpointId),
    deleteLayer: async (_orgId: string, hash: string) => void rows.delete(hash),
  } as Partial<ImageStore> as ImageStore
  const settled = async (_orgId: string, id: string) => {
    if (!checkpoints.has(id)) throw new ServiceError('not_found', id)
    return { status: 'ready' }
  }
  const sandboxes = { checkpoints: { settled } } as unknown as SandboxService
  const removeCheckpoints = async (gone: readonly { id: string }[]) => void removed.push(...gone.map(({ id }) => id))
  return { layers: new Layers({ store, sandboxes, removal: { removeCheckpoints } }), rows, removed }
}

test('layers: the newest whose data is there is found, and one without data is forgotten', async () => {
  const { layers, rows } = layersWith(new Set(['one']))
  rows.set('a', 'one').set('b', 'gone')
  assert.deepEqual(await layers.newest('org', ['a', 'b', 'c']), { index: 0, checkpointId: 'one' })
  assert.deepEqual([...rows.keys()], ['a'])
  assert.equal(await layers.newest('org', ['c']), undefined)
})

test('layers: of two builds with the same step the first one keeps its layer', async () => {
  const { layers, rows, removed } = layersWith(new Set(['one', 'two']))
  const kept = await Promise.all(['one', 'two'].map((id) => layers.put('org', 'a', id, false)))
  assert.deepEqual([kept, rows.get('a'), removed], [['one', 'one'], 'one', ['two']])
})

test('layers: one that is replaced stays until no build of its organisation may read it', async () => {
  const { layers, rows, removed } = layersWith(new Set(['one', 'two']))
  const other = Promise.withResolvers<void>()
  const beside = layers.use('org', () => other.promise)
  await layers.use('org', async () => {
    await layers.put('org', 'a', 'one', false)
    assert.equal(await layers.put('org', 'a', 'two', true), 'two')
  })
  assert.deepEqual([rows.get('a'), removed], ['two', []])
  other.resolve()
  await beside
  assert.deepEqual(removed, ['one'])
})
