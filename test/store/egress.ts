import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import type { EgressEntry, EgressPolicy } from '../../src/sandbox/index.ts'
import type { Store } from '../../src/store/index.ts'
import { newOrganisation, sandboxOf } from './kit.ts'

const policy: EgressPolicy = { mode: 'list', allow: [{ host: 'a.example' }], deny: [], logOnly: false }

function entryOf(sandbox: string, fields: Partial<EgressEntry> = {}): EgressEntry {
  return {
    ...{ sandbox, time: 1_768_000_000_000, decision: 'denied', protocol: 'tls', host: 'b.example', port: 443 },
    ...{ sent: 517, received: 7, ms: 1, ...fields },
  }
}

export function egressTests(store: Store): void {
  const { egress } = store
  const newSandbox = async (fields: Parameters<typeof sandboxOf>[1] = {}) => {
    const sandbox = sandboxOf((await newOrganisation(store)).id, fields)
    await store.sandboxes.insertSandbox(sandbox)
    return sandbox
  }

  suite('egress', () => {
    test('egress: the record of a sandbox keeps what it says, and a change replaces it', async () => {
      const of = { stores: ['s'], inheritedStores: 0, inline: [], placeholders: { A: { own: 'x', inherited: [] } } }
      const sandbox = await newSandbox({ egress: { ...of, policy } })
      assert.deepEqual((await store.sandboxes.sandbox(sandbox.id))?.egress, { ...of, policy })
      const changed = await store.sandboxes.updateSandbox(sandbox.id, { egress: of })
      assert.deepEqual(changed?.egress, of)
      const cleared = await store.sandboxes.updateSandbox(sandbox.id, { egress: undefined })
      assert.equal(cleared !== undefined && 'egress' in cleared, false)
    })

    test('egress: the policy of an organisation is its own', async () => {
      const [one, other] = [await newOrganisation(store), await newOrganisation(store)]
      assert.equal(await egress.organisationPolicy(one.id), undefined)
      await egress.setOrganisationPolicy(one.id, policy)
      assert.deepEqual(
        [await egress.organisationPolicy(one.id), await egress.organisationPolicy(other.id)],
        [policy, undefined],
      )
      await egress.setOrganisationPolicy(one.id, undefined)
      assert.equal(await egress.organisationPolicy(one.id), undefined)
    })

    test('egress log: entries are read in their order, from a number on or the newest, and by decision', async () => {
      const { id, orgId } = await newSandbox()
      const added = [1, 2, 3].map((number) => ({
        ...{ number, orgId, isTold: number === 1 },
        entry: entryOf(id, number === 2 ? { decision: 'allowed' } : {}),
      }))
      await egress.append(added)
      const numbers = async (query: Parameters<typeof egress.entries>[1]) =>
        (await egress.entries(id, query)).map(({ number }) => number)
      assert.deepEqual(await numbers({ limit: 10 }), [1, 2, 3])
      assert.deepEqual(await numbers({ after: 1, limit: 1 }), [2])
      assert.deepEqual(await numbers({ newest: true, limit: 2 }), [2, 3])
      assert.deepEqual(await numbers({ decision: 'denied', limit: 10 }), [1, 3])
      assert.deepEqual((await egress.entries(id, { limit: 1 }))[0]?.entry, added[0]?.entry)
      assert.equal(await egress.lastNumber(id), 3)
    })

    test('egress log: a refusal that is told becomes an event of the organisation, in the same commit', async () => {
      const { id, orgId } = await newSandbox()
      await egress.append([
        { number: 1, orgId, isTold: true, entry: entryOf(id, { rule: 'creation.deny[0]' }) },
        { number: 2, orgId, isTold: false, entry: entryOf(id) },
      ])
      const { events } = await store.events.page(orgId, {
        after: 0,
        limit: 100,
        filter: { types: ['sandbox.egress.denied'] },
      })
      assert.deepEqual(
        events.map(({ sandboxId, data }) => [sandboxId, data]),
        [[id, { port: 443, protocol: 'tls', host: 'b.example', rule: 'creation.deny[0]' }]],
      )
    })

    test('egress log: entries of a sandbox without a record are left out, and a number that is taken stays', async () => {
      const { id, orgId } = await newSandbox()
      await egress.append([{ number: 1, orgId, isTold: false, entry: entryOf(id) }])
      await egress.append([
        { number: 1, orgId, isTold: false, entry: entryOf(id, { port: 1 }) },
        { number: 1, orgId, isTold: false, entry: entryOf('sb-unknown') },
      ])
      assert.deepEqual(
        (await egress.entries(id, { limit: 10 })).map(({ entry }) => entry.port),
        [443],
      )
      assert.deepEqual(await egress.entries('sb-unknown', { limit: 10 }), [])
    })

    test('egress log: hostile text of an entry, NUL included, is kept as far as a database can', async () => {
      const { id, orgId } = await newSandbox()
      await egress.append([{ number: 1, orgId, isTold: true, entry: entryOf(id, { host: 'a\0b', path: '/\ud800' }) }])
      assert.equal((await egress.entries(id, { limit: 1 })).length, 1)
    })

    test('egress log: the oldest go up to a number, and all with the record of the sandbox', async () => {
      const sandbox = await newSandbox({ status: 'stopped', stoppedAt: new Date() })
      const entry = entryOf(sandbox.id)
      await egress.append([1, 2, 3].map((number) => ({ number, orgId: sandbox.orgId, isTold: false, entry })))
      await egress.trim(sandbox.id, 2)
      assert.deepEqual(
        (await egress.entries(sandbox.id, { limit: 10 })).map(({ number }) => number),
        [3],
      )
      await store.sandboxes.purgeSandboxes([sandbox.id])
      assert.deepEqual(await egress.entries(sandbox.id, { limit: 10 }), [])
    })

    test('egress: authorities and secrets of creations go when no sandbox and no checkpoint has them', async () => {
      const { id: orgId } = await newOrganisation(store)
      const [used, unused] = [newId('ca-'), newId('ca-')]
      for (const id of [used, unused]) await egress.insertAuthority({ id, orgId, certificate: 'c', sealedKey: 'k' })
      const at = new Date()
      const [kept, gone] = [newId('ss-'), newId('ss-')]
      for (const hidden of [kept, gone]) {
        const row = {
          id: newId('ss-'),
          orgId,
          name: '',
          egressAllowlist: [],
          isDefault: false,
          createdAt: at,
          updatedAt: at,
        }
        await store.secrets.putHidden(row, hidden, [])
      }
      const state = { stores: [], inheritedStores: 0, inline: [kept], placeholders: {}, authorityId: used }
      await store.sandboxes.insertSandbox(sandboxOf(orgId, { egress: state }))
      assert.equal(await egress.removeUnused(new Date(0)), 0, 'what was made just before stays')
      await egress.removeUnused(new Date(Date.now() + 60_000))
      assert.deepEqual([(await egress.authority(used))?.id, await egress.authority(unused)], [used, undefined])
      const chained = await store.secrets.chainStores(orgId, { names: [], hidden: [kept, gone] })
      assert.deepEqual(
        chained.map(({ hiddenId }) => hiddenId),
        [kept],
      )
    })
  })
}
