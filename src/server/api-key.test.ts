import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { OrganisationStore } from '../sandbox/index.ts'
import { sha256 } from '../lib/secret.ts'
import { ensureApiKey } from './api-key.ts'

function emptyStore(): { hashes: Set<string>; store: OrganisationStore } {
  const hashes = new Set<string>()
  const organisation = { id: 'org_1', name: 'default' }
  const store: OrganisationStore = {
    defaultOrganisation: async () => organisation,
    insertOrganisation: async () => {},
    insertApiKey: async ({ keyHash }) => void hashes.add(keyHash),
    deleteOtherApiKeys: async (_orgId, keyHash) => {
      for (const hash of hashes) if (hash !== keyHash) hashes.delete(hash)
    },
    organisationByKey: async (keyHash) => (hashes.has(keyHash) ? organisation : undefined),
    countApiKeys: async () => hashes.size,
  }
  return { hashes, store }
}

test('a first start makes a key and shows it, a later one neither', async () => {
  const { hashes, store } = emptyStore()
  const key = await ensureApiKey(store)
  assert.match(key ?? '', /^atoll_[0-9a-f]{48}$/)
  assert.deepEqual([...hashes], [sha256(key ?? '')])
  assert.equal(await ensureApiKey(store), undefined)
  assert.equal(hashes.size, 1)
})

test('a configured key is the only one, so that another value ends one that got out', async () => {
  const { hashes, store } = emptyStore()
  await ensureApiKey(store)
  for (const key of ['a-key-of-ours-000', 'a-key-of-ours-111', 'a-key-of-ours-111']) {
    assert.equal(await ensureApiKey(store, key), undefined)
    assert.deepEqual([...hashes], [sha256(key)])
  }
  assert.equal(await ensureApiKey(store), undefined, 'without the variable the last one goes on working')
  assert.deepEqual([...hashes], [sha256('a-key-of-ours-111')])
})
