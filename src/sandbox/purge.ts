import type { Log } from '../lib/log.ts'
import type { RuntimeDriver } from './ports/runtime-driver.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

interface PurgeDeps {
  store: SandboxStore
  driver: RuntimeDriver
  log: Log
}

/**
 * Forgets sandboxes that stopped before the moment. Their deletion may have failed then, and whatever lives on without a row
 * is unknown to the next start: so each is deleted once more, and one that cannot be keeps its row.
 */
export async function purgeSandboxes({ store, driver, log }: PurgeDeps, stoppedBefore: Date): Promise<void> {
  const gone: string[] = []
  for (const id of await store.stoppedSandboxIds(stoppedBefore)) {
    try {
      await driver.delete(id)
      gone.push(id)
    } catch (error) {
      log.warn({ err: error, sandboxId: id }, 'what is left of a stopped sandbox cannot be removed')
    }
  }
  if (gone.length > 0) await store.purgeSandboxes(gone)
}
