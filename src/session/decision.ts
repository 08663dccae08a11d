import { isServiceError } from '../errors.ts'
import type { SessionLimits, SessionTimings } from './config.ts'
import type { Effect, SandboxView } from './reducer-types.ts'
import { isShared, isShortage } from './shortage.ts'
import type { SessionState } from './state.ts'
import { Transaction, type TransactionContext } from './transaction.ts'

export interface ReduceContext extends TransactionContext {
  limits: SessionLimits
  timings: SessionTimings
}

export const wakeFailedText = 'The sandbox does not wake'

/** What follows from one input, in the making: a transaction and effects. It holds the rules about failures, retries and wakes. */
export class Decision {
  readonly effects: Effect[] = []
  readonly context: ReduceContext
  readonly transaction: Transaction

  constructor(state: SessionState, context: ReduceContext) {
    this.context = context
    this.transaction = new Transaction(state, context)
  }

  get state(): SessionState {
    return this.transaction.state
  }

  /** A message with no turn before it always wakes the sandbox. A turn that was hibernated by hand waits for a request. */
  get isWakeWanted(): boolean {
    const { turn, queuedIds, run } = this.state
    return (!turn && queuedIds.length > 0) || run.wakesWanted > run.wakesServed
  }

  wantWake(): void {
    this.transaction.setRun({ wakesWanted: this.state.run.wakesWanted + 1 })
  }

  /** A client has restored it to a checkpoint, and the session has not accepted that yet. */
  isRestored(sandbox: SandboxView | undefined): boolean {
    return sandbox !== undefined && sandbox.restores !== this.state.session.sandboxRestores
  }

  /** A step that lacks capacity is tried again until the deadline; any other failure is the session's. */
  waitOrFail(error: unknown, what: string, fault?: string): void {
    this.effects.push({ type: 'release_start_permit' })
    if (!isShortage(error)) return this.fail(error, what, fault)
    const { now, limits } = this.context
    const { session, run } = this.state
    const until = new Date((session.waitingSince ?? now).getTime() + limits.shortageWaitMs)
    if (until <= now) return this.fail(error, what)
    const failures = run.shortage.failures + (isShared(error.code) ? 0 : 1)
    this.transaction.setRun({ shortage: { failures, isDue: false, error } })
    if (session.waitingFor === error.code) return
    this.transaction.wait(error.code, `${what} yet: ${error.message}. It is tried again until ${until.toISOString()}.`)
  }

  /** The capacity is there, or is needed no more. */
  endWait(succeeded: boolean): void {
    this.effects.push({ type: 'leave_capacity_queue', succeeded })
    const shortage = { failures: 0, isDue: false, error: undefined }
    this.transaction.setRun(succeeded ? { shortage, failedSteps: 0 } : { shortage })
    this.transaction.endWait()
  }

  fail(error: unknown, what: string, code?: string): void {
    this.effects.push({ type: 'log_failure', what, error })
    // Clients read faults of the world; other errors stay in the log.
    const words = isServiceError(error) ? `: ${error.message}` : ''
    this.transaction.dropAgent()
    this.transaction.fail(code ?? (isServiceError(error) ? error.code : 'internal_error'), `${what}${words}.`)
    this.transaction.setRun({ failedSteps: 0, attachFailures: 0, backOffFailures: 0 })
  }

  /** The next step is `back_off`. */
  backOff(failures: number): void {
    this.transaction.setRun({ backOffFailures: Math.max(1, failures) })
  }
}
