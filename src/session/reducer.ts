import { constants } from 'node:os'
import { isServiceError, ServiceError } from '../errors.ts'
import type { SessionLimits, SessionTimings } from './config.ts'
import type { Effect, Input, SandboxView, StepEffect, StepName, StepResult, TimerName } from './reducer-types.ts'
import type { SessionChange } from './store.ts'
import { isShared, isShortage } from './shortage.ts'
import { hasWork, idleRestartsMax, type ConnectionState, type RunnerState, type SessionState } from './state.ts'
import { Transaction, type TransactionContext } from './transaction.ts'

/*
 * A session is `(state, input) → (state, rows, effects)`. Inputs are facts; effects are data, which the runner carries out. The
 * reducer reads no clock, store or sandbox. One step (an effect that takes time) is under way at most, and its result is an
 * input, so a session with work is never without a step. Between two steps the reducer decides, from the top:
 *
 * | state                                   | step                     | its results                                              |
 * |-----------------------------------------|--------------------------|----------------------------------------------------------|
 * | ended, ending                           | none                     |                                                          |
 * | a step has failed before                | `back_off`               | step_done                                                |
 * | failed                                  | `inspect_sandbox`        | inspected: at rest until a message or a restart          |
 * | waits for capacity, not due             | `wait_for_capacity`      | capacity_wait_over: due, the step that lacked it follows |
 * | starting, no sandbox yet                | `boot`                   | booted, step_failed                                      |
 * | fork whose sandbox is ready             | `delete_fork_checkpoint` | fork_checkpoint_deleted                                  |
 * | any other                               | `inspect_sandbox`        | inspected: see the next table                            |
 *
 * | sandbox, when it is inspected           | step                     | its results                                              |
 * |-----------------------------------------|--------------------------|----------------------------------------------------------|
 * | stopped, error                          | none: failed             |                                                          |
 * | hibernated, no work or no wake wanted   | none: asleep             |                                                          |
 * | restored by a client                    | `accept_restore`         | restore_accepted, step_failed                            |
 * | no agent, but work or restarts left     | `start_agent`            | agent_begun, then agent_started, step_done, step_failed  |
 * | no agent, no work                       | none: idle               |                                                          |
 * | agent                                   | `attach`                 | attached, live, agent_output …, then attachment_ended;   |
 * |                                         |                          | or attach_failed                                         |
 */

export interface ReduceContext extends TransactionContext {
  limits: SessionLimits
  timings: SessionTimings
}

export interface Reduction {
  state: SessionState
  /** Absent when nothing is to be committed. */
  change: SessionChange | undefined
  effects: readonly Effect[]
}

/** Agents in a row that end before they are configured, until the session is `failed`. */
const agentStartsMax = 3
/** Failures in a row to reach the agent of a running sandbox, until the session is `failed`. */
const attachFailuresMax = 12
const { SIGINT, SIGKILL } = constants.signals
export const wakeFailedText = 'The sandbox does not wake'

/** `state` and `input` stay as they are. Throws a `ServiceError` for a request that is refused. */
export function reduce(state: SessionState, input: Input, context: ReduceContext): Reduction {
  const transaction = new Transaction(state, context)
  const reducer = new Reducer(transaction, context)
  if (state.session.status !== 'ended') reducer.take(input)
  else if (isRefusedAfterEnd(input)) throw hasEnded()
  const change = transaction.isEmpty ? undefined : transaction.change
  return { state: transaction.state, change, effects: reducer.effects }
}

/** The sandbox to keep awake: there is work for it. */
export function awakeSandboxId(state: SessionState): string | undefined {
  const { activity, status, sandboxId } = state.session
  const isDriven = status === 'running' && activity !== 'failed' && !state.run.isEnding
  return isDriven && state.run.step !== undefined && hasWork(state) ? sandboxId : undefined
}

/**
 * Nothing is under way, and the store knows all that matters. What the store does not know: a loss that was reported, and that
 * the restarts of an idle agent are used up.
 */
export function isAtRest(run: RunnerState): boolean {
  return run.step === undefined && run.lostSandboxId === undefined && run.idleRestarts < idleRestartsMax
}

export function hasEnded(): ServiceError {
  return new ServiceError('conflict', 'the session has ended')
}

const stepResults: Record<StepResult['type'], true> = {
  step_done: true,
  step_failed: true,
  inspected: true,
  booted: true,
  fork_checkpoint_deleted: true,
  restore_accepted: true,
  agent_started: true,
  capacity_wait_over: true,
  attach_failed: true,
  attachment_ended: true,
}

function isStepResult(input: Input): input is StepResult {
  return input.type in stepResults
}

const stepEffects: Record<StepName, true> = {
  inspect_sandbox: true,
  boot: true,
  delete_fork_checkpoint: true,
  accept_restore: true,
  start_agent: true,
  attach: true,
  wait_for_capacity: true,
  back_off: true,
}

export function isStep(effect: Effect): effect is StepEffect {
  return effect.type in stepEffects
}

function isRefusedAfterEnd({ type }: Input): boolean {
  return ['message', 'interrupt', 'cancel_message', 'pause', 'restart'].includes(type)
}

class Reducer {
  readonly effects: Effect[] = []
  readonly #transaction: Transaction
  readonly #context: ReduceContext

  constructor(transaction: Transaction, context: ReduceContext) {
    this.#transaction = transaction
    this.#context = context
  }

  get #state(): SessionState {
    return this.#transaction.state
  }

  take(input: Input): void {
    const isDecided = isStepResult(input) ? this.#stepEnded(input) === 'decided' : this.#apply(input)
    if (input.type !== 'message') this.#pump()
    else if (this.#state.run.connection?.isLive) this.effects.push({ type: 'start_turn' })
    if (!isDecided) this.#decide()
  }

  #apply(input: Exclude<Input, StepResult>): void {
    const transaction = this.#transaction
    const { session, run, hibernated } = this.#state
    switch (input.type) {
      case 'resume':
        return this.#wantWake()
      case 'continue':
        transaction.setRun({ failedStarts: 0 })
        return this.#wantWake()
      case 'message':
        this.#assertOpen()
        if (run.lostSandboxId === session.sandboxId) {
          throw new ServiceError('conflict', 'the sandbox of the session is lost; restart the session')
        }
        assertHasRoom(this.#state, input.content, this.#context.limits)
        transaction.addUserMessage(input.content, input.creation)
        transaction.setRun({ failedStarts: 0 })
        return this.#wantWake()
      case 'interrupt':
        transaction.interrupt()
        if (!transaction.isEmpty) this.#wantWake()
        return
      case 'cancel_message':
        if (!this.#state.queuedIds.includes(input.messageId)) {
          throw new ServiceError('conflict', 'the message does not wait any more')
        }
        return transaction.cancelMessage(input.messageId)
      case 'pause':
        if (this.#state.turn || session.activity !== 'idle') {
          throw new ServiceError('conflict', `the session is ${session.activity}; it has to be idle`)
        }
        return transaction.setRun({ isPaused: true })
      case 'start_turn':
        return
      case 'unpause':
        return transaction.setRun({ isPaused: false })
      case 'restart':
        return this.#restart(input)
      case 'ending':
        return transaction.setRun({ isEnding: true })
      case 'end':
        return transaction.end(input.tokenHash)
      case 'sandbox_changed':
        return this.#sandboxChanged(input)
      case 'sandbox_lost':
        if (session.sandboxId !== input.sandboxId) return
        // A boot under way may still create it: the next restart would delete nothing, and a crash would leave it without a session.
        if (!input.sandbox && !this.#state.sandboxReady && session.activity === 'starting') {
          throw new ServiceError('conflict', 'the sandbox of the session is being started')
        }
        if (session.activity !== 'failed') return this.#lose(input.sandbox)
        return transaction.setRun({ lostSandboxId: session.sandboxId })
      case 'preview_ready':
        // The session may have another sandbox by now.
        if (session.sandboxId === input.sandboxId && !this.#state.previewReady) {
          transaction.note('preview_ready', 'info', 'The preview answers.')
        }
        return
      case 'attached':
        // The sandbox was lost meanwhile, and perhaps replaced.
        if (session.agentProcessId !== input.processId) return void this.effects.push({ type: 'detach' })
        transaction.setRun({ connection: newConnection })
        if (session.activity === 'starting') this.#setTimer('late_start', this.#context.timings.agentStartMs)
        if (hibernated) transaction.note('sandbox_resumed', 'info', 'The sandbox runs again.')
        return this.#endWait(true)
      case 'live':
        this.#setConnection({ isLive: true })
        if (this.#state.agentReady && !this.#state.previewReady) this.effects.push({ type: 'watch_preview' })
        return
      case 'agent_output':
        return this.#takeOutput(input)
      case 'warning':
        return transaction.warn(input.code, input.message)
      case 'commands_sent':
        return transaction.setRun({ wakesServed: Math.max(run.wakesServed, input.wakes) })
      case 'timer':
        return input.name === 'escalate' ? this.#escalate() : this.#killLateAgent()
      case 'agent_begun':
        if (session.sandboxId !== input.sandboxId || session.activity === 'failed') return
        return transaction.beginAgent(input.processId, input.tokenHash)
      case 'recover':
        this.effects.push({ type: 'release_start_permit' })
        return transaction.setRun({
          step: undefined,
          isInspectionStale: false,
          connection: undefined,
          failedSteps: run.failedSteps + 1,
          backOffFailures: run.failedSteps + 1,
        })
    }
  }

  /** The reducer has begun the next step itself when it returns `decided`. */
  #stepEnded(input: StepResult): 'decided' | void {
    const transaction = this.#transaction
    const { session, run, sandboxReady } = this.#state
    transaction.setRun({ step: undefined })
    switch (input.type) {
      case 'step_done':
        return
      case 'step_failed':
        return this.#stepFailed(input)
      case 'inspected':
        transaction.setRun({ isInspectionStale: false })
        // The session may have gone on, or have another sandbox by now.
        if (session.sandboxId !== input.sandboxId || run.isEnding || this.#stepBeforeInspection()) return
        if (run.isInspectionStale) return
        this.#act(input.sandbox)
        return 'decided'
      case 'booted':
        if (session.sandboxId !== input.sandboxId) {
          this.effects.push({ type: 'delete_sandbox', sandboxId: input.sandboxId })
          return
        }
        if (!sandboxReady) transaction.note('sandbox_ready', 'info', 'The sandbox is ready.')
        return this.#endWait(true)
      case 'fork_checkpoint_deleted':
        transaction.setRun({ forkCheckpointTried: true })
        if (!input.isDeleted || session.sandboxId !== input.sandboxId) return
        return transaction.set({ checkpointId: undefined, forkCheckpointOf: undefined })
      case 'restore_accepted':
        if (input.restores !== undefined && session.sandboxId === input.sandboxId) transaction.restored(input.restores)
        return this.#endWait(true)
      case 'agent_started':
        return this.#endWait(true)
      case 'capacity_wait_over':
        return transaction.setRun({ shortage: { ...run.shortage, isDue: true } })
      case 'attach_failed':
        return this.#attachFailed(input)
      case 'attachment_ended':
        transaction.setRun({ connection: undefined })
        this.effects.push({ type: 'release_start_permit' })
        if (input.exitCode !== undefined) return this.#agentGone(input.processId, endOf(input.exitCode))
        transaction.setRun({ attachFailures: input.wasLong ? run.attachFailures : run.attachFailures + 1 })
        return this.#backOff(input.wasLong ? 1 : run.attachFailures + 1)
    }
  }

  /** Begins the next step, unless one is under way. */
  #decide(): void {
    const { session, run } = this.#state
    if (run.step !== undefined || run.isEnding || session.status === 'ended') return
    this.#begin(this.#stepBeforeInspection() ?? { type: 'inspect_sandbox' })
  }

  #stepBeforeInspection(): StepEffect | undefined {
    const { session, run, sandboxReady } = this.#state
    if (run.backOffFailures > 0) return { type: 'back_off', failures: run.backOffFailures }
    if (session.activity === 'failed') return undefined
    const { error, failures, isDue } = run.shortage
    if (session.waitingFor !== undefined && !isDue) {
      const until = new Date((session.waitingSince?.getTime() ?? 0) + this.#context.limits.shortageWaitMs)
      return { type: 'wait_for_capacity', isShared: isShared(session.waitingFor), error, failures, until }
    }
    if (!sandboxReady) return { type: 'boot', queues: !isDue }
    const hasForkCheckpoint = session.forkCheckpointOf !== undefined && !run.forkCheckpointTried
    return hasForkCheckpoint ? { type: 'delete_fork_checkpoint' } : undefined
  }

  /** Begins the next step on a sandbox that is in this state now. Undefined stands for one that is gone. */
  #act(sandbox: SandboxView | undefined): void {
    const { session, run, sandboxReady, hibernated } = this.#state
    // The loss of a sandbox that was replaced meanwhile.
    if (run.lostSandboxId !== session.sandboxId) this.#transaction.setRun({ lostSandboxId: undefined })
    const status = sandbox?.status ?? 'stopped'
    const isLost = status === 'stopped' || status === 'error'
    if (session.activity === 'failed') {
      this.#transaction.setRun({ lostSandboxId: isLost && sandboxReady ? session.sandboxId : undefined })
      return this.#rest()
    }
    if (isLost) {
      this.#lose(sandbox)
      return this.#rest()
    }
    const works = hasWork(this.#state)
    const isAsleep = status === 'hibernated'
    if (isAsleep && !(works && this.#isWakeWanted)) {
      if (!hibernated) this.#transaction.note('sandbox_hibernated', 'info', 'The sandbox hibernates.')
      return this.#rest()
    }
    const queues = isAsleep && !run.shortage.isDue
    if (this.#isRestored(sandbox)) return this.#begin({ type: 'accept_restore', queues })
    const { agentProcessId: processId, agentOffset: offset } = session
    if (processId !== undefined) {
      return this.#begin({ type: 'attach', processId, offset, wake: this.#isWakeWanted && works, queues })
    }
    if (!works && run.idleRestarts >= idleRestartsMax) return this.#rest()
    this.#begin({ type: 'start_agent', failedStarts: run.failedStarts, queues })
  }

  #begin(effect: StepEffect): void {
    const { shortage } = this.#state.run
    const step: StepName = effect.type
    if (step === 'back_off') this.#transaction.setRun({ backOffFailures: 0 })
    if (step === 'wait_for_capacity') this.#transaction.setRun({ shortage: { ...shortage, error: undefined } })
    this.#transaction.setRun({ step })
    this.effects.push(effect)
  }

  /** The next input decides anew. */
  #rest(): void {
    this.effects.push({ type: 'release_start_permit' })
    this.#endWait(false)
  }

  #restart({ lostId, sandboxId, checkpointId, creation }: Input & { type: 'restart' }): void {
    this.#assertOpen()
    if (this.#state.session.sandboxId !== lostId) {
      throw new ServiceError('conflict', 'the session has been restarted meanwhile')
    }
    this.#transaction.restart(sandboxId, checkpointId, creation)
    this.#transaction.setRun({ lostSandboxId: undefined, failedStarts: 0 })
    this.effects.push({ type: 'end_capacity_pause' })
    this.#wantWake()
  }

  #sandboxChanged({ sandboxId, status, reason, sandbox }: Input & { type: 'sandbox_changed' }): void {
    const { session, sandboxReady, hibernated } = this.#state
    // A sandbox that was replaced does not concern the session.
    if (!sandboxReady || session.sandboxId !== sandboxId) return
    // An inspection under way may have read the state before this change: its result must not decide.
    if (this.#state.run.step === 'inspect_sandbox') this.#transaction.setRun({ isInspectionStale: true })
    if (status === 'hibernated') {
      if (!hibernated) this.#transaction.note('sandbox_hibernated', 'info', 'The sandbox hibernates.')
      this.effects.push({ type: 'detach' })
    }
    if (status === 'running') {
      if (hibernated) this.#transaction.note('sandbox_resumed', 'info', 'The sandbox runs again.')
      this.effects.push({ type: 'end_capacity_pause' })
    }
    if (status === 'stopped' || status === 'error') this.#lose({ restores: 0, ...sandbox, status }, reason)
    if (this.#isRestored(sandbox)) this.effects.push({ type: 'detach' })
  }

  /** Fails the session, once for each sandbox. */
  #lose(sandbox: SandboxView | undefined, reason?: string): void {
    const { session, run } = this.#state
    if (run.lostSandboxId === session.sandboxId || run.isEnding) return
    const code = reason ?? sandbox?.reason ?? 'sandbox_stopped'
    const isError = sandbox?.status === 'error'
    const words = sandbox?.reasonMessage ?? (isError ? `it is in error (${code})` : 'it was stopped')
    this.#transaction.dropAgent()
    this.#transaction.fail(code, `The sandbox of the session is lost: ${words}.`)
    this.#transaction.setRun({ lostSandboxId: session.sandboxId })
    this.effects.push({ type: 'detach' })
  }

  #isRestored(sandbox: SandboxView | undefined): boolean {
    return sandbox !== undefined && sandbox.restores !== this.#state.session.sandboxRestores
  }

  /** A message with no turn before it always wakes the sandbox. A turn that was hibernated by hand waits for a request. */
  get #isWakeWanted(): boolean {
    const { turn, queuedIds, run } = this.#state
    return (!turn && queuedIds.length > 0) || run.wakesWanted > run.wakesServed
  }

  #wantWake(): void {
    this.#transaction.setRun({ wakesWanted: this.#state.run.wakesWanted + 1 })
  }

  #takeOutput({ processId, output, offset, framework }: Input & { type: 'agent_output' }): void {
    const transaction = this.#transaction
    const { session, turn, run } = this.#state
    if (session.agentProcessId !== processId) return
    for (const line of output) transaction.take(line)
    transaction.set({ agentOffset: offset })
    if (framework !== undefined && framework !== session.framework) transaction.set({ framework })
    const types = new Set(output.map(({ type }) => type))
    const isConfigured = types.has('configured')
    const hasTurnEnded = turn !== undefined && this.#state.turn?.messageId !== turn.messageId
    transaction.setRun({
      attachFailures: 0,
      failedStarts: isConfigured ? 0 : run.failedStarts,
      idleRestarts: hasTurnEnded ? 0 : run.idleRestarts,
    })
    if (isConfigured) this.effects.push({ type: 'release_start_permit' })
    // A configured agent may be in a sandbox whose servers came with the memory of a checkpoint.
    if (hasTurnEnded || isConfigured || types.has('tool_use_summary')) this.effects.push({ type: 'watch_preview' })
    const { configureError, overdraft } = transaction
    if (!configureError && !overdraft) return
    if (configureError) {
      transaction.fail(configureError.code, configureError.message)
      transaction.dropAgent()
    } else if (overdraft) {
      transaction.stopOutput(overdraft)
    }
    this.effects.push({ type: 'detach' }, { type: 'signal_agent', processId, signal: SIGKILL })
    if (overdraft === 'idle' || overdraft === 'turn') {
      this.#countEnd(session.activity === 'starting', 'it said more than it may')
    }
  }

  /** Sends what the agent is to do next: `configure`, then one message at a time, then an interrupt. */
  #pump(): void {
    const { session, run } = this.#state
    const { connection } = run
    if (!connection?.isLive || run.isEnding || session.activity === 'failed') return
    if (session.activity === 'starting') {
      if (!connection.configureSent) this.effects.push({ type: 'send', command: { type: 'configure' } })
      return this.#setConnection({ configureSent: true })
    }
    const [next] = this.#state.queuedIds
    if (!this.#state.turn && next !== undefined) {
      if (run.isPaused) return
      this.#transaction.startTurn(next)
    }
    const { turn } = this.#state
    // An earlier attachment may have lost the message; the agent knows a repeat by its id.
    if (turn && connection.sentMessageId !== turn.messageId) {
      this.effects.push({ type: 'send', command: { type: 'message', messageId: turn.messageId } })
      this.#setConnection({ sentMessageId: turn.messageId })
    }
    const interruptedId = this.#interruptedId
    if (interruptedId !== undefined && connection.interruptedMessageId !== interruptedId) {
      this.effects.push({ type: 'send', command: { type: 'interrupt', messageId: interruptedId } })
      this.#setConnection({ interruptedMessageId: interruptedId, escalation: 0 })
      this.#setTimer('escalate', this.#context.timings.interruptAskMs)
    }
    if (run.wakesWanted > Math.max(run.wakesServed, connection.wakesReported)) {
      this.effects.push({ type: 'report_sent', wakes: run.wakesWanted })
      this.#setConnection({ wakesReported: run.wakesWanted })
    }
  }

  /** The message whose turn runs and is to end. */
  get #interruptedId(): string | undefined {
    const { turn, session } = this.#state
    return turn && session.interruptedMessageId === turn.messageId ? turn.messageId : undefined
  }

  /** The agent has not ended its turn in time: asked ─interruptAskMs─► SIGINT ─interruptSigintMs─► SIGKILL, every retryMaxMs. */
  #escalate(): void {
    const { session, run } = this.#state
    const { connection } = run
    const interruptedId = this.#interruptedId
    const processId = session.agentProcessId
    if (!connection || processId === undefined || interruptedId === undefined) return
    if (connection.interruptedMessageId !== interruptedId) return
    const isFirst = connection.escalation === 0
    const { interruptSigintMs, retryMaxMs } = this.#context.timings
    this.effects.push({ type: 'signal_agent', processId, signal: isFirst ? SIGINT : SIGKILL })
    this.#setConnection({ escalation: connection.escalation + 1 })
    this.#setTimer('escalate', isFirst ? interruptSigintMs : retryMaxMs)
  }

  #killLateAgent(): void {
    const { session, run } = this.#state
    if (!run.connection || session.activity !== 'starting' || session.agentProcessId === undefined) return
    this.effects.push({ type: 'signal_agent', processId: session.agentProcessId, signal: SIGKILL })
    // Again, since the signal may fail.
    this.#setTimer('late_start', this.#context.timings.agentStartMs)
  }

  #agentGone(processId: string, detail: string): void {
    const { session } = this.#state
    if (session.agentProcessId !== processId) return
    this.#transaction.agentGone(detail)
    this.#countEnd(session.activity === 'starting', detail)
  }

  /** Counts a process that has ended. Too many that were not configured fail the session. */
  #countEnd(wasStarting: boolean, detail: string): void {
    const { failedStarts: before, idleRestarts } = this.#state.run
    const failedStarts = wasStarting ? before + 1 : before
    this.#transaction.setRun({ failedStarts, idleRestarts: Math.min(idleRestarts + 1, idleRestartsMax) })
    if (!wasStarting || failedStarts < agentStartsMax) return this.#backOff(1)
    this.#fail(new ServiceError('unavailable', detail), 'The agent does not start', 'agent_exited')
  }

  #attachFailed({ processId, error, sandbox }: Input & { type: 'attach_failed' }): void {
    const { session, run } = this.#state
    if (session.agentProcessId !== processId || this.#isRestored(sandbox)) return
    if (isServiceError(error, 'not_found')) {
      // The sandbox came back without its processes. Without work the next agent waits for a message.
      this.#transaction.setRun({ idleRestarts: idleRestartsMax })
      return this.#agentGone(processId, 'it is not there any more')
    }
    const isRunning = sandbox?.status === 'running'
    // Otherwise it fell asleep meanwhile, or is lost: the next inspection sees which.
    const counts = isRunning || this.#isWakeWanted
    if (!isRunning && this.#isWakeWanted && isShortage(error)) return this.#waitOrFail(error, wakeFailedText)
    const attachFailures = run.attachFailures + (counts ? 1 : 0)
    this.#transaction.setRun({ attachFailures })
    if (counts && attachFailures >= attachFailuresMax) {
      const fault = !isServiceError(error) && sandbox?.status === 'error' ? sandbox.reason : undefined
      return this.#fail(error, isRunning ? 'The agent cannot be reached' : wakeFailedText, fault)
    }
    this.#backOff(attachFailures)
  }

  #stepFailed({ sandboxId, what, error, fault, processId }: Input & { type: 'step_failed' }): void {
    const { session } = this.#state
    // The sandbox was lost meanwhile, and perhaps replaced.
    if (session.sandboxId !== sandboxId || session.activity === 'failed') return
    // The agent may run all the same: the next start kills it.
    if (processId !== undefined && session.agentProcessId === processId) this.#transaction.dropAgent()
    this.#waitOrFail(error, what, fault)
  }

  /** A step that lacks capacity is tried again until the deadline; any other failure is the session's. */
  #waitOrFail(error: unknown, what: string, fault?: string): void {
    this.effects.push({ type: 'release_start_permit' })
    if (!isShortage(error)) return this.#fail(error, what, fault)
    const { now, limits } = this.#context
    const { session, run } = this.#state
    const until = new Date((session.waitingSince ?? now).getTime() + limits.shortageWaitMs)
    if (until <= now) return this.#fail(error, what)
    const failures = run.shortage.failures + (isShared(error.code) ? 0 : 1)
    this.#transaction.setRun({ shortage: { failures, isDue: false, error } })
    if (session.waitingFor === error.code) return
    this.#transaction.wait(error.code, `${what} yet: ${error.message}. It is tried again until ${until.toISOString()}.`)
  }

  /** The capacity is there, or is needed no more. */
  #endWait(succeeded: boolean): void {
    this.effects.push({ type: 'leave_capacity_queue', succeeded })
    const shortage = { failures: 0, isDue: false, error: undefined }
    this.#transaction.setRun(succeeded ? { shortage, failedSteps: 0 } : { shortage })
    this.#transaction.waited()
  }

  #fail(error: unknown, what: string, code?: string): void {
    this.effects.push({ type: 'log_failure', what, error })
    // Clients read faults of the world; other errors stay in the log.
    const words = isServiceError(error) ? `: ${error.message}` : ''
    this.#transaction.dropAgent()
    this.#transaction.fail(code ?? (isServiceError(error) ? error.code : 'internal_error'), `${what}${words}.`)
    this.#transaction.setRun({ failedSteps: 0, attachFailures: 0, backOffFailures: 0 })
  }

  #backOff(failures: number): void {
    this.#transaction.setRun({ backOffFailures: Math.max(1, failures) })
  }

  #setTimer(name: TimerName, ms: number): void {
    this.effects.push({ type: 'set_timer', name, ms })
  }

  #setConnection(fields: Partial<ConnectionState>): void {
    const { connection } = this.#state.run
    if (connection) this.#transaction.setRun({ connection: { ...connection, ...fields } })
  }

  #assertOpen(): void {
    if (this.#state.run.isEnding) throw hasEnded()
  }
}

const newConnection: ConnectionState = {
  isLive: false,
  configureSent: false,
  sentMessageId: undefined,
  interruptedMessageId: undefined,
  escalation: 0,
  wakesReported: 0,
}

/** Throws `rate_limited` when too many messages wait, `conflict` when the session holds as much as it may. */
function assertHasRoom(state: SessionState, content: string, limits: SessionLimits): void {
  const { queuedMessagesMax, streamBytesMax, historyBytesMax } = limits
  if (state.streamBytes >= streamBytesMax) {
    const details = { limit: streamBytesMax }
    throw new ServiceError('conflict', 'the session has said as much as a session may', { details })
  }
  if (state.historyBytes + Buffer.byteLength(content) > historyBytesMax) {
    const details = { limit: historyBytesMax }
    throw new ServiceError('conflict', 'the messages of the session are as much as a session may have', { details })
  }
  const queued = state.queuedIds.length
  if (queued >= queuedMessagesMax) {
    const details = { limit: queuedMessagesMax, retryAfterSeconds: 10 }
    throw new ServiceError('rate_limited', `${queued} messages wait already`, { details })
  }
}

/** The status of a command that is not there (POSIX, Shell & Utilities § 2.8.2). */
const notFoundStatus = 127

function endOf(exitCode: number): string {
  if (exitCode !== notFoundStatus) return `status ${exitCode}`
  return 'its sandbox has no `node` that runs: begin in an image that is built on `base`, or has Node 24 and glibc'
}
