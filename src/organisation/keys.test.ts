import assert from 'node:assert/strict'
import { test } from 'node:test'
import { silentLog } from '../lib/log.ts'
import { refuses } from '../lib/testing/refuses.ts'
import { Keys } from './keys.ts'
import type { ApiKey, Organisation } from './organisation.ts'
import { Organisations } from './organisations.ts'
import type { OrganisationStore } from './store.ts'

const hourMs = 3_600_000

/** Keys over rows in memory. `read` resolves each look-up when the test says so. */
async function kit(key: Partial<ApiKey> = {}) {
  const row: ApiKey = {
    id: 'key_1',
    orgId: 'org_1',
    keyHash: 'hash',
    name: '',
    isDefault: false,
    createdAt: new Date(),
    ...key,
  }
  const rows = new Map([[row.keyHash, row]])
  const reads: (() => void)[] = []
  const uses: Date[] = []
  let isHeld = false
  const organisation: Organisation = { id: 'org_1', name: 'reef', isDefault: true, limits: {}, createdAt: new Date() }
  const store: Partial<OrganisationStore> = {
    defaultOrganisation: async () => organisation,
    organisations: async () => [organisation],
    async apiKeyByHash(hash) {
      const found = rows.get(hash)
      if (isHeld) await new Promise<void>((resolve) => reads.push(resolve))
      return found
    },
    listApiKeys: async () => [...rows.values()],
    async deleteApiKey(_orgId, id) {
      const ended = [...rows.values()].filter((one) => one.id === id)
      for (const { keyHash } of ended) rows.delete(keyHash)
      return ended.map((one) => one.id)
    },
    touchApiKey: async (_id, usedAt) => void uses.push(usedAt),
  }
  const organisations = new Organisations({ store: store as OrganisationStore })
  await organisations.start()
  const keys = new Keys({ store: store as OrganisationStore, organisations, log: silentLog })
  return { keys, organisations, row, reads, uses, hold: (held: boolean) => (isHeld = held) }
}

test('key: one that ends while it is looked up is neither known nor cached afterwards', async () => {
  const { keys, reads, hold } = await kit()
  hold(true)
  const found = keys.find('hash')
  await keys.delete('org_1', 'key_1', undefined)
  hold(false)
  for (const read of reads) read()
  assert.equal(await found, undefined)
  assert.equal(keys.cached('hash'), undefined)
})

test('key: its end is by the clock of the server, also of a cached one, and a clock that is set back ends it no earlier', async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 10 * hourMs })
  const { keys } = await kit({ expiresAt: new Date(11 * hourMs) })
  assert.ok(await keys.find('hash'))
  t.mock.timers.setTime(11 * hourMs)
  assert.equal(keys.cached('hash'), undefined, 'the cache knows its end')
  assert.equal(await keys.find('hash'), undefined)
  t.mock.timers.setTime(10 * hourMs)
  assert.ok(await keys.find('hash'), 'the clock says that it is an hour earlier')
})

test('key: its last use is written once a minute, whatever the clock says', async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 10 * hourMs })
  const { keys, uses } = await kit()
  keys.touch('key_1')
  t.mock.timers.setTime(9 * hourMs)
  keys.touch('key_1')
  t.mock.timers.setTime(20 * hourMs)
  keys.touch('key_1')
  assert.equal(uses.length, 1)
})

test('organisation: no two changes of one are lost, and none comes after its deletion', async () => {
  const rows = new Map<string, Organisation>()
  const base: Organisation = { id: 'org_2', name: 'reef', isDefault: false, limits: {}, createdAt: new Date() }
  rows.set('org_2', base)
  const store: Partial<OrganisationStore> = {
    defaultOrganisation: async () => base,
    organisations: async () => [...rows.values()],
    async updateOrganisation(id, change) {
      await new Promise((resolve) => setImmediate(resolve))
      const changed = { ...rows.get(id), ...change } as Organisation
      rows.set(id, changed)
      return changed
    },
    deleteOrganisation: async (id) => void rows.delete(id),
  }
  const organisations = new Organisations({ store: store as OrganisationStore })
  await organisations.start()
  const [deleting] = await Promise.all([
    organisations.update('org_2', { limits: { weight: 7 } }).then(() => organisations.beginDeletion('org_2')),
    organisations.update('org_2', { limits: { keysMax: 9 } }),
  ])
  assert.deepEqual(deleting.limits, { weight: 7, keysMax: 9 })
  await refuses(organisations.resume('org_2'), 'conflict')
  await organisations.removed('org_2')
  assert.throws(() => organisations.assertActive('org_2'), /deleted/)
  assert.equal(organisations.isActive('org_2'), false)
})
