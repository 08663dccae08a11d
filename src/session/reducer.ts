import { ServiceError } from '../errors.ts'
import { AgentRules } from './agent-rules.ts'
import type { SessionLimits } from './config.ts'
import { Decision, type ReduceContext } from './decision.ts'
import type { Effect, Input, SandboxView, StepEffect, StepName, StepResult } from './reducer-types.ts'
import { isShared } from './shortage.ts'
import { hasWork, idleRestartsMax, type RunnerState, type SessionState } from './state.ts'
import type { SessionChange } from './store.ts'
import { TravelRules } from './travel-rules.ts'

/*
 * A session is `(state, input) → (state, rows, effects)`. Inputs are facts; effects are data, which the runner carries out. The
 * reducer reads no clock, store or sandbox. One step (an effect that takes time) is under way at most, and its result is an
 * input, so a session with work is never without a step. `agent-rules.ts` has what concerns the agent process alone, `decision.ts`
 * failures and retries, `travel-rules.ts` checkpoints of turns and rewinds, `transaction.ts` rows and events. Between two steps the reducer decides, from the top:
 *
 * | state                                   | step                     | its results                                              |
 * |-----------------------------------------|--------------------------|----------------------------------------------------------|
 * | ended, ending                           | none                     |                                                          |
 * | a rewind is decided                     | `rewind`                 | rewind_done, rewind_failed                               |
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

const refusedAfterEnd: readonly Input['type'][] = ['message', 'interrupt', 'cancel_message', 'pause', 'restart']

export interface Reduction {
  state: SessionState
  /** Absent when nothing is to be committed. */
  change: SessionChange | undefined
  effects: readonly Effect[]
}

/** `state` and `input` stay as they are. Throws a `ServiceError` for a request that is refused. */
export function reduce(state: SessionState, input: Input, context: ReduceContext): Reduction {
  const reducer = new Reducer(state, context)
  if (state.session.status !== 'ended') reducer.take(input)
  else if (refusedAfterEnd.includes(input.type)) throw hasEnded()
  const { transaction, effects } = reducer
  return { state: reducer.state, change: transaction.isEmpty ? undefined : transaction.change, effects }
}

/** The sandbox that work keeps awake. */
export function awakeSandboxId(state: SessionState): string | undefined {
  const { activity, status, sandboxId } = state.session
  const isDriven = status === 'running' && activity !== 'failed' && !state.run.isEnding
  return isDriven && state.run.step !== undefined && hasWork(state) ? sandboxId : undefined
}

/** Nothing is under way, and `run` has nothing that the store lacks: a reported loss, or restarts of an idle agent that are used up. */
export function isAtRest(run: RunnerState): boolean {
  const { step, isSaving, lostSandboxId, idleRestarts } = run
  return step === undefined && !isSaving && lostSandboxId === undefined && idleRestarts < idleRestartsMax
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
  rewind_done: true,
  rewind_failed: true,
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
  rewind: true,
  start_agent: true,
  attach: true,
  wait_for_capacity: true,
  back_off: true,
}

export function isStep(effect: Effect): effect is StepEffect {
  return effect.type in stepEffects
}

class Reducer extends Decision {
  readonly #travel = new TravelRules(this)
  readonly #agent = new AgentRules(this, this.#travel)

  take(input: Input): void {
    const isDecided = isStepResult(input) ? this.#endStep(input) === 'decided' : this.#apply(input)
    if (input.type !== 'message') this.#agent.sendCommands()
    else if (this.state.run.connection?.isLive) this.effects.push({ type: 'start_turn' })
    if (!isDecided) this.#decide()
    if (this.state.session.agentConfig.capsuleOnError === true) this.#shareFailures()
  }

  #shareFailures(): void {
    for (const turn of this.transaction.change.turns) {
      if (turn.type !== 'ended' || turn.subtype === 'success' || turn.subtype === 'interrupted') continue
      this.effects.push({ type: 'share_failure', turnId: turn.messageId })
    }
  }

  #apply(input: Exclude<Input, StepResult>): void {
    const transaction = this.transaction
    const { session, run, hibernated } = this.state
    switch (input.type) {
      case 'resume':
        return this.wantWake()
      case 'continue':
        transaction.setRun({ failedStarts: 0 })
        return this.wantWake()
      case 'message':
        this.#assertOpen()
        if (run.lostSandboxId === session.sandboxId) {
          throw new ServiceError('conflict', 'the sandbox of the session is lost; restart the session')
        }
        assertHasRoom(this.state, input.content, this.context.limits)
        transaction.addUserMessage(input.content, input.creation)
        transaction.setRun({ failedStarts: 0 })
        return this.wantWake()
      case 'interrupt':
        transaction.interrupt()
        if (!transaction.isEmpty) this.wantWake()
        return
      case 'cancel_message':
        if (!this.state.queuedIds.includes(input.messageId)) {
          throw new ServiceError('conflict', 'the message does not wait any more')
        }
        return transaction.cancelMessage(input.messageId)
      case 'pause':
        if (this.state.turn || session.activity !== 'idle') {
          throw new ServiceError('conflict', `the session is ${session.activity}; it has to be idle`)
        }
        return transaction.setRun({ isPaused: true })
      case 'start_turn':
        return
      case 'unpause':
        return transaction.setRun({ isPaused: false, isHeld: false })
      case 'hold':
        this.#assertOpen()
        return this.#travel.hold()
      case 'rewind_decided':
        this.#assertOpen()
        return this.#travel.decide(input)
      case 'archive':
        return transaction.set({ archivedFor: input.reason })
      case 'turn_saved':
        return this.#travel.endSave(input)
      case 'reconfigured':
        return this.#travel.reconfigure(input)
      case 'restart':
        return this.#restart(input)
      case 'ending':
        return transaction.setRun({ isEnding: true })
      case 'end':
        return transaction.end(input.tokenHash)
      case 'sandbox_changed':
        return this.#noteSandbox(input)
      case 'sandbox_lost':
        if (session.sandboxId !== input.sandboxId) return
        // A boot under way may still create it: the next restart would delete nothing, and a crash would leave it without a session.
        if (!input.sandbox && !this.state.sandboxReady && session.activity === 'starting') {
          throw new ServiceError('conflict', 'the sandbox of the session is being started')
        }
        if (session.activity !== 'failed') return this.#loseSandbox(input.sandbox)
        return transaction.setRun({ lostSandboxId: session.sandboxId })
      case 'preview_ready':
        // The session may have another sandbox by now.
        if (session.sandboxId === input.sandboxId && !this.state.previewReady) {
          transaction.note('preview_ready', 'info', 'The preview answers.')
        }
        return
      case 'attached':
        // The sandbox was lost meanwhile, and perhaps replaced.
        if (session.agentProcessId !== input.processId) return void this.effects.push({ type: 'detach' })
        this.#agent.attach()
        if (hibernated) transaction.note('sandbox_resumed', 'info', 'The sandbox runs again.')
        return this.endWait(true)
      case 'live':
        return this.#agent.goLive()
      case 'agent_output':
        return this.#agent.takeOutput(input)
      case 'warning':
        return transaction.warn(input.code, input.message)
      case 'tell':
        return transaction.stream(input.event)
      case 'commands_sent':
        return transaction.setRun({ wakesServed: Math.max(run.wakesServed, input.wakes) })
      case 'timer':
        return input.name === 'escalate' ? this.#agent.escalate() : this.#agent.killLate()
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

  /** Returns `decided` when it has begun the next step itself. */
  #endStep(input: StepResult): 'decided' | void {
    const transaction = this.transaction
    const { session, run, sandboxReady } = this.state
    transaction.setRun({ step: undefined })
    switch (input.type) {
      case 'step_done':
        return
      case 'step_failed':
        return this.#failStep(input)
      case 'inspected':
        transaction.setRun({ isInspectionStale: false })
        // The session may have gone on, or have another sandbox by now.
        if (session.sandboxId !== input.sandboxId || run.isEnding || this.#findStepBeforeInspection()) return
        if (run.isInspectionStale) return
        this.#continueOn(input.sandbox)
        return 'decided'
      case 'booted':
        if (session.sandboxId !== input.sandboxId) {
          this.effects.push({ type: 'delete_sandbox', sandboxId: input.sandboxId })
          return
        }
        if (!sandboxReady) transaction.note('sandbox_ready', 'info', 'The sandbox is ready.')
        return this.endWait(true)
      case 'fork_checkpoint_deleted':
        transaction.setRun({ forkCheckpointTried: true })
        if (!input.isDeleted || session.sandboxId !== input.sandboxId) return
        return transaction.set({ checkpointId: undefined, forkCheckpointOf: undefined })
      case 'restore_accepted':
        if (input.restores !== undefined && session.sandboxId === input.sandboxId)
          transaction.acceptRestore(input.restores)
        return this.endWait(true)
      case 'rewind_done':
        return this.#travel.complete(input)
      case 'rewind_failed':
        return this.#travel.callOff(input)
      case 'agent_started':
        return this.endWait(true)
      case 'capacity_wait_over':
        return transaction.setRun({ shortage: { ...run.shortage, isDue: true } })
      case 'attach_failed':
        return this.#agent.failAttach(input)
      case 'attachment_ended':
        return this.#agent.detach(input)
    }
  }

  /** Begins the next step, unless one is under way. */
  #decide(): void {
    const { session, run } = this.state
    if (run.step !== undefined || run.isEnding || session.status === 'ended') return
    this.#begin(this.#travel.findStep() ?? this.#findStepBeforeInspection() ?? { type: 'inspect_sandbox' })
  }

  #findStepBeforeInspection(): StepEffect | undefined {
    const { session, run, sandboxReady } = this.state
    if (run.backOffFailures > 0) return { type: 'back_off', failures: run.backOffFailures }
    if (session.activity === 'failed') return undefined
    const { error, failures, isDue } = run.shortage
    if (session.waitingFor !== undefined && !isDue) {
      const until = new Date((session.waitingSince?.getTime() ?? 0) + this.context.limits.shortageWaitMs)
      return { type: 'wait_for_capacity', isShared: isShared(session.waitingFor), error, failures, until }
    }
    if (!sandboxReady) return { type: 'boot', queues: !isDue }
    const hasForkCheckpoint = session.forkCheckpointOf !== undefined && !run.forkCheckpointTried
    return hasForkCheckpoint ? { type: 'delete_fork_checkpoint' } : undefined
  }

  /** Begins the next step on a sandbox that was inspected; undefined for one that is gone. */
  #continueOn(sandbox: SandboxView | undefined): void {
    const { session, run, sandboxReady, hibernated } = this.state
    // The loss of a sandbox that was replaced meanwhile.
    if (run.lostSandboxId !== session.sandboxId) this.transaction.setRun({ lostSandboxId: undefined })
    const status = sandbox?.status ?? 'stopped'
    const isLost = status === 'stopped' || status === 'error'
    if (session.activity === 'failed') {
      this.transaction.setRun({ lostSandboxId: isLost && sandboxReady ? session.sandboxId : undefined })
      return this.#rest()
    }
    if (isLost) {
      this.#loseSandbox(sandbox)
      return this.#rest()
    }
    const works = hasWork(this.state)
    const isAsleep = status === 'hibernated'
    if (isAsleep && !(works && this.isWakeWanted)) {
      if (!hibernated) this.transaction.note('sandbox_hibernated', 'info', 'The sandbox hibernates.')
      return this.#rest()
    }
    const queues = isAsleep && !run.shortage.isDue
    if (this.isRestored(sandbox)) return this.#begin({ type: 'accept_restore', queues })
    const { agentProcessId: processId, agentOffset: offset } = session
    if (processId !== undefined) {
      return this.#begin({ type: 'attach', processId, offset, wake: this.isWakeWanted && works, queues })
    }
    if (!works && run.idleRestarts >= idleRestartsMax) return this.#rest()
    this.#begin({ type: 'start_agent', failedStarts: run.failedStarts, queues })
  }

  #begin(effect: StepEffect): void {
    const { shortage } = this.state.run
    const step: StepName = effect.type
    if (step === 'back_off') this.transaction.setRun({ backOffFailures: 0 })
    if (step === 'wait_for_capacity') this.transaction.setRun({ shortage: { ...shortage, error: undefined } })
    this.transaction.setRun({ step })
    this.effects.push(effect)
  }

  /** The next input decides anew. */
  #rest(): void {
    this.effects.push({ type: 'release_start_permit' })
    this.endWait(false)
  }

  #restart({ lostId, sandboxId, checkpointId, creation }: Input & { type: 'restart' }): void {
    this.#assertOpen()
    if (this.state.session.sandboxId !== lostId) {
      throw new ServiceError('conflict', 'the session has been restarted meanwhile')
    }
    this.transaction.restart(sandboxId, checkpointId, creation)
    this.transaction.setRun({ lostSandboxId: undefined, failedStarts: 0 })
    this.effects.push({ type: 'end_capacity_pause' })
    this.wantWake()
  }

  #noteSandbox({ sandboxId, status, reason, sandbox }: Input & { type: 'sandbox_changed' }): void {
    const { session, sandboxReady, hibernated } = this.state
    // A sandbox that was replaced does not concern the session.
    if (!sandboxReady || session.sandboxId !== sandboxId) return
    // An inspection under way may have read the state before this change: its result must not decide.
    if (this.state.run.step === 'inspect_sandbox') this.transaction.setRun({ isInspectionStale: true })
    if (status === 'hibernated') {
      if (!hibernated) this.transaction.note('sandbox_hibernated', 'info', 'The sandbox hibernates.')
      this.effects.push({ type: 'detach' })
    }
    if (status === 'running') {
      if (hibernated) this.transaction.note('sandbox_resumed', 'info', 'The sandbox runs again.')
      this.effects.push({ type: 'end_capacity_pause' })
    }
    if (status === 'stopped' || status === 'error') this.#loseSandbox({ restores: 0, ...sandbox, status }, reason)
    if (this.isRestored(sandbox)) this.effects.push({ type: 'detach' })
  }

  /** Fails the session, once for each sandbox. */
  #loseSandbox(sandbox: SandboxView | undefined, reason?: string): void {
    const { session, run } = this.state
    if (run.lostSandboxId === session.sandboxId || run.isEnding) return
    const code = reason ?? sandbox?.reason ?? 'sandbox_stopped'
    const isError = sandbox?.status === 'error'
    const words = sandbox?.reasonMessage ?? (isError ? `it is in error (${code})` : 'it was stopped')
    this.transaction.dropAgent()
    this.transaction.fail(code, `The sandbox of the session is lost: ${words}.`)
    this.transaction.setRun({ lostSandboxId: session.sandboxId })
    this.effects.push({ type: 'detach' })
  }

  #failStep({ sandboxId, what, error, fault, processId }: Input & { type: 'step_failed' }): void {
    const { session } = this.state
    // The sandbox was lost meanwhile, and perhaps replaced.
    if (session.sandboxId !== sandboxId || session.activity === 'failed') return
    // The agent may run all the same: the next start kills it.
    if (processId !== undefined && session.agentProcessId === processId) this.transaction.dropAgent()
    this.waitOrFail(error, what, fault)
  }

  #assertOpen(): void {
    if (this.state.run.isEnding) throw hasEnded()
  }
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
