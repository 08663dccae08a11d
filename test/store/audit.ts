import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import { Audit, type NewAuditEntry } from '../../src/organisation/audit/index.ts'
import { silentLog } from '../../src/lib/log.ts'
import { auditRoot, AuditVerifier, type ChainedEntry } from '../../src/protocol/audit.ts'
import type { Store } from '../../src/store/index.ts'

function entry(orgId: string, fields: Partial<NewAuditEntry> = {}): NewAuditEntry {
  return {
    ...{ orgId, ts: new Date(), actorType: 'key', actorId: 'key_1', address: '192.0.2.1', operation: 'createSandbox' },
    ...{ request: newId('key_'), subject: { b: 1, a: { z: [1, 'x'], y: null } }, status: null, ...fields },
  }
}

function faultsOf(entries: readonly ChainedEntry[]): string[] {
  const verifier = new AuditVerifier()
  for (const one of entries) verifier.take(one)
  return verifier.faults
}

export function auditTests(store: Store): void {
  const all = (orgId: string) => store.audit.page(orgId, 0, 10_000)

  suite('audit', () => {
    test('audit: entries are a chain for each organisation, also of concurrent writers', async () => {
      const [one, other] = [newId('org_'), newId('org_')]
      const audit = new Audit(store.audit, silentLog)
      const orgs = Array.from({ length: 60 }, (_, index) => (index % 3 === 0 ? other : one))
      await Promise.all(orgs.map((orgId) => audit.record(entry(orgId))))
      await Promise.all([store.audit.append([entry(one)]), store.audit.append([entry(other), entry(one)])])
      for (const orgId of [one, other]) {
        const entries = await all(orgId)
        assert.deepEqual(
          entries.map(({ number }) => number),
          entries.map((_, index) => index + 1),
        )
        assert.deepEqual(faultsOf(entries), [])
        const head = await store.audit.head(orgId)
        assert.deepEqual([head.number, head.hash], [entries.length, entries.at(-1)?.hash])
      }
    })

    test('audit: what was altered, removed, inserted, moved or cut off at the beginning is found and named', async () => {
      const orgId = newId('org_')
      await store.audit.append(Array.from({ length: 6 }, () => entry(orgId)))
      const entries = await all(orgId)
      const [a, b, c, d, e, f] = entries as [ChainedEntry, ...ChainedEntry[]] & { length: 6 }
      const altered = { ...c!, subject: { b: 2 } }
      assert.match(faultsOf([a, b!, altered, d!]).join(), /entry 3 was altered/)
      assert.match(faultsOf([a, b!, { ...c!, status: 403 }, d!]).join(), /entry 3 was altered/)
      assert.match(faultsOf([a, b!, d!, e!]).join(), /entries 3 to 3 are missing/)
      assert.match(faultsOf([a, c!, b!, d!]).join(), /entry 2 stands behind entry 3/)
      assert.match(faultsOf([a, b!, b!, c!]).join(), /entry 2 stands behind entry 2/)
      assert.deepEqual(faultsOf([d!, e!, f!]), [], 'what is over may be deleted from the beginning')
      assert.notDeepEqual(faultsOf([{ ...a, previousHash: 'f'.repeat(64) }, b!]), [])
    })

    test('audit: what is deleted because of its age leaves a chain that goes on from its end', async () => {
      const orgId = newId('org_')
      await store.audit.append(Array.from({ length: 5 }, () => entry(orgId)))
      const [, second] = await all(orgId)
      await store.audit.purge(new Date(0), 3)
      const kept = await all(orgId)
      assert.deepEqual([kept[0]?.number, kept.length, kept[0]?.previousHash], [3, 3, second?.hash])
      const head = await store.audit.head(orgId)
      assert.deepEqual([head.prunedNumber, head.prunedHash], [2, second?.hash])
      await store.audit.purge(new Date(Date.now() + 60_000), 1000)
      assert.deepEqual(await all(orgId), [])
      await store.audit.append([entry(orgId)])
      const [next] = await all(orgId)
      assert.deepEqual([next?.number, next?.previousHash], [6, head.hash])
    })

    test('audit: filters find by who, what, about what, and how it ended', async () => {
      const orgId = newId('org_')
      await store.audit.append([
        entry(orgId, { actorId: 'key_2', subject: { id: 'sb-1', path: '/etc' } }),
        entry(orgId, { operation: 'deleteSandbox', subject: { id: 'sb-1' }, status: 403 }),
        entry(orgId, { subject: { id: 'sb-2' } }),
      ])
      const numbers = async (query: object) =>
        (await store.audit.list(orgId, { limit: 10, ...query })).map(({ number }) => number)
      assert.deepEqual(await numbers({}), [3, 2, 1])
      assert.deepEqual(await numbers({ before: 3, limit: 1 }), [2])
      assert.deepEqual(await numbers({ actorId: 'key_2' }), [1])
      assert.deepEqual(await numbers({ operation: 'deleteSandbox' }), [2])
      assert.deepEqual(await numbers({ subject: 'sb-1' }), [2, 1])
      assert.deepEqual(await numbers({ status: 403 }), [2])
      assert.deepEqual(await numbers({ status: 'ok' }), [3, 1])
      assert.deepEqual(await numbers({ from: new Date(Date.now() + 60_000) }), [])
      assert.deepEqual(await store.audit.list(newId('org_'), { limit: 10 }), [])
    })

    test('audit: text that the database does not take is hashed as it is kept', async () => {
      const orgId = newId('org_')
      await store.audit.append([entry(orgId, { subject: { cmd: 'a\0b\ud800' } })])
      assert.deepEqual(faultsOf(await all(orgId)), [])
    })

    test('audit: an organisation without any has the root as its head', async () => {
      assert.deepEqual(await store.audit.head(newId('org_')), {
        ...{ number: 0, hash: auditRoot, prunedNumber: 0, prunedHash: auditRoot },
      })
    })
  })
}
