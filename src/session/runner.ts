import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError, ServiceError } from '../errors.ts'
import { acting } from '../events/index.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { backOff } from '../lib/async/retry.ts'
import { singleFlight } from '../lib/async/single-flight.ts'
import type { Creation } from '../lib/creation.ts'
import type { StreamEventData } from '../protocol/stream-events.ts'
import { AgentAttachment } from './agent-attachment.ts'
import { deleteSandbox, findSandbox, StartPermit, unusedTokenHash } from './boot.ts'
import { retryBackOff } from './config.ts'
import { dropForkCheckpoint } from './fork.ts'
import { awakeSandboxId, isAtRest, isStep } from './reducer.ts'
import type { Effect, Input, StepEffect } from './reducer-types.ts'
import { assertQueued, SessionRepository } from './repository.ts'
import { type RewindDecision, Rewinding } from './rewinding.ts'
import type { AgentConfig, PendingRewind, Session } from './session.ts'
import { CapacityWait } from './shortage.ts'
import type { SessionState } from './state.ts'
import { StateWatch } from './state-watch.ts'
import { type RunnerContext, type RunnerDeps, Steps } from './steps.ts'

/**
 * Carries out the effects of one session's reducer and feeds the results back. It decides nothing: all that matters is in the
 * state, so a runner can be dropped at any point and another one goes on. `onRest` is called once, when the session needs no
 * runner: nothing is under way, no call is being served, and the store knows all of the state. The runner has stopped then, so
 * that a late answer cannot make it drive beside its successor.
 */
export class SessionRunner {
  readonly sessionId: string
  readonly #context: RunnerContext
  readonly #onRest: () => void
  readonly #repository: SessionRepository
  readonly #attachment: AgentAttachment
  readonly #steps: Steps
  readonly #stop = new AbortController()
  readonly #pauses = new KeyedMutex()
  #step: Promise<void> = Promise.resolve()
  #lease: { sandboxId: string; release: () => void } | undefined
  #callsServed = 0
  readonly #watch: StateWatch
  readonly #rewinding: Rewinding

  constructor(deps: RunnerDeps, { id, orgId }: { id: string; orgId: string }, onRest: () => void) {
    const { signal } = this.#stop
    this.sessionId = id
    this.#onRest = onRest
    this.#repository = new SessionRepository(deps, id, (effects, state) => this.#perform(effects, state))
    this.#context = {
      ...{ ...deps, sessionId: id, orgId, signal },
      permit: new StartPermit(deps.starts, orgId, deps.timings.agentStartPermitMs, signal),
      capacity: new CapacityWait({ ...deps, orgId, signal }),
      read: () => this.#repository.read(),
      apply: (input) => this.#apply(input),
      applyUnlessStopped: (input) => this.#applyUnlessStopped(input),
      asAgent: (work) => this.#asAgent(work),
      tellDraft: (piece) => this.#repository.tellDraft(piece),
    }
    this.#attachment = new AgentAttachment(this.#context)
    this.#steps = new Steps(this.#context, this.#attachment)
    this.#watch = new StateWatch(this.#context.read, signal)
    this.#rewinding = new Rewinding({
      ...{ points: deps.points, watch: this.#watch },
      apply: (input) => this.#apply(input),
      applyAtLast: (input) => this.#applyAtLast(input),
      withoutPauses: (work) => this.#pauses.run(this.sessionId, work),
    })
  }

  /** Takes the session up where an earlier server, or its creation, left it. */
  start(): void {
    void this.#asAgent(() => this.#serve(() => this.#applyAtLast({ type: 'resume' })))
  }

  /** Queues a message. Throws `conflict` when the session has ended or lost its sandbox. */
  async enqueue(content: string, creation?: Creation): Promise<void> {
    await this.#apply({ type: 'message', content, creation })
    // Waits for the start of the turn, so that the answer has it. The message is committed, so a failure here is not its own.
    await this.#repository.read().catch(() => undefined)
  }

  /** Drives messages that wait, also one whose commit looked like a failure. */
  async continue(): Promise<void> {
    await this.#apply({ type: 'continue' })
  }

  /** Ends the running turn, or the turn of the first message that waits. Without either it does nothing. */
  async interrupt(): Promise<void> {
    await this.#apply({ type: 'interrupt' })
  }

  /** Adds an `error` to the stream that is not fatal. */
  async warn(code: string, message: string): Promise<void> {
    await this.#apply({ type: 'warning', code, message })
  }

  /** Adds an event of the service to the stream. */
  async tell(event: StreamEventData): Promise<void> {
    await this.#apply({ type: 'tell', event })
  }

  /** Takes back a message that still waits. Throws `not_found` for an unknown one, `conflict` for any other. */
  async cancelMessage(messageId: string): Promise<void> {
    await this.#serve(async () => {
      await assertQueued(this.#context.store, this.sessionId, messageId)
      await this.#apply({ type: 'cancel_message', messageId })
    })
  }

  /** Runs work on an idle session and lets no turn begin meanwhile; messages wait. Throws `conflict` unless it is idle. */
  async whileIdle<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
    const pausedRun = async (): Promise<Result> => {
      const { session } = await this.#apply({ type: 'pause' })
      const release = this.#context.sandboxes.previews.keepAlive(session.sandboxId)
      try {
        return await work(session)
      } finally {
        release()
        await this.#applyAtLast({ type: 'unpause' })
      }
    }
    return await this.#serve(() => this.#pauses.run(this.sessionId, pausedRun))
  }

  /** See `Rewinding.run`. */
  async rewind(decide: RewindDecision, creation?: Creation): Promise<PendingRewind> {
    return await this.#serve(() => this.#rewinding.run(decide, creation))
  }

  /** Returns when no rewind is decided and not yet carried out: one that an earlier server began, for instance. */
  async rewound(): Promise<void> {
    await this.#serve(async () => {
      await this.#apply({ type: 'continue' })
      await this.#watch.until(({ session }) => session.pendingRewind === undefined)
    })
  }

  /** The limits of the session have changed in the store. */
  async reconfigure(agentConfig: Partial<AgentConfig>, isWithinBudget: boolean): Promise<void> {
    await this.#apply({ type: 'reconfigured', agentConfig, isWithinBudget })
  }

  /** Nobody needs the session any more, for this reason; a message takes that back. */
  async archive(reason: string): Promise<void> {
    await this.#apply({ type: 'archive', reason })
  }

  /** Replaces a lost sandbox by one with another id. Throws `conflict` while the sandbox is there or is being started. */
  async restart(sandboxId: string, checkpointId: string | undefined, creation?: Creation): Promise<void> {
    await this.#serve(async () => {
      const { sandboxes } = this.#context
      const { session } = await this.#repository.read()
      const sandbox = await findSandbox(sandboxes, session)
      const status = sandbox?.status ?? 'stopped'
      if (status !== 'stopped' && status !== 'error') {
        throw new ServiceError('conflict', `the sandbox of the session is ${status}, not lost`)
      }
      await this.#apply({ type: 'sandbox_lost', sandboxId: session.sandboxId, sandbox })
      // First, so that a crash leaves no sandbox without a session.
      await deleteSandbox(sandboxes, session)
      await dropForkCheckpoint(sandboxes, session)
      await this.#apply({ type: 'restart', lostId: session.sandboxId, sandboxId, checkpointId, creation })
    })
  }

  /** Kills the sandbox and ends the session; nothing of it runs afterwards. Calls at the same time share one end, or its failure. */
  readonly end = singleFlight(() =>
    this.#serve(async () => {
      const { sandboxes, timings, log } = this.#context
      const { session } = await this.#apply({ type: 'ending' })
      if (session.status === 'ended') return
      const stopped = this.#stopDriving()
      await deleteSandbox(sandboxes, session)
      // A boot under way may have ended without noticing: delete what it left.
      const removed = stopped.then(() => deleteSandbox(sandboxes, session))
      const waited = new AbortController()
      const late = sleep(timings.bootStopMs, 'late' as const, { signal: waited.signal }).catch(() => 'late' as const)
      if ((await Promise.race([removed, late])) === 'late') {
        removed.catch((error: unknown) => log.error({ err: error, sessionId: session.id }, 'a sandbox was left behind'))
      }
      waited.abort()
      await this.#steps.deleteForkCheckpoint(session)
      await this.#repository.apply({ type: 'end', tokenHash: unusedTokenHash() })
    }),
  )

  /** Stops, and leaves sandbox and agent running for another runner. */
  async close(): Promise<void> {
    // A boot under way goes on inside the sandbox service; the next server finds what it left.
    await Promise.race([this.#stopDriving(), sleep(this.#context.timings.bootStopMs, undefined, { ref: false })])
    this.#keepAwake(undefined)
  }

  /** Takes note of a change that the sandbox service has announced. */
  async noteSandbox(sandboxId: string, status: string, reason?: string): Promise<void> {
    if (this.#stop.signal.aborted) return
    const take = async () => {
      const { sandboxReady, session } = await this.#repository.read()
      if (!sandboxReady || session.sandboxId !== sandboxId) return
      const sandbox = await findSandbox(this.#context.sandboxes, session)
      await this.#applyAtLast({ type: 'sandbox_changed', sandboxId, status, reason, sandbox })
    }
    await this.#asAgent(() => this.#serve(take))
  }

  /** Begins effects, in their order. Only a step takes time; its result is an input. */
  #perform(effects: readonly Effect[], state: SessionState): void {
    if (this.#stop.signal.aborted) return
    this.#keepAwake(awakeSandboxId(state))
    this.#watch.note(state)
    const { session } = state
    for (const effect of effects) {
      if (!isStep(effect)) this.#begin(effect, session)
      else
        this.#step = this.#asAgent(async () => this.#applyUnlessStopped(await this.#steps.run(effect, session))).catch(
          (error: unknown) => this.#recover(error),
        )
    }
  }

  #begin(effect: Exclude<Effect, StepEffect>, session: Session): void {
    const { log } = this.#context
    switch (effect.type) {
      case 'end_capacity_pause':
        return this.#context.capacity.endPause()
      case 'leave_capacity_queue':
        return this.#context.capacity.leave(effect.succeeded)
      case 'release_start_permit':
        return this.#context.permit.release()
      case 'start_turn':
        return this.#attachment.startTurn()
      case 'save_turn':
        return void this.#asAgent(() => this.#serve(() => this.#saveTurn(effect.turnId, session)))
      case 'tend_points':
        this.#context.onTurnSaved(session, effect.turnId)
        return void this.#context.points
          .tend(session)
          .catch((error: unknown) => log.warn({ err: error, sessionId: this.sessionId }, 'old points were left'))
      case 'share_failure':
        return void this.#asAgent(() => this.#serve(() => this.#context.onTurnFailed(session, effect.turnId)))
      case 'drop_point':
        return void this.#context.points.drop(this.#context.orgId, effect.checkpointId)
      case 'send':
        return this.#attachment.send(effect.command, session)
      case 'report_sent':
        return this.#attachment.applyAfterSent({ type: 'commands_sent', wakes: effect.wakes })
      case 'detach':
        return this.#attachment.close()
      case 'signal_agent':
        return void this.#signal(session.sandboxId, effect.processId, effect.signal)
      case 'set_timer':
        return this.#attachment.setTimer(effect.name, effect.ms)
      case 'watch_preview':
        return this.#attachment.watchPreview()
      case 'delete_sandbox':
        return void deleteSandbox(this.#context.sandboxes, {
          orgId: this.#context.orgId,
          sandboxId: effect.sandboxId,
        }).catch((error: unknown) => log.error({ err: error, sessionId: this.sessionId }, 'a sandbox was left behind'))
      case 'log_failure':
        return log.warn({ err: effect.error, sessionId: this.sessionId }, effect.what)
    }
  }

  async #saveTurn(turnId: string, session: Session): Promise<void> {
    const { points, config, log } = this.#context
    const { checkpoints = config.checkpoints } = session.agentConfig
    const options = { origin: 'turn', kind: checkpoints === 'disk' ? 'disk' : 'turn' } as const
    try {
      await points.take(session, options, (point) => this.#applyAtLast({ type: 'turn_saved', turnId, point }))
    } catch (error) {
      if (!isServiceError(error)) log.warn({ err: error, sessionId: this.sessionId }, 'a turn has no checkpoint')
      const failure = isServiceError(error) ? error.message : 'it could not be written'
      await this.#applyAtLast({ type: 'turn_saved', turnId, failure })
    }
  }

  async #signal(sandboxId: string, processId: string, signal: number): Promise<void> {
    const { sandboxes, log } = this.#context
    log.warn({ sessionId: this.sessionId, signal }, 'an agent process is signalled')
    try {
      await sandboxes.exec.kill(this.#context.orgId, sandboxId, processId, signal, 'internal')
    } catch (error) {
      log.debug({ err: error, sessionId: this.sessionId }, 'an agent process could not be signalled')
    }
  }

  async #apply(input: Input): Promise<SessionState> {
    return await this.#serve(() => this.#repository.apply(input))
  }

  async #applyUnlessStopped(input: Input): Promise<void> {
    if (input.type === 'rewind_failed') this.#rewinding.note(input.error)
    if (!this.#stop.signal.aborted) await this.#apply(input)
  }

  /** After a step that failed unexpectedly: reads the state again and goes on from there. */
  async #recover(error: unknown): Promise<void> {
    if (this.#stop.signal.aborted) return
    this.#context.log.warn({ err: error, sessionId: this.sessionId }, 'a step of a session failed')
    this.#repository.invalidate()
    await this.#applyAtLast({ type: 'recover' })
  }

  /** Applies an input that must not be lost, until it succeeds or the runner stops. */
  async #applyAtLast(input: Input): Promise<void> {
    for (let failures = 1; !this.#stop.signal.aborted; failures++) {
      try {
        return void (await this.#apply(input))
      } catch (error) {
        this.#context.log.warn({ err: error, sessionId: this.sessionId }, 'an input of a session is tried again')
        this.#repository.invalidate()
        await backOff(failures, retryBackOff(this.#context.timings), this.#stop.signal)
      }
    }
  }

  /** Runs work in the name of the agent: the client of an earlier request is not its actor. */
  #asAgent<Result>(work: () => Result): Result {
    return acting({ actor: { type: 'agent', id: this.sessionId }, cause: 'agent' }, work)
  }

  /** Runs `work` as a call that keeps the runner. */
  async #serve<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#callsServed += 1
    try {
      return await work()
    } finally {
      this.#callsServed -= 1
      if (this.#callsServed === 0 && !this.#stop.signal.aborted && isAtRest(this.#repository.run)) {
        void this.#stopDriving()
        this.#onRest()
      }
    }
  }

  /** Holds a keep-alive lease of this sandbox and of no other. */
  #keepAwake(sandboxId: string | undefined): void {
    if (this.#lease?.sandboxId === sandboxId) return
    this.#lease?.release()
    this.#lease =
      sandboxId === undefined
        ? undefined
        : { sandboxId, release: this.#context.sandboxes.previews.keepAlive(sandboxId) }
  }

  /** No effect begins any more. Resolves when the step under way has ended. */
  async #stopDriving(): Promise<void> {
    this.#stop.abort()
    this.#attachment.stop()
    await this.#step
    this.#context.permit.release()
    this.#context.capacity.leave(false)
    this.#keepAwake(undefined)
  }
}
