import { setTimeout as sleep } from 'node:timers/promises'
import { type ErrorCode, isServiceError, type ServiceError } from '../errors.ts'
import { backOffMs } from '../lib/async/retry.ts'
import type { SessionLimits, SessionTimings } from './config.ts'
import type { Ledger } from './repository.ts'
import type { RetryMember, RetryQueues } from './retry-queues.ts'
import type { Session } from './session.ts'

/** What passes by itself: a quota, a full machine, something that does not answer for the moment. */
const passing = new Set<ErrorCode>(['rate_limited', 'no_capacity', 'unavailable'])
/** Those that all sessions of an organisation meet alike, and for which they queue. */
const shared = new Set<ErrorCode>(['rate_limited', 'no_capacity'])

export function isShortage(error: unknown): error is ServiceError {
  return isServiceError(error) && passing.has(error.code)
}

interface ShortageDeps {
  ledger: Ledger
  queues: RetryQueues
  limits: SessionLimits
  timings: SessionTimings
  orgId: string
  /** Aborts when the session ends or the server leaves it. */
  signal: AbortSignal
}

/**
 * What a step of a session lacks for the moment. The wait is kept with the session, so that the next server goes on with it, and
 * ends at a deadline that is counted from its beginning:
 *
 *     (none) ──met──► waiting ──pause──► due ──met──► waiting …
 *                        due ──over──► (none)      due ──met, behind the deadline──► the step has failed
 */
export class ShortageWait {
  readonly #deps: ShortageDeps
  #member: RetryMember | undefined
  /** Of those that are this session's alone, in this wait: so two that take turns are not told more and more often either. */
  #failures = 0
  #pauseMs = 0
  #isDue = false
  #pausing: AbortController | undefined

  constructor(deps: ShortageDeps) {
    this.#deps = deps
  }

  /** The session waits, and it is not yet time to try again. */
  isWaiting({ waitingFor }: Session): boolean {
    return waitingFor !== undefined && !this.#isDue
  }

  /** What other sessions of the organisation wait for already: who has not tried yet queues up behind them. */
  get lacking(): ServiceError | undefined {
    return this.#isDue ? undefined : this.#deps.queues.lacking(this.#deps.orgId)
  }

  /** Waits until the next attempt, or until the deadline, behind which there is one more. */
  async pause({ waitingFor, waitingSince }: Session): Promise<void> {
    const { queues, orgId, limits, signal } = this.#deps
    const left = (waitingSince?.getTime() ?? 0) + limits.shortageWaitMs - Date.now()
    const pausing = new AbortController()
    this.#pausing = pausing
    const deadline = setTimeout(() => pausing.abort(), Math.max(0, left))
    deadline.unref()
    const over = AbortSignal.any([signal, pausing.signal])
    try {
      if (waitingFor !== undefined && shared.has(waitingFor)) {
        this.#member ??= queues.join(orgId)
        await this.#member.acquire(over)
      } else {
        await sleep(this.#pauseMs, undefined, { signal: over })
      }
    } catch (error) {
      if (!over.aborted) throw error
    } finally {
      clearTimeout(deadline)
      this.#pausing = undefined
    }
    this.#isDue = !signal.aborted
  }

  /** Something has changed: the next attempt is made at once. */
  cutShort(): void {
    this.#pausing?.abort()
  }

  /** Takes note of what a step met, and says whether it is to be tried again; `what` is the step in words. */
  async met(error: unknown, what: string): Promise<boolean> {
    if (!isShortage(error)) return false
    const { ledger, limits, timings } = this.#deps
    const { waitingSince, waitingFor } = (await ledger.read()).session
    const until = new Date((waitingSince?.getTime() ?? Date.now()) + limits.shortageWaitMs)
    if (until.getTime() <= Date.now()) return false
    this.#isDue = false
    if (shared.has(error.code)) {
      this.#member ??= this.#deps.queues.join(this.#deps.orgId)
      this.#member.failed(error)
    } else {
      this.leave()
      this.#failures += 1
      this.#pauseMs = shortagePauseMs(this.#failures, error, timings)
    }
    if (waitingFor !== error.code) {
      const message = `${what} yet: ${error.message}. It is tried again until ${until.toISOString()}.`
      await ledger.write((draft) => draft.wait(error.code, message))
    }
    return true
  }

  /** What was lacking is there, or needed no more (`succeeded` says which). */
  async over(succeeded: boolean): Promise<void> {
    this.leave(succeeded)
    this.#failures = 0
    const { ledger } = this.#deps
    if ((await ledger.read()).session.waitingFor === undefined) return
    await ledger.write((draft) => draft.waited())
  }

  /** For now; what the session waits for stays with it. */
  leave(succeeded = false): void {
    this.#member?.leave(succeeded)
    this.#member = undefined
    this.#isDue = false
  }
}

/** Between attempts: never less than the refusal named, and not the same for all who were refused together. */
export function shortagePauseMs(failures: number, { details }: ServiceError, timings: SessionTimings): number {
  const { shortageFirstMs, shortageMaxMs } = timings
  const named = typeof details['retryAfterSeconds'] === 'number' ? details['retryAfterSeconds'] * 1000 : 0
  const grown = backOffMs(failures, { firstMs: shortageFirstMs, maxMs: shortageMaxMs })
  return Math.max(named, grown) * (1 + Math.random() / 4)
}
