import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import type { SealedSecret, Store as SecretStore } from '../../src/secret/index.ts'
import type { Store } from '../../src/store/index.ts'
import { newOrganisation } from './kit.ts'

const at = new Date('2026-01-15T10:40:00.005Z')

function storeOf(orgId: string, fields: Partial<SecretStore> = {}): SecretStore {
  const id = newId('ss-')
  return { id, orgId, name: id, egressAllowlist: [], isDefault: false, createdAt: at, updatedAt: at, ...fields }
}

function secretOf({ id: storeId }: SecretStore, fields: Partial<SealedSecret> = {}): SealedSecret {
  return {
    ...{ id: newId('ss-'), storeId, name: 'TOKEN', sealedValue: 'k1.v1.x', allowedHosts: ['*.example.com'] },
    ...{ places: ['header', 'body'], shape: 'sealed', createdAt: at, updatedAt: at, ...fields },
  }
}

export function secretTests(store: Store): void {
  const { secrets } = store
  const room = { storesMax: 100 }
  const newStore = async (fields: Partial<SecretStore> = {}) => {
    const made = storeOf(fields.orgId ?? (await newOrganisation(store)).id, fields)
    await secrets.insertStore(made, room)
    return made
  }

  suite('secret stores', () => {
    test('secret store: it is read as it was written, by its organisation alone', async () => {
      const made = await newStore({ egressAllowlist: ['a.example.com', '*.b.example.com'], isDefault: true })
      const other = (await newOrganisation(store)).id
      assert.deepEqual(await secrets.store(made.orgId, made.id), made)
      assert.equal(await secrets.store(other, made.id), undefined)
      assert.deepEqual(await secrets.listStores(other), [])
      assert.equal(await secrets.updateStore(other, made.id, { name: 'x', updatedAt: at }), undefined)
      assert.equal(await secrets.deleteStore(other, made.id), undefined)
      assert.deepEqual([await secrets.hasDefaults(made.orgId), await secrets.hasDefaults(other)], [true, false])
    })

    test('secret store: names are unique in an organisation, order the list, and may change', async () => {
      const b = await newStore({ name: 'b' })
      const a = await newStore({ name: 'a', orgId: b.orgId })
      await refuses(secrets.insertStore(storeOf(b.orgId, { name: 'a' }), room), 'conflict', /name/)
      await refuses(secrets.updateStore(b.orgId, a.id, { name: 'b', updatedAt: at }), 'conflict', /name/)
      await newStore({ name: 'a' })
      assert.deepEqual(await secrets.listStores(b.orgId), [a, b])
      const later = new Date(at.getTime() + 1)
      const updated = await secrets.updateStore(b.orgId, a.id, { name: 'c', egressAllowlist: ['x'], updatedAt: later })
      assert.deepEqual(updated, { before: a, after: { ...a, name: 'c', egressAllowlist: ['x'], updatedAt: later } })
      assert.deepEqual(await secrets.deleteStore(b.orgId, a.id), updated?.after)
    })

    test('secret store: an organisation has no more than it may, also of two that come at once', async () => {
      const { id: orgId } = await newOrganisation(store)
      const results = await Promise.allSettled(
        [1, 2, 3].map(() => secrets.insertStore(storeOf(orgId), { storesMax: 2 })),
      )
      assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 2)
      await secrets.putHidden(storeOf(orgId, { name: '' }), newId('sb-'), [])
      assert.equal((await secrets.listStores(orgId)).length, 2)
      await refuses(secrets.insertStore(storeOf(orgId), { storesMax: 2 }), 'quota_exceeded')
    })

    test('secret: setting it again keeps its id and its time of creation; it goes with its store', async () => {
      const made = await newStore()
      const sign = { type: 'aws-sigv4', accessKeyId: 'AWS_ACCESS_KEY_ID' } as const
      const first = secretOf(made, { sign })
      await secrets.putSecret(first, { secretsMax: 1 })
      assert.deepEqual(await secrets.listSecrets(made.id), [first])
      const later = new Date(at.getTime() + 1000)
      const second = secretOf(made, { sealedValue: 'k2.v1.y', allowedHosts: [], createdAt: later, updatedAt: later })
      await secrets.putSecret(second, { secretsMax: 1 })
      assert.deepEqual(await secrets.listSecrets(made.id), [{ ...second, id: first.id, createdAt: at }])
      assert.deepEqual((await secrets.store(made.orgId, made.id))?.updatedAt, later)
      await refuses(secrets.putSecret(secretOf(made, { name: 'B' }), { secretsMax: 1 }), 'quota_exceeded')
      assert.deepEqual(
        [await secrets.deleteSecret(made.id, 'TOKEN'), await secrets.deleteSecret(made.id, 'TOKEN')],
        [true, false],
      )
      await secrets.putSecret(first, { secretsMax: 1 })
      await secrets.deleteStore(made.orgId, made.id)
      assert.deepEqual(await secrets.listSecrets(made.id), [])
      await refuses(secrets.putSecret(first, { secretsMax: 1 }), 'not_found')
    })

    test('secret: a chain is made of defaults, named stores and hidden ones of the organisation', async () => {
      const { id: orgId } = await newOrganisation(store)
      const named = await newStore({ orgId, name: 'n' })
      const applied = await newStore({ orgId, name: 'd', isDefault: true })
      await newStore({ orgId, name: 'unused' })
      await newStore({ name: 'n' })
      const [hidden, hiddenId] = [storeOf(orgId, { name: '' }), newId('sb-')]
      await secrets.putHidden(storeOf(orgId, { name: '' }), hiddenId, [])
      const own = secretOf(hidden)
      await secrets.putHidden(hidden, hiddenId, [own])
      await secrets.putHidden(storeOf(orgId, { name: '' }), newId('sb-'), [])
      const found = await secrets.chainStores(orgId, { names: ['n', 'none'], hidden: [hiddenId] })
      assert.deepEqual(
        found.toSorted((one, other) => one.store.name.localeCompare(other.store.name)),
        [
          { store: hidden, hiddenId, secrets: [own] },
          { store: applied, secrets: [] },
          { store: named, secrets: [] },
        ],
      )
      assert.equal(await secrets.store(orgId, hidden.id), undefined)
      assert.equal(await secrets.deleteStore(orgId, hidden.id), undefined)
      assert.deepEqual(
        [await secrets.deleteHidden(orgId, hiddenId), await secrets.deleteHidden(orgId, hiddenId)],
        [true, false],
      )
      assert.deepEqual(await secrets.listSecrets(hidden.id), [])
    })

    test('secret: rows of other keys are found page by page, and replaced where they are as they were', async () => {
      const made = await newStore()
      const key = newId('ss-').slice(3, 11)
      const [a, b, c] = ['A', 'B', 'C'].map((name) => secretOf(made, { name, sealedValue: `${key}.v1.${name}` }))
      for (const one of [a, b, c]) await secrets.putSecret(one!, { secretsMax: 10 })
      assert.ok((await secrets.keysInUse()).includes(key))
      const rows = []
      for (let after = ''; ;) {
        const page = await secrets.sealedByOthers('secret', 'another', { after, limit: 1 })
        if (page.length === 0) break
        rows.push(...page.filter(({ storeId }) => storeId === made.id))
        after = page[0]!.id
      }
      assert.deepEqual(
        rows.map(({ name }) => name).toSorted((one = '', other = '') => one.localeCompare(other)),
        ['A', 'B', 'C'],
      )
      const row = rows.find(({ name }) => name === 'A')!
      assert.deepEqual(row, {
        of: 'secret',
        id: a!.id,
        orgId: made.orgId,
        storeId: made.id,
        name: 'A',
        sealed: a!.sealedValue,
      })
      assert.equal(await secrets.reseal([{ row: { ...row, sealed: 'stale' }, sealed: 'lost' }]), 0)
      assert.equal(await secrets.reseal(rows.map((one) => ({ row: one, sealed: `new.v1.${one.name}` }))), 3)
      assert.ok(!(await secrets.keysInUse()).includes(key))
      assert.deepEqual(
        (await secrets.listSecrets(made.id)).map(({ sealedValue }) => sealedValue),
        ['A', 'B', 'C'].map((name) => `new.v1.${name}`),
      )
    })

    test('secret: all of it goes with its organisation', async () => {
      const made = await newStore()
      await secrets.putSecret(secretOf(made), { secretsMax: 10 })
      const hiddenId = newId('sb-')
      await secrets.putHidden(storeOf(made.orgId, { name: '' }), hiddenId, [secretOf(made, { name: 'H' })])
      const authority = { id: newId('ca-'), orgId: made.orgId, certificate: 'c', sealedKey: 'of-authority.v1.a' }
      await store.egress.insertAuthority(authority)
      assert.ok((await secrets.keysInUse()).includes('of-authority'))
      const others = await secrets.sealedByOthers('authority', 'another', { after: '', limit: 1000 })
      const row = others.find(({ id }) => id === authority.id)!
      assert.deepEqual(row, { of: 'authority', id: authority.id, orgId: made.orgId, sealed: authority.sealedKey })
      assert.equal(await secrets.reseal([{ row, sealed: 'new.v1.a' }]), 1)
      assert.equal((await store.egress.authority(authority.id))?.sealedKey, 'new.v1.a')
      await store.organisations.deleteOrganisation(made.orgId)
      assert.deepEqual(await secrets.listSecrets(made.id), [])
      assert.ok(!(await store.organisations.organisations()).some(({ id }) => id === made.orgId))
    })
  })
}
