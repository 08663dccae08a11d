import { auditTests } from './audit.ts'
import assert from 'node:assert/strict'
import { after, suite, test } from 'node:test'
import type { Store } from '../../src/store/index.ts'
import { checkpointTests } from './checkpoints.ts'
import { egressTests } from './egress.ts'
import { eventTests } from './events.ts'
import { imageTests } from './images.ts'
import { idempotencyTests } from './idempotency.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { newOrganisation, newSession, sandboxOf } from './kit.ts'
import { organisationTests } from './organisations.ts'
import { previewTests } from './previews.ts'
import { usageTests } from './usage.ts'
import { volumeTests } from './volumes.ts'
import { secretTests } from './secrets.ts'
import { sandboxTests } from './sandboxes.ts'
import { sandboxTreeTests } from './sandbox-trees.ts'
import { sessionCapsuleTests } from './session-capsules.ts'
import { sessionCommitTests } from './session-commits.ts'
import { sessionTurnTests } from './session-turns.ts'
import { sessionTests } from './sessions.ts'
import { textTests } from './text.ts'

/** The contract of every store. Each test creates its own organisations, so the tests share one database. */
export async function storeConformance(name: string, open: () => Promise<Store>): Promise<void> {
  const store = await open()
  suite(`store conformance: ${name}`, () => {
    after(() => store.close())
    organisationTests(store)
    usageTests(store)
    auditTests(store)
    secretTests(store)
    egressTests(store)
    sandboxStoreTests(store)
    imageTests(store)
    sessionTests(store)
    sessionCommitTests(store)
    sessionTurnTests(store)
    sessionCapsuleTests(store)
    idempotencyTests(store)
    textTests(store)
    eventTests(store)
    // Late, because it sets the host of all records.
    installationTests(store)
    wholeTests(open)
  })
}

/** The contract of a `SandboxStore` alone. */
export async function sandboxStoreConformance(name: string, open: () => Promise<Store>): Promise<void> {
  const store = await open()
  suite(`sandbox store conformance: ${name}`, () => {
    after(() => store.close())
    sandboxStoreTests(store)
  })
}

function sandboxStoreTests(store: Store): void {
  sandboxTests(store)
  checkpointTests(store)
  sandboxTreeTests(store)
  previewTests(store)
  volumeTests(store)
}

function installationTests(store: Store): void {
  suite('installation', () => {
    test('installation: a database belongs to the first installation that joins it', async () => {
      const before = await store.installation()
      await store.joinInstallation('one')
      await store.joinInstallation('other')
      assert.equal(await store.installation(), before ?? 'one')
    })
  })
}

function wholeTests(open: () => Promise<Store>): void {
  suite('store: life cycle', () => {
    test('store: ping answers while it is open, and close may be repeated', async () => {
      const store = await open()
      await store.ping()
      await store.close()
      await store.close()
      await refuses(store.ping(), 'unavailable')
    })

    test('store: close waits for the calls in flight and refuses later ones', async () => {
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
      for (const call of late) await refuses(call(), 'unavailable')
      const committed = (await running).filter((result) => result !== undefined)
      const sequences = committed.map(({ lastSequence }) => lastSequence).toSorted((a, b) => a - b)
      assert.deepEqual(sequences, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
      await closed
    })
  })
}
