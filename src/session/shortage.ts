import { setTimeout as sleep } from 'node:timers/promises'
import { type ErrorCode, isServiceError, type ServiceError } from '../errors.ts'
import { backOffMs } from '../lib/async/retry.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { SessionLimits } from './config.ts'

/** Codes of shortages that pass: a quota, a full machine, a part that does not answer for the moment. */
const passing = new Set<ErrorCode>(['rate_limited', 'no_capacity', 'unavailable'])

export function isShortage(error: unknown): error is ServiceError {
  return isServiceError(error) && passing.has(error.code)
}

/** A shortage that all sessions of an organisation meet alike, and queue for. */
export function isShared(code: ErrorCode): boolean {
  return code === 'rate_limited' || code === 'no_capacity'
}

interface CapacityDeps {
  queues: RetryQueues
  limits: SessionLimits
  orgId: string
  /** Aborts when the session ends or the server leaves it. */
  signal: AbortSignal
}

/** One session's pauses between attempts, and its place in the queue of its organisation. */
export class CapacityWait {
  readonly #deps: CapacityDeps
  #member: RetryMember | undefined
  #pause: AbortController | undefined

  constructor(deps: CapacityDeps) {
    this.#deps = deps
  }

  /** Throws the shortage that other sessions of the organisation wait out, so that this session queues behind them. */
  assertFree(): void {
    const shortage = this.#deps.queues.findShortage(this.#deps.orgId)
    if (shortage) throw shortage
  }

  /** Returns when the next attempt is due, at `until` at the latest. `error` is what the last attempt met, if it was ours. */
  async pause(wait: {
    isShared: boolean
    error: ServiceError | undefined
    failures: number
    until: Date
  }): Promise<void> {
    const { queues, orgId, signal, limits } = this.#deps
    const { error, failures } = wait
    const pause = new AbortController()
    this.#pause = pause
    const deadline = setTimeout(() => pause.abort(), Math.max(0, wait.until.getTime() - Date.now()))
    deadline.unref()
    const over = AbortSignal.any([signal, pause.signal])
    try {
      if (wait.isShared) {
        this.#member ??= queues.join(orgId)
        if (error) this.#member.noteShortage(error)
        await this.#member.acquire(over)
      } else {
        this.leave(false)
        await sleep(error ? shortagePauseMs(failures, error, limits) : 0, undefined, { signal: over })
      }
    } catch (failure) {
      if (!over.aborted) throw failure
    } finally {
      clearTimeout(deadline)
      this.#pause = undefined
    }
  }

  /** The next attempt is due now. */
  endPause(): void {
    this.#pause?.abort()
  }

  leave(succeeded: boolean): void {
    this.#member?.leave(succeeded)
    this.#member = undefined
  }
}

/** Between attempts: at least what the refusal named, and with jitter, so that sessions refused together come back apart. */
function shortagePauseMs(failures: number, { details }: ServiceError, limits: SessionLimits): number {
  const { shortageFirstMs, shortageMaxMs } = limits
  const named = typeof details['retryAfterSeconds'] === 'number' ? details['retryAfterSeconds'] * 1000 : 0
  const grown = backOffMs(failures, { firstMs: shortageFirstMs, maxMs: shortageMaxMs })
  return Math.max(named, grown) * (1 + Math.random() / 4)
}

interface Queue {
  readonly semaphore: Semaphore
  members: number
  /** Failures in a row; the pause grows with them. */
  failures: number
  /** The earliest next attempt, on the clock of `performance`. */
  notBefore: number
  /** What the last attempt met. */
  shortage?: ServiceError
}

/**
 * Sessions of one organisation that lack the same (a quota, room on the machine) try again one after another; one that failed queues
 * behind the others. So what comes free goes to the sessions that wait, in order, as fast as they can take it; while nothing
 * does, all of them together cost one attempt per pause.
 */
export class RetryQueues {
  readonly #queues = new Map<string, Queue>()
  readonly #limits: SessionLimits
  readonly #attemptMs: number

  /** An attempt that takes longer than `attemptMs` lets the next one begin beside it. */
  constructor(limits: SessionLimits, attemptMs: number) {
    this.#limits = limits
    this.#attemptMs = attemptMs
  }

  /** What the sessions of this organisation wait for; undefined when none waits. */
  findShortage(orgId: string): ServiceError | undefined {
    return this.#queues.get(orgId)?.shortage
  }

  join(orgId: string): RetryMember {
    const fresh = { semaphore: new Semaphore({ permits: 1 }), members: 0, failures: 0, notBefore: 0 }
    const queue = this.#queues.get(orgId) ?? fresh
    this.#queues.set(orgId, queue)
    queue.members += 1
    return new RetryMember(queue, {
      pauseMs: (shortage) => shortagePauseMs(queue.failures, shortage, this.#limits),
      attemptMs: this.#attemptMs,
      onLeave: () => {
        queue.members -= 1
        if (queue.members === 0) this.#queues.delete(orgId)
      },
    })
  }
}

interface Rules {
  pauseMs: (shortage: ServiceError) => number
  attemptMs: number
  onLeave: () => void
}

/** One session among them: waiting ──acquire──► trying ──failed──► waiting        any ──leave──► gone */
class RetryMember {
  readonly #queue: Queue
  readonly #rules: Rules
  #release: (() => void) | undefined
  #timer: NodeJS.Timeout | undefined
  #isTrying = false
  #hasLeft = false

  constructor(queue: Queue, rules: Rules) {
    this.#queue = queue
    this.#rules = rules
  }

  /** Waits until this session may try. Throws the signal's reason when that aborts. */
  async acquire(signal: AbortSignal): Promise<void> {
    const release = await this.#queue.semaphore.acquire({ signal })
    try {
      const pause = this.#queue.notBefore - performance.now()
      if (pause > 0) await sleep(Math.ceil(pause), undefined, { signal })
    } catch (error) {
      release()
      throw error
    }
    this.#release = release
    this.#isTrying = true
    this.#timer = setTimeout(release, this.#rules.attemptMs).unref()
  }

  /** The attempt met this shortage; or, before its first attempt, the session has it from the others. */
  noteShortage(shortage: ServiceError): void {
    const queue = this.#queue
    if (this.#isTrying || queue.shortage === undefined) {
      queue.shortage = shortage
      queue.failures += 1
      queue.notBefore = performance.now() + this.#rules.pauseMs(shortage)
    }
    this.#end()
  }

  /** Leaves the queue. After a success the next session tries at once. */
  leave(succeeded: boolean): void {
    if (this.#hasLeft) return
    this.#hasLeft = true
    if (succeeded && this.#isTrying) Object.assign(this.#queue, { failures: 0, notBefore: 0 })
    this.#end()
    this.#rules.onLeave()
  }

  #end(): void {
    clearTimeout(this.#timer)
    this.#isTrying = false
    this.#release?.()
    this.#release = undefined
  }
}
