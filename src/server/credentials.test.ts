import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { OrganisationStore } from '../organisation/index.ts'
import { sha256 } from '../lib/secret.ts'
import { configureApiKey, makeFirstApiKey } from './credentials.ts'

type Store = Pick<
  OrganisationStore,
  'defaultOrganisation' | 'insertApiKey' | 'deleteOtherDefaultKeys' | 'countDefaultKeys'
>

function emptyStore(): { hashes: Set<string>; store: Store } {
  const hashes = new Set<string>()
  const organisation = { id: 'org_1', name: 'default', isDefault: true, limits: {}, createdAt: new Date() }
  const store: Store = {
    defaultOrganisation: async () => organisation,
    insertApiKey: async ({ keyHash }) => void hashes.add(keyHash),
    deleteOtherDefaultKeys: async (_orgId, keyHash) => {
      for (const hash of hashes) if (hash !== keyHash) hashes.delete(hash)
    },
    countDefaultKeys: async () => hashes.size,
  }
  return { hashes, store }
}

test('first key: a first start creates and prints a key, a later start does not', async () => {
  const { hashes, store } = emptyStore()
  const shown: string[] = []
  const key = await makeFirstApiKey(store, (made) => void shown.push(made))
  assert.match(key ?? '', /^atoll_[0-9a-f]{48}$/)
  assert.deepEqual([shown, [...hashes]], [[key], [sha256(key ?? '')]])
  assert.equal(await makeFirstApiKey(store, (made) => void shown.push(made)), undefined)
  assert.deepEqual([shown.length, hashes.size], [1, 1])
})

test('first key: a key that could not be printed is not stored', async () => {
  const { hashes, store } = emptyStore()
  const refuse = () => {
    throw new Error('closed')
  }
  await assert.rejects(makeFirstApiKey(store, refuse), /closed/)
  assert.equal(hashes.size, 0)
})

test('first key: after a failed write the next start prints another key', async () => {
  const { hashes, store } = emptyStore()
  const shown: string[] = []
  const show = (key: string) => void shown.push(key)
  const insertApiKey = () => Promise.reject(new Error('the database is closed'))
  await assert.rejects(makeFirstApiKey({ ...store, insertApiKey }, show), /closed/)
  const key = await makeFirstApiKey(store, show)
  assert.deepEqual([shown.length, shown[1]], [2, key])
  assert.deepEqual([...hashes], [sha256(key ?? '')])
})

test('configured key: it is the only one, so a new value revokes the previous one', async () => {
  const { hashes, store } = emptyStore()
  const show = () => {}
  await makeFirstApiKey(store, show)
  for (const key of ['a-key-of-ours-000', 'a-key-of-ours-111', 'a-key-of-ours-111']) {
    await configureApiKey(store, key)
    assert.deepEqual([...hashes], [sha256(key)])
  }
  assert.equal(await makeFirstApiKey(store, show), undefined, 'without the variable the last one goes on working')
  assert.deepEqual([...hashes], [sha256('a-key-of-ours-111')])
})
