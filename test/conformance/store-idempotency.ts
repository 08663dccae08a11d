import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import type { OpenedStore } from './store.ts'
import { newOrganisation } from './store-records.ts'

const now = new Date('2026-01-15T10:30:00.000Z')
const later = (minutes: number) => new Date(now.getTime() + minutes * 60_000)

export function idempotencyTests(store: OpenedStore): void {
  suite('idempotency keys', () => {
    const newKey = async () => ({ orgId: (await newOrganisation(store())).id, key: newId('key_') })

    test('a key is new, then running, then done with the response as it was', async () => {
      const { orgId, key } = await newKey()
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'hash', now), { state: 'new' })
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'hash', now), { state: 'running' })
      const response = { statusCode: 201, body: '{"id":"sb-1"}\n', headers: { 'x-next-cursor': 'é' } }
      await store().idempotency.finish(orgId, key, response)
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'hash', later(1)), { state: 'done', ...response })
    })

    test('a response without headers or body comes back so', async () => {
      const { orgId, key } = await newKey()
      await store().idempotency.begin(orgId, key, 'hash', now)
      await store().idempotency.finish(orgId, key, { statusCode: 204, body: '' })
      const state = await store().idempotency.begin(orgId, key, 'hash', now)
      assert.deepEqual(state, { state: 'done', statusCode: 204, body: '' })
    })

    test('another request with the same key is a conflict, while the first runs and afterwards', async () => {
      const { orgId, key } = await newKey()
      await store().idempotency.begin(orgId, key, 'hash', now)
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'other', now), { state: 'conflict' })
      await store().idempotency.finish(orgId, key, { statusCode: 201, body: '' })
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'other', now), { state: 'conflict' })
    })

    test('the same key of another organisation is another key', async () => {
      const { orgId, key } = await newKey()
      await store().idempotency.begin(orgId, key, 'hash', now)
      const other = await newKey()
      assert.deepEqual(await store().idempotency.begin(other.orgId, key, 'hash', now), { state: 'new' })
    })

    test('an abandoned key is new again, and a finished one is not abandoned', async () => {
      const { orgId, key } = await newKey()
      await store().idempotency.begin(orgId, key, 'hash', now)
      await store().idempotency.abandon(orgId, key)
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'other', now), { state: 'new' })
      await store().idempotency.finish(orgId, key, { statusCode: 200, body: 'x' })
      await store().idempotency.abandon(orgId, key)
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'other', now), {
        state: 'done',
        statusCode: 200,
        body: 'x',
      })
    })

    test('a finished entry expires after a day, and one that runs does not before its end', async () => {
      const { orgId, key } = await newKey()
      await store().idempotency.begin(orgId, key, 'hash', now)
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'hash', later(60)), { state: 'running' })
      await store().idempotency.finish(orgId, key, { statusCode: 200, body: 'x' })
      const day = 24 * 60
      assert.equal((await store().idempotency.begin(orgId, key, 'hash', later(day - 1))).state, 'done')
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'other', later(day + 1)), { state: 'new' })
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'other', later(day + 1)), { state: 'running' })
    })

    test('of requests that begin at the same time one is new', async () => {
      const { orgId, key } = await newKey()
      const states = await Promise.all(
        Array.from({ length: 20 }, () => store().idempotency.begin(orgId, key, 'hash', now)),
      )
      const expected = ['new', ...Array.from({ length: 19 }, () => 'running')]
      assert.deepEqual(states.map(({ state }) => state).toSorted(), expected)
    })

    test('finishing or abandoning what never began does nothing', async () => {
      const { orgId, key } = await newKey()
      await store().idempotency.finish(orgId, key, { statusCode: 200, body: 'x' })
      await store().idempotency.abandon(orgId, key)
      assert.deepEqual(await store().idempotency.begin(orgId, key, 'hash', now), { state: 'new' })
    })

    test('a purge forgets the entries begun before the moment', async () => {
      const old = await newKey()
      const young = await newKey()
      await store().idempotency.begin(old.orgId, old.key, 'hash', new Date('2001-01-01'))
      await store().idempotency.begin(young.orgId, young.key, 'hash', now)
      assert.equal(await store().idempotency.purge(new Date('2001-01-02')), 1)
      assert.equal(await store().idempotency.purge(new Date('2001-01-02')), 0)
      assert.deepEqual(await store().idempotency.begin(young.orgId, young.key, 'hash', now), { state: 'running' })
    })
  })
}
