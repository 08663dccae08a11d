import { withTimeout } from '../lib/async/timeout.ts'
import type { Log } from '../lib/log.ts'
import type { Store } from './secret.ts'

/** A store whose secrets, hosts, name or existence have changed. */
export interface StoreChanged {
  storeId: string
  storeName: string
  isDefault: boolean
}

/** What became of sandboxes that run with a store. */
export interface Refreshed {
  refreshed: number
  failures: { sandboxId: string; error: string }[]
}

export interface Refresh extends Refreshed {
  /** False: some sandboxes are still being refreshed, or the refresh could not begin. */
  isComplete: boolean
}

export type ChangeListener = (orgId: string, change: StoreChanged) => Promise<Refreshed>

/** A change is answered after this time, whoever is still being told. */
const toldMs = 15_000
/** Of an answer. */
const failuresMax = 100

/** Tells those who use stores of changes. */
export class Changes {
  readonly #listeners = new Set<ChangeListener>()
  readonly #log: Log
  readonly #toldMs: number

  constructor(log: Log, { toldMs: ms = toldMs }: { toldMs?: number } = {}) {
    this.#log = log
    this.#toldMs = ms
  }

  /** Returns what ends it. */
  listen(listener: ChangeListener): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** A store that was renamed is told by both names. Never throws: the change is made. */
  async tell(stores: readonly Pick<Store, 'id' | 'orgId' | 'name' | 'isDefault'>[]): Promise<Refresh> {
    const sum: Refresh = { refreshed: 0, failures: [], isComplete: true }
    const told = stores.flatMap((store) => [...this.#listeners].map((listener) => this.#tellOne(listener, store)))
    const open = new Set(told)
    const all = told.map(async (one) => {
      const result = await one
      open.delete(one)
      sum.refreshed += result.refreshed
      sum.failures.push(...result.failures.slice(0, failuresMax - sum.failures.length))
      sum.isComplete &&= result.isComplete
    })
    await withTimeout(this.#toldMs, Promise.all(all))
    if (open.size > 0) this.#log.warn({ stores: stores.map(({ id }) => id) }, 'a change of secrets is still being told')
    return { ...sum, failures: [...sum.failures], isComplete: sum.isComplete && open.size === 0 }
  }

  async #tellOne(
    listener: ChangeListener,
    { id: storeId, orgId, name: storeName, isDefault }: Pick<Store, 'id' | 'orgId' | 'name' | 'isDefault'>,
  ): Promise<Refresh> {
    try {
      return { ...(await listener(orgId, { storeId, storeName, isDefault })), isComplete: true }
    } catch (error) {
      this.#log.warn({ err: error, storeId }, 'sandboxes could not be told of a change of secrets')
      return { refreshed: 0, failures: [], isComplete: false }
    }
  }
}
