import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import { type Sandbox, assertAlive } from './sandbox.ts'

/**
 * Orders transitions. Each sandbox has a lock, so its transitions run one after another. Expensive driver work also needs one of the
 * driver permits of its organisation.
 *
 * | transition         | waits for a permit | operations on the sandbox           | its wait for a permit ends early on |
 * |--------------------|--------------------|-------------------------------------|-------------------------------------|
 * | create, wake       | with the lock      | wait, from the call on              | a deletion, the end of the server   |
 * | hibernate, replace | without the lock   | wait, once it has permit and lock   | the end of the server               |
 * | checkpoint         | with the lock      | go on                               | the end of the server               |
 * | resize             | no permit          | go on                               |                                     |
 * | delete, exit       | no permit          | wait, then find the recorded state  |                                     |
 *
 * A lock holder waits for a permit; a permit holder never waits for a lock. The reverse would deadlock.
 */
export class TransitionQueue {
  readonly permits: Semaphore
  readonly #locks = new KeyedMutex()
  readonly #inTransition = new Set<string>()
  readonly #closing = new AbortController()

  constructor(permitsPerOrganisation: number | ((orgId: string) => number)) {
    this.permits = new Semaphore({ permitsPerKey: permitsPerOrganisation })
  }

  /** Aborts when the server ends. */
  get closing(): AbortSignal {
    return this.#closing.signal
  }

  async run<Result>(sandboxId: string, work: () => Promise<Result>): Promise<Result> {
    return await this.#locks.run(sandboxId, async () => {
      this.#inTransition.add(sandboxId)
      try {
        return await work()
      } finally {
        this.#inTransition.delete(sandboxId)
      }
    })
  }

  /** Takes a permit before the lock: during the wait the sandbox can be used and deleted. */
  async runWithPermit<Result>(sandbox: Sandbox, work: () => Promise<Result>): Promise<Result> {
    assertAlive(sandbox)
    for (;;) {
      const release = await this.permits.acquire({ key: sandbox.orgId, signal: this.closing })
      try {
        this.closing.throwIfAborted()
        if (!this.#locks.isLocked(sandbox.id)) return await this.run(sandbox.id, work)
      } finally {
        release()
      }
      await this.#locks.settled(sandbox.id)
    }
  }

  /** Keeps transitions out during work that operations need not wait for. */
  async withoutTransitions<Result>(sandboxId: string, work: () => Promise<Result>): Promise<Result> {
    return await this.#locks.run(sandboxId, work)
  }

  /** Resolves when the transition under way has ended, and those that wait for it. */
  async settled(sandboxId: string): Promise<void> {
    if (this.#inTransition.has(sandboxId)) await this.#locks.settled(sandboxId)
  }

  /** Resolves when all transitions have ended. Waits for a permit without a signal of their own fail. */
  async close(): Promise<void> {
    this.#closing.abort(serverStops())
    await this.#locks.allSettled()
  }
}

/** Runs a boot that may be aborted. Throws the abort reason after an abort, whatever error the abort has caused. */
export type RunBoot = <Result>(work: (signal: AbortSignal) => Promise<Result>) => Promise<Result>

/** Boots and wakes under way, their patches included. A deletion aborts them instead of waiting. */
export class InFlightBoots {
  readonly #boots = new Set<{ sandboxId: string; boot: AbortController }>()
  #isClosed = false

  async run<Result>(sandboxId: string, work: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    const run = await this.begin(sandboxId)
    return await run(work)
  }

  /** For a boot that writes a record first: a deletion aborts it as soon as it finds the record. The caller runs it then. */
  async begin(sandboxId: string, record?: () => Promise<unknown>): Promise<RunBoot> {
    const boot = new AbortController()
    if (this.#isClosed) boot.abort(serverStops())
    const entry = { sandboxId, boot }
    this.#boots.add(entry)
    try {
      await record?.()
    } catch (error) {
      this.#boots.delete(entry)
      throw error
    }
    return async (work) => {
      try {
        boot.signal.throwIfAborted()
        return await work(boot.signal)
      } catch (error) {
        throw boot.signal.aborted ? boot.signal.reason : error
      } finally {
        this.#boots.delete(entry)
      }
    }
  }

  abort(sandboxId: string): void {
    for (const entry of this.#boots) {
      if (entry.sandboxId === sandboxId) entry.boot.abort(deletedDuringBoot(sandboxId))
    }
  }

  /** At the end of the server. Later boots are refused. */
  abortAll(): void {
    this.#isClosed = true
    for (const { boot } of this.#boots) boot.abort(serverStops())
  }
}

/** Throws `unavailable` past the deadline; the wake goes on. */
export async function withinWakeDeadline<Result>(work: Promise<Result>, wakeWaitMs: number): Promise<Result> {
  const done = await withTimeout(
    wakeWaitMs,
    work.then((result) => ({ result })),
  )
  if (done) return done.result
  const details = { waking: true, retryAfterSeconds: 1 }
  throw new ServiceError('unavailable', 'the sandbox is still waking; try again', { details })
}

export function deletedDuringBoot(sandboxId: string): ServiceError {
  return new ServiceError('sandbox_stopped', `sandbox ${sandboxId} was deleted while it started`)
}

function serverStops(): ServiceError {
  return new ServiceError('unavailable', 'the server stops')
}
