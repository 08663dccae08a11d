import { actingAsServer } from '../events/index.ts'
import type { Log } from '../lib/log.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

/** The longest time between two looks: a clock that was set, and an end that failed, are found by then. */
const lookEveryMs = 30_000
/** Sandboxes of one look. */
const atOnceMax = 50

interface MaxAgesContext {
  store: Pick<SandboxStore, 'nextExpiring'>
  /** Records the end; the promise in it settles when the machine is gone. */
  end: (sandboxId: string) => Promise<{ gone: Promise<void> }>
  log: Log
}

/**
 * Ends sandboxes whose maximum age is reached, in whatever state they are. The rows have the times, so those that pass while no server runs
 * are found at the next start. One timer is set for the earliest time.
 *
 *     closed ── open ──► looking ⇄ waiting ── close ──► closed
 */
export class MaxAges {
  readonly #context: MaxAgesContext
  readonly #removals = new Set<Promise<void>>()
  #timer: NodeJS.Timeout | undefined
  #dueMs = Infinity
  /** The look under way. */
  #look: Promise<void> | undefined
  #isOpen = false

  constructor(context: MaxAgesContext) {
    this.#context = context
  }

  open(): void {
    this.#isOpen = true
    this.#wait(0)
  }

  /** To be called for each new time of an end. */
  notice(expiresAt: Date | undefined): void {
    if (expiresAt !== undefined && expiresAt.getTime() < this.#dueMs) this.#wait(expiresAt.getTime() - Date.now())
  }

  /** Waits for the look under way; `removed` also for the machines. */
  async close(): Promise<void> {
    this.#isOpen = false
    clearTimeout(this.#timer)
    await this.#look
  }

  async removed(): Promise<void> {
    await Promise.all(this.#removals)
  }

  #wait(ms: number): void {
    // A look under way sets the timer at its end.
    if (!this.#isOpen) return
    clearTimeout(this.#timer)
    const delayMs = Math.min(Math.max(ms, 0), lookEveryMs)
    this.#dueMs = Date.now() + delayMs
    this.#timer = setTimeout(() => {
      const earlier = this.#look ?? Promise.resolve()
      this.#look = earlier.then(() => actingAsServer('max_age', () => this.#endDue()))
    }, delayMs).unref()
  }

  async #endDue(): Promise<void> {
    if (!this.#isOpen) return
    const { store, log } = this.#context
    this.#dueMs = Infinity
    this.#wait(lookEveryMs)
    try {
      const expiring = await store.nextExpiring(atOnceMax)
      const due = expiring.filter(({ expiresAt }) => expiresAt.getTime() <= Date.now())
      const ended = await Promise.all(due.map(({ id }) => this.#end(id)))
      // An end that failed is tried again by the next look, not at once.
      if (ended.length === atOnceMax && ended.some(Boolean)) this.#wait(0)
      else this.notice(expiring[due.length]?.expiresAt)
    } catch (error) {
      log.warn({ err: error }, 'sandboxes that have reached their maximum age could not be read')
    }
  }

  /** Returns whether its end is recorded. */
  async #end(sandboxId: string): Promise<boolean> {
    const { end, log } = this.#context
    try {
      const { gone } = await end(sandboxId)
      const removal = gone
        .catch((error: unknown) =>
          log.warn({ err: error, sandboxId }, 'remains of an ended sandbox could not be removed'),
        )
        .finally(() => this.#removals.delete(removal))
      this.#removals.add(removal)
      return true
    } catch (error) {
      log.warn({ err: error, sandboxId }, 'a sandbox that has reached its maximum age could not be ended')
      return false
    }
  }
}
