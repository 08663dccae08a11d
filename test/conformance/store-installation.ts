import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import type { OpenedStore } from './store.ts'

export function installationTests(store: OpenedStore): void {
  suite('installation', () => {
    test('a database belongs to the first installation that joins it', async () => {
      const before = await store().installation()
      await store().joinInstallation('one')
      await store().joinInstallation('other')
      assert.equal(await store().installation(), before ?? 'one')
    })
  })
}
