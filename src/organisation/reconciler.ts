import { actingAsServer } from '../events/index.ts'
import { backOff } from '../lib/async/retry.ts'
import type { Log } from '../lib/log.ts'
import { statusOf } from './organisation.ts'
import type { Organisations } from './organisations.ts'

/** A part of the server that has things of organisations. A repeat of each call is harmless, and completes one that was cut off. */
export interface OrganisationPart {
  /** For the log: `sandboxes`. */
  name: string
  /** Ends what works or runs. False while something still does. */
  suspend?(orgId: string): Promise<boolean>
  /** Goes on with what `suspend` has left. */
  resume?(orgId: string): Promise<void>
  /** Removes all that the organisation has. */
  remove(orgId: string): Promise<void>
}

interface ReconcilerDeps {
  organisations: Organisations
  /** In the order in which they let go: each may use those behind it. */
  parts: readonly OrganisationPart[]
  log: Log
}

const failurePause = { firstMs: 500, maxMs: 60_000 }
/** Before another look at a suspended one. */
const lookPause = { firstMs: 500, maxMs: 30_000 }
/** A start that was admitted before the suspension may be recorded after the first look. */
const quietLooks = 2

/** Work under way on one organisation. */
interface Run {
  /** Its state has changed meanwhile. */
  isStale: boolean
  pause: AbortController
  done: Promise<void>
}

/**
 * Brings what runs and what there is of each organisation to its state: nothing runs of a suspended one, nothing is left of a deleted one. It
 * looks at the state and not at its changes, so a start of the server goes on where a crash has cut the last one off.
 */
export class OrganisationReconciler {
  readonly #deps: ReconcilerDeps
  readonly #closing = new AbortController()
  readonly #running = new Map<string, Run>()
  #unsubscribe: () => void = () => undefined

  constructor(deps: ReconcilerDeps) {
    this.#deps = deps
  }

  /** Call once, when all parts have started. */
  start(): void {
    const { organisations } = this.#deps
    this.#unsubscribe = organisations.subscribe(({ type, orgId }) => {
      if (type === 'suspended' || type === 'resumed' || type === 'deleting') this.#begin(orgId)
    })
    for (const organisation of organisations.list()) {
      if (statusOf(organisation) !== 'active') this.#begin(organisation.id)
    }
  }

  /** Resolves when the state of the organisation is carried out as it was at the call. */
  async settled(orgId: string): Promise<void> {
    await this.#running.get(orgId)?.done
  }

  /** Waits for the call under way; the next start goes on. */
  async close(): Promise<void> {
    this.#unsubscribe()
    this.#closing.abort()
    await Promise.all([...this.#running.values()].map(({ done }) => done))
  }

  #begin(orgId: string): void {
    const earlier = this.#running.get(orgId)
    if (earlier !== undefined) {
      earlier.isStale = true
      earlier.pause.abort()
      return
    }
    const run: Run = { isStale: false, pause: new AbortController(), done: Promise.resolve() }
    this.#running.set(orgId, run)
    run.done = this.#run(orgId, run).finally(() => this.#running.delete(orgId))
  }

  async #run(orgId: string, run: Run): Promise<void> {
    const { log } = this.#deps
    const closing = this.#closing.signal
    let failures = 0
    let looks = 0
    let quiet = 0
    while (!closing.aborted) {
      if (run.isStale) quiet = looks = failures = 0
      Object.assign(run, { isStale: false, pause: new AbortController() })
      const signal = AbortSignal.any([closing, run.pause.signal])
      try {
        const isQuiet = await actingAsServer('operator', () => this.#reconcile(orgId))
        failures = 0
        looks = isQuiet ? 1 : looks + 1
        quiet = isQuiet ? quiet + 1 : 0
        const isDone = quiet >= quietLooks || !this.#isSuspended(orgId)
        if (isDone && !run.isStale) return
        if (!isDone) await backOff(looks, lookPause, signal)
      } catch (error) {
        failures += 1
        log.warn({ err: error, orgId, failures }, 'an organisation is not yet in its state; this is tried again')
        await backOff(failures, failurePause, signal)
      }
    }
  }

  #isSuspended(orgId: string): boolean {
    const organisation = this.#deps.organisations.find(orgId)
    return organisation !== undefined && statusOf(organisation) === 'suspended'
  }

  /** False while something runs that should not. */
  async #reconcile(orgId: string): Promise<boolean> {
    const { organisations, parts, log } = this.#deps
    const organisation = organisations.find(orgId)
    if (organisation === undefined) return true
    switch (statusOf(organisation)) {
      case 'active':
        for (const part of parts) await part.resume?.(orgId)
        return true
      case 'suspended': {
        let isQuiet = true
        for (const part of parts) isQuiet = (await part.suspend?.(orgId)) !== false && isQuiet
        return isQuiet
      }
      case 'deleting':
        for (const part of parts) {
          if (this.#closing.signal.aborted) return false
          await part.remove(orgId)
        }
        await organisations.removed(orgId)
        log.info({ orgId }, 'an organisation is deleted with all that it had')
        return true
    }
  }
}
