import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import type { Store } from '../../src/store/index.ts'
import { newOrganisation, newSession, sandboxOf } from './store-records.ts'

export function wholeTests(open: () => Promise<Store>): void {
  suite('the store as a whole', () => {
    test('ping answers while it is open, and close may be called again', async () => {
      const store = await open()
      await store.ping()
      await store.close()
      await store.close()
      await assert.rejects(store.ping(), (error) => isServiceError(error, 'unavailable'))
    })

    test('a close waits for the calls that run and refuses later ones', async () => {
      const store = await open()
      const { id: orgId } = await newOrganisation(store)
      const session = await newSession(store, orgId)
      const running = Promise.all(
        Array.from({ length: 10 }, () => [
          store.sandboxes.insertSandbox(sandboxOf(orgId)),
          store.sessions.commit(session.id, { addStream: [{ type: 'ready' }] }),
        ]).flat(),
      )
      const closed = store.close()
      const late = [
        () => store.sandboxes.insertSandbox(sandboxOf(orgId)),
        () => store.sessions.commit(session.id, { addStream: [{ type: 'ready' }] }),
        () => store.ping(),
      ]
      for (const call of late) await assert.rejects(call(), (error) => isServiceError(error, 'unavailable'))
      const committed = (await running).filter((result) => result !== undefined)
      assert.deepEqual(
        committed.map(({ lastSequence }) => lastSequence).toSorted((a, b) => a - b),
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
      )
      await closed
    })
  })
}
