import { after, before, suite } from 'node:test'
import type { Store } from '../../src/store/index.ts'
import { checkpointTests } from './store-checkpoints.ts'
import { idempotencyTests } from './store-idempotency.ts'
import { installationTests } from './store-installation.ts'
import { organisationTests } from './store-organisations.ts'
import { previewTests } from './store-previews.ts'
import { sandboxTests } from './store-sandboxes.ts'
import { sessionCommitTests } from './store-session-commits.ts'
import { sessionTests } from './store-sessions.ts'
import { textTests } from './store-text.ts'
import { wholeTests } from './store-whole.ts'

/** What every store promises. Each test works with organisations of its own, so one database serves them all. */
export function storeConformance(name: string, open: () => Promise<Store>): void {
  suite(`store conformance: ${name}`, () => {
    let opened: Store | undefined
    const store = (): Store => {
      if (opened === undefined) throw new Error('the store did not open')
      return opened
    }
    before(async () => {
      opened = await open()
    })
    after(() => opened?.close())

    organisationTests(store)
    sandboxTests(store)
    checkpointTests(store)
    previewTests(store)
    sessionTests(store)
    sessionCommitTests(store)
    idempotencyTests(store)
    installationTests(store)
    textTests(store)
    wholeTests(open)
  })
}

export type OpenedStore = () => Store
