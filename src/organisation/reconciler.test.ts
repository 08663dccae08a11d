import assert from 'node:assert/strict'
import { test } from 'node:test'
import { silentLog } from '../lib/log.ts'
import type { Organisation } from './organisation.ts'
import { Organisations } from './organisations.ts'
import { type OrganisationPart, OrganisationReconciler } from './reconciler.ts'
import type { OrganisationStore } from './store.ts'

async function kit(part: Partial<OrganisationPart>, fields: Partial<Organisation> = {}) {
  const row: Organisation = {
    id: 'org_1',
    name: 'reef',
    isDefault: false,
    limits: {},
    createdAt: new Date(),
    ...fields,
  }
  const rows = new Map([[row.id, row]])
  const store: Partial<OrganisationStore> = {
    defaultOrganisation: async () => row,
    organisations: async () => [...rows.values()],
    async updateOrganisation(id, change) {
      const changed = { ...rows.get(id), ...change } as Organisation
      rows.set(id, changed)
      return changed
    },
    deleteOrganisation: async (id) => void rows.delete(id),
  }
  const organisations = new Organisations({ store: store as OrganisationStore })
  await organisations.start()
  const reconciler = new OrganisationReconciler({
    organisations,
    parts: [{ name: 'part', remove: async () => {}, ...part }],
    log: silentLog,
  })
  reconciler.start()
  return { organisations, reconciler, rows }
}

test('reconciler: a start goes on with what an earlier server has left', async () => {
  const removed: string[] = []
  const remove = async (orgId: string) => void removed.push(orgId)
  const { reconciler, organisations } = await kit({ remove }, { deletingAt: new Date() })
  await reconciler.settled('org_1')
  assert.deepEqual([removed, organisations.find('org_1')], [['org_1'], undefined])
})

test('reconciler: what still runs is looked at again, and the end of a suspension does not wait for that', async () => {
  const looked = Promise.withResolvers<void>()
  const resumed = Promise.withResolvers<void>()
  let looks = 0
  const { reconciler, organisations } = await kit({
    async suspend() {
      if ((looks += 1) === 4) looked.resolve()
      return false
    },
    resume: async () => resumed.resolve(),
  })
  await organisations.suspend('org_1')
  await looked.promise
  const before = performance.now()
  await organisations.resume('org_1')
  await resumed.promise
  // The next look would be after four seconds.
  assert.ok(performance.now() - before < 3500)
  await reconciler.settled('org_1')
})

test('reconciler: a fault of a part is tried again, and a deletion comes after the suspension that it overtakes', async () => {
  const calls: string[] = []
  const { reconciler, organisations, rows } = await kit({
    async suspend() {
      calls.push('suspend')
      throw new Error('the host is away')
    },
    async remove() {
      calls.push('remove')
      if (calls.filter((call) => call === 'remove').length === 1) throw new Error('the database is away')
    },
  })
  await organisations.suspend('org_1')
  await organisations.beginDeletion('org_1')
  await reconciler.settled('org_1')
  assert.deepEqual(calls, ['suspend', 'remove', 'remove'])
  assert.equal(rows.size, 0)
})

test('reconciler: its close waits for the call under way, and begins no other', async () => {
  const begun = Promise.withResolvers<void>()
  const held = Promise.withResolvers<void>()
  let isOver = false
  const { reconciler, organisations, rows } = await kit({
    async remove() {
      begun.resolve()
      await held.promise
      isOver = true
      throw new Error('cut off')
    },
  })
  await organisations.beginDeletion('org_1')
  await begun.promise
  const closed = reconciler.close()
  held.resolve()
  await closed
  assert.deepEqual([isOver, rows.size], [true, 1])
})
