import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { acting } from '../../src/events/index.ts'
import { newId } from '../../src/lib/id.ts'
import type { Store } from '../../src/store/index.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { newOrganisation, newSession, sandboxOf } from './kit.ts'

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
      assert.ok((await organisations.defaultKeyHashes()).includes(first.keyHash))
    })

    test('API key: a use is noted unless a recent one is', async () => {
      const { id: orgId } = await newOrganisation(store)
      const made = key(orgId)
      await organisations.insertApiKey(made)
      const lastUse = async () => (await organisations.apiKeyByHash(made.keyHash))?.lastUsedAt?.getTime()
      await organisations.touchApiKey(made.id, new Date(100_000), new Date(40_000))
      assert.equal(await lastUse(), 100_000)
      await organisations.touchApiKey(made.id, new Date(110_000), new Date(50_000))
      assert.equal(await lastUse(), 100_000)
      await organisations.touchApiKey(made.id, new Date(160_000), new Date(100_000))
      assert.equal(await lastUse(), 160_000)
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

    test('API key: one that is configured anew ends the default key alone, and what others have made stays', async () => {
      const { id: orgId } = await newOrganisation(store)
      const [old, next] = [key(orgId), key(orgId)]
      const further = { ...key(orgId), isDefault: false, madeBy: old.id, scopes: ['image' as const] }
      await organisations.insertApiKey(old)
      await organisations.addApiKey(further, { keysMax: 10 })
      await organisations.insertApiKey(next)
      await organisations.deleteOtherDefaultKeys(orgId, next.keyHash)
      assert.deepEqual(
        (await organisations.listApiKeys(orgId)).map(({ id }) => id).toSorted(),
        [further.id, next.id].toSorted(),
      )
    })

    test('API key: one ends with all that descend from it, and what they have made counts for its maker', async () => {
      const { id: orgId } = await newOrganisation(store)
      const root = { ...key(orgId), isDefault: false, sandboxesMax: 1 }
      const child = { ...key(orgId), isDefault: false, madeBy: root.id }
      const grandchild = { ...key(orgId), isDefault: false, madeBy: child.id }
      for (const one of [root, child, grandchild]) await organisations.addApiKey(one, { keysMax: 10 })
      const as = <Result>(id: string, work: () => Promise<Result>) =>
        acting({ actor: { type: 'key', id }, cause: 'request' }, work)
      const sandbox = sandboxOf(orgId)
      await as(grandchild.id, () => store.sandboxes.insertSandbox(sandbox))
      const bounds = () =>
        Promise.all([root, child, grandchild].map(({ id }) => as(id, () => store.sandboxes.reachedKeyBound(''))))
      assert.deepEqual(await bounds(), [1, 1, 1])
      assert.equal(await as(root.id, () => store.sandboxes.reachedKeyBound(sandbox.id)), undefined)
      assert.deepEqual(
        (await organisations.deleteApiKey(orgId, child.id)).toSorted(),
        [child.id, grandchild.id].toSorted(),
      )
      assert.equal((await store.sandboxes.sandbox(sandbox.id))?.keyId, root.id)
      assert.equal(await as(root.id, () => store.sandboxes.reachedKeyBound('')), 1)
      assert.deepEqual(await organisations.deleteApiKey((await newOrganisation(store)).id, root.id), [])
      await refuses(organisations.addApiKey({ ...key(orgId), madeBy: child.id }, { keysMax: 10 }), 'unauthorized')
      await refuses(organisations.addApiKey(key(orgId), { keysMax: 1 }), 'quota_exceeded')
    })

    test('API key: what the agent of a session makes counts for the key that made the session', async () => {
      const { id: orgId } = await newOrganisation(store)
      const maker = { ...key(orgId), isDefault: false, sandboxesMax: 1 }
      await organisations.addApiKey(maker, { keysMax: 10 })
      const session = await acting({ actor: { type: 'key', id: maker.id }, cause: 'request' }, () =>
        newSession(store, orgId),
      )
      const asAgent = <Result>(work: () => Promise<Result>) =>
        acting({ actor: { type: 'agent', id: session.id }, cause: 'agent' }, work)
      assert.equal(await asAgent(() => store.sandboxes.reachedKeyBound('')), undefined)
      const sandbox = sandboxOf(orgId)
      await asAgent(() => store.sandboxes.insertSandbox(sandbox))
      assert.equal((await store.sandboxes.sandbox(sandbox.id))?.keyId, maker.id)
      assert.equal(await asAgent(() => store.sandboxes.reachedKeyBound('')), 1)
    })

    test('organisation: its rows go when nothing of it has data beside the database', async () => {
      const { id } = await newOrganisation(store)
      await organisations.insertApiKey(key(id))
      const sandbox = sandboxOf(id)
      await store.sandboxes.insertSandbox(sandbox)
      await organisations.updateOrganisation(id, { suspendedAt: new Date(), suspendedReason: 'a pause' })
      assert.deepEqual((await store.events.page(id, { after: 0, limit: 9, filter: {} })).events.at(-1)?.data, {
        message: 'a pause',
      })
      const { runningSandboxes, memoryMb, keys } = await organisations.use(id)
      assert.deepEqual([runningSandboxes, memoryMb, keys], [1, 1024, 1])
      await refuses(organisations.deleteOrganisation(id), 'conflict', /sandboxes/)
      await store.sandboxes.updateSandbox(sandbox.id, { status: 'stopped', stoppedAt: new Date() })
      await store.sandboxes.purgeSandboxes([sandbox.id])
      await organisations.deleteOrganisation(id)
      assert.equal(
        (await organisations.organisations()).some((one) => one.id === id),
        false,
      )
      await organisations.deleteOrganisation(id)
    })

    test('operator: the last key that was set is the only one', async () => {
      await organisations.putOperatorKey('one')
      await organisations.putOperatorKey('two')
      await organisations.putOperatorKey('two')
      assert.deepEqual(await organisations.operatorKeyHashes(), ['two'])
    })
  })
}
