import { ServiceError } from '../errors.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { CacheService } from './cache.ts'
import type { Checkpoints } from './checkpoint.ts'
import type { Lifecycle, LifecycleContext } from './lifecycle.ts'
import type { Mounts } from './mounts.ts'
import type { Sandbox, SandboxStatus } from './sandbox.ts'
import type { Volumes } from './volume.ts'

interface OrganisationSandboxesContext extends Pick<LifecycleContext, 'store' | 'driver' | 'log'> {
  lifecycle: Lifecycle
  checkpoints: Checkpoints
  volumes: Volumes
  caches: CacheService
  mounts: Pick<Mounts, 'release'>
}

/** Rows that are read at once. */
const pageRows = 200
/** Machines that are ended or removed at once. */
const atOnce = 8

/** What is done to all sandboxes of an organisation that is suspended or deleted. A repeat completes a call that was cut off. */
export class OrganisationSandboxes {
  readonly #context: OrganisationSandboxesContext

  constructor(context: OrganisationSandboxesContext) {
    this.#context = context
  }

  /** Hibernates all that runs and waits for starts under way, which then fail or hibernate. False while something still runs. */
  async hibernateAll(orgId: string): Promise<boolean> {
    const { lifecycle, log } = this.#context
    const hibernate = ({ id }: Sandbox) =>
      lifecycle.hibernate(id).catch((error: unknown) => {
        log.warn({ err: error, sandboxId: id }, 'a sandbox of a suspended organisation does not hibernate yet')
      })
    const running = await this.#page(orgId, ['creating', 'running'])
    await all(running, hibernate)
    return (await this.#page(orgId, ['creating', 'running'])).length === 0
  }

  /** Removes sandboxes, checkpoints, volumes and caches of builds: their machines and data, then their rows. */
  async removeAll(orgId: string): Promise<void> {
    const { store, driver, lifecycle, checkpoints, volumes, caches, mounts } = this.#context
    await this.#each(orgId, ['creating', 'running', 'hibernated', 'error'], async ({ id }) => {
      await lifecycle.delete(id)
      await mounts.release(id)
    })
    for (;;) {
      const { items } = await store.checkpointPage({ orgId, limit: pageRows })
      if (items.length === 0) break
      await all(items, ({ id }) => checkpoints.deleteOwned(orgId, id))
    }
    // A machine that could not be removed at its stop may still have a volume.
    for (;;) {
      const stopped = await this.#page(orgId, ['stopped'])
      if (stopped.length === 0) break
      await all(stopped, ({ id }) => driver.delete(id))
      await store.purgeSandboxes(stopped.map(({ id }) => id))
    }
    for (const { name } of await volumes.list(orgId)) {
      for (const snapshot of await volumes.listSnapshots(orgId, name)) {
        await volumes.deleteSnapshot(orgId, name, snapshot.name)
      }
      await volumes.delete(orgId, name)
    }
    await caches.removeAll(orgId)
    if ((await caches.list(orgId)).length > 0) throw new ServiceError('unavailable', 'a build still has a cache')
  }

  /** Calls `work`, which takes a sandbox out of these states, until none is in them. */
  async #each(
    orgId: string,
    statuses: readonly SandboxStatus[],
    work: (sandbox: Sandbox) => Promise<void>,
  ): Promise<void> {
    for (;;) {
      const sandboxes = await this.#page(orgId, statuses)
      if (sandboxes.length === 0) return
      await all(sandboxes, work)
    }
  }

  async #page(orgId: string, statuses: readonly SandboxStatus[]): Promise<Sandbox[]> {
    return (await this.#context.store.listSandboxes({ orgId, statuses, limit: pageRows })).items
  }
}

/** Waits for all, then throws the first failure. */
async function all<Item>(items: readonly Item[], work: (item: Item) => Promise<unknown>): Promise<void> {
  const semaphore = new Semaphore({ permits: atOnce })
  const results = await Promise.allSettled(items.map((item) => semaphore.use(() => work(item))))
  for (const result of results) if (result.status === 'rejected') throw result.reason
}
