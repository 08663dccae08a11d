import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import type { Store } from '../../src/store/index.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { newOrganisation } from './kit.ts'

export function organisationTests(store: Store): void {
  const { organisations } = store

  suite('organisations', () => {
    const key = (orgId: string, keyHash = newId('key_')) => ({
      id: newId('key_'),
      orgId,
      keyHash,
      isDefault: true,
      name: '',
      createdAt: new Date(),
    })

    test('organisation: the default one is created once, also by concurrent callers', async () => {
      const all = await Promise.all([1, 2, 3, 4].map(() => organisations.defaultOrganisation()))
      const again = await organisations.defaultOrganisation()
      for (const organisation of all) assert.deepEqual(organisation, again)
    })

    test('API key: it finds its organisation, and an unknown key finds none', async () => {
      const organisation = await newOrganisation(store)
      const made = key(organisation.id)
      const { keyHash } = made
      await organisations.insertApiKey(made)
      assert.deepEqual(await organisations.apiKeyByHash(keyHash), made)
      assert.equal(await organisations.apiKeyByHash(newId('key_')), undefined)
    })

    test('API key: the same key of the same organisation is stored once and counted', async () => {
      const { id: orgId } = await newOrganisation(store)
      assert.equal(await organisations.countDefaultKeys(orgId), 0)
      const first = key(orgId)
      await organisations.insertApiKey(first)
      await organisations.insertApiKey({ ...first, id: newId('key_') })
      await organisations.insertApiKey(first)
      assert.equal(await organisations.countDefaultKeys(orgId), 1)
      await organisations.insertApiKey(key(orgId))
      assert.equal(await organisations.countDefaultKeys(orgId), 2)
      assert.ok((await organisations.apiKeyHashes()).includes(first.keyHash))
    })

    test('API key: the other default keys of an organisation are deleted, those of others stay', async () => {
      const [mine, theirs] = [await newOrganisation(store), await newOrganisation(store)]
      const [old, kept, foreign] = [key(mine.id), key(mine.id), key(theirs.id)]
      for (const each of [old, kept, foreign]) await organisations.insertApiKey(each)
      await organisations.deleteOtherDefaultKeys(mine.id, kept.keyHash)
      assert.equal(await organisations.apiKeyByHash(old.keyHash), undefined)
      assert.deepEqual(await organisations.apiKeyByHash(kept.keyHash), kept)
      assert.deepEqual(await organisations.apiKeyByHash(foreign.keyHash), foreign)
    })

    test('API key: a key of another organisation is a conflict', async () => {
      const first = key((await newOrganisation(store)).id)
      await organisations.insertApiKey(first)
      const { id: orgId } = await newOrganisation(store)
      await refuses(organisations.insertApiKey(key(orgId, first.keyHash)), 'conflict')
      assert.equal(await organisations.countDefaultKeys(orgId), 0)
    })

    test('organisation: a taken id is a conflict', async () => {
      const organisation = await newOrganisation(store)
      await refuses(organisations.insertOrganisation(organisation), 'conflict')
    })
  })
}
