import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import type { OpenedStore } from './store.ts'
import { newOrganisation } from './store-records.ts'

export function organisationTests(store: OpenedStore): void {
  suite('organisations', () => {
    const key = (orgId: string, keyHash = newId('key_')) => ({
      id: newId('key_'),
      orgId,
      keyHash,
      createdAt: new Date(),
    })

    test('the default organisation is made once, also by callers at the same time', async () => {
      const all = await Promise.all([1, 2, 3, 4].map(() => store().organisations.defaultOrganisation()))
      const again = await store().organisations.defaultOrganisation()
      for (const organisation of all) assert.deepEqual(organisation, again)
    })

    test('a key finds its organisation, and an unknown one finds none', async () => {
      const organisation = await newOrganisation(store())
      const { keyHash, ...rest } = key(organisation.id)
      await store().organisations.insertApiKey({ keyHash, ...rest })
      assert.deepEqual(await store().organisations.organisationByKey(keyHash), organisation)
      assert.equal(await store().organisations.organisationByKey(newId('key_')), undefined)
    })

    test('the same key of the same organisation is kept once and counted', async () => {
      const { id: orgId } = await newOrganisation(store())
      assert.equal(await store().organisations.countApiKeys(orgId), 0)
      const first = key(orgId)
      await store().organisations.insertApiKey(first)
      await store().organisations.insertApiKey({ ...first, id: newId('key_') })
      await store().organisations.insertApiKey(first)
      assert.equal(await store().organisations.countApiKeys(orgId), 1)
      await store().organisations.insertApiKey(key(orgId))
      assert.equal(await store().organisations.countApiKeys(orgId), 2)
      assert.ok((await store().organisations.apiKeyHashes()).includes(first.keyHash))
    })

    test('the other keys of an organisation end, and those of others stay', async () => {
      const [mine, theirs] = [await newOrganisation(store()), await newOrganisation(store())]
      const [old, kept, foreign] = [key(mine.id), key(mine.id), key(theirs.id)]
      for (const each of [old, kept, foreign]) await store().organisations.insertApiKey(each)
      await store().organisations.deleteOtherApiKeys(mine.id, kept.keyHash)
      assert.equal(await store().organisations.organisationByKey(old.keyHash), undefined)
      assert.deepEqual(await store().organisations.organisationByKey(kept.keyHash), mine)
      assert.deepEqual(await store().organisations.organisationByKey(foreign.keyHash), theirs)
    })

    test('a key of another organisation is a conflict', async () => {
      const first = key((await newOrganisation(store())).id)
      await store().organisations.insertApiKey(first)
      const { id: orgId } = await newOrganisation(store())
      await assert.rejects(store().organisations.insertApiKey(key(orgId, first.keyHash)), (error) =>
        isServiceError(error, 'conflict'),
      )
      assert.equal(await store().organisations.countApiKeys(orgId), 0)
    })

    test('an organisation id that is taken is a conflict', async () => {
      const organisation = await newOrganisation(store())
      await assert.rejects(store().organisations.insertOrganisation(organisation), (error) =>
        isServiceError(error, 'conflict'),
      )
    })
  })
}
