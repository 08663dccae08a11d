import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError, ServiceError } from '../errors.ts'
import { acting, type EventBus } from '../events/index.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { backOff } from '../lib/async/retry.ts'
import type { Semaphore } from '../lib/async/semaphore.ts'
import { singleFlight } from '../lib/async/single-flight.ts'
import type { Creation } from '../lib/creation.ts'
import { newId } from '../lib/id.ts'
import type { Log } from '../lib/log.ts'
import { sha256 } from '../lib/secret.ts'
import type { AgentCommandInput } from '../protocol/agent.ts'
import type { Sandbox, SandboxService } from '../sandbox/index.ts'
import { AgentConnection, type AgentOutput, type ConnectionEnd } from './agent-connection.ts'
import {
  ensureSandbox,
  configureCommand,
  deleteSandbox,
  endAgents,
  findSandbox,
  newGatewayToken,
  runningAgents,
  startAgent,
  StartPermit,
  unusedTokenHash,
  writeSkills,
} from './boot.ts'
import { retryBackOff, type SessionConfig, type SessionLimits, type SessionTimings } from './config.ts'
import { dropForkCheckpoint } from './fork.ts'
import { ProjectWatch } from './project.ts'
import { wakeFailedText } from './decision.ts'
import { awakeSandboxId, isAtRest, isStep } from './reducer.ts'
import type { CommandRef, Effect, Input, StepEffect, TimerName } from './reducer-types.ts'
import { assertQueued, SessionRepository } from './repository.ts'
import type { Session } from './session.ts'
import { CapacityWait, type RetryQueues } from './shortage.ts'
import type { SessionState } from './state.ts'
import type { SessionStore } from './store.ts'

export interface RunnerDeps {
  store: SessionStore
  sandboxes: SandboxService
  bus: EventBus
  config: SessionConfig
  limits: SessionLimits
  timings: SessionTimings
  /** Shared by all sessions. */
  starts: Semaphore
  queues: RetryQueues
  log: Log
}

/**
 * Carries out the effects of one session's reducer and feeds the results back. It decides nothing: all that matters is in the
 * state, so a runner can be dropped at any point and another one goes on. `onRest` is called once, when the session needs no
 * runner: nothing is under way, no call is being served, and the store knows all of the state. The runner has stopped then, so
 * that a late answer cannot make it drive beside its successor.
 */
export class SessionRunner {
  readonly sessionId: string
  readonly #deps: RunnerDeps
  readonly #orgId: string
  readonly #onRest: () => void
  readonly #repository: SessionRepository
  readonly #project: ProjectWatch
  readonly #capacity: CapacityWait
  readonly #permit: StartPermit
  readonly #stop = new AbortController()
  readonly #pauses = new KeyedMutex()
  readonly #timers = new Map<TimerName, NodeJS.Timeout>()
  #step: Promise<void> = Promise.resolve()
  #connection: AgentConnection | undefined
  #lease: { sandboxId: string; release: () => void } | undefined
  #callsServed = 0

  constructor(deps: RunnerDeps, session: { id: string; orgId: string }, onRest: () => void) {
    this.sessionId = session.id
    this.#deps = deps
    this.#orgId = session.orgId
    this.#onRest = onRest
    const { sandboxes, queues, limits, timings, starts } = deps
    const { signal } = this.#stop
    this.#repository = new SessionRepository(deps, session.id, (effects, state) => this.#perform(effects, state))
    this.#project = new ProjectWatch({
      sandboxes,
      timings,
      read: () => this.#repository.read(),
      apply: (input) => this.#result(input),
    })
    this.#capacity = new CapacityWait({ queues, limits, orgId: session.orgId, signal })
    this.#permit = new StartPermit(starts, session.orgId, timings.agentStartTurnMs, signal)
  }

  /** Takes the session up where the server before, or its creation, left it. */
  start(): void {
    void this.#asAgent(() => this.#serve(() => this.#applyAtLast({ type: 'resume' })))
  }

  /** Queues a message. Throws `conflict` when the session has ended or lost its sandbox. */
  async enqueue(content: string, creation?: Creation): Promise<void> {
    await this.#apply({ type: 'message', content, creation })
    // Behind the start of its turn, so that the answer tells of it. The message is committed: a failure here is not its own.
    await this.#repository.read().catch(() => undefined)
  }

  /** Sees to messages that wait, also one whose commit looked like a failure. */
  async goOn(): Promise<void> {
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

  /** Takes back a message that still waits. Throws `not_found` for an unknown one, `conflict` for any other. */
  async cancelMessage(messageId: string): Promise<void> {
    await this.#serve(async () => {
      await assertQueued(this.#deps.store, this.sessionId, messageId)
      await this.#apply({ type: 'cancel_message', messageId })
    })
  }

  /** Runs work on an idle session and lets no turn begin meanwhile; messages wait. Throws `conflict` unless it is idle. */
  async whileIdle<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
    const pausedRun = async (): Promise<Result> => {
      const { session } = await this.#apply({ type: 'pause' })
      const release = this.#deps.sandboxes.previews.keepAlive(session.sandboxId)
      try {
        return await work(session)
      } finally {
        release()
        await this.#applyAtLast({ type: 'unpause' })
      }
    }
    return await this.#serve(() => this.#pauses.run(this.sessionId, pausedRun))
  }

  /** Replaces a lost sandbox by one with another id. Throws `conflict` while the sandbox is there or is being started. */
  async restart(sandboxId: string, checkpointId: string | undefined, creation?: Creation): Promise<void> {
    await this.#serve(async () => {
      const { sandboxes } = this.#deps
      const { session } = await this.#repository.read()
      const sandbox = await this.#find(session.sandboxId)
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
      const { sandboxes, timings, log } = this.#deps
      const { session } = await this.#apply({ type: 'ending' })
      if (session.status === 'ended') return
      const stopped = this.#stopDriving()
      await deleteSandbox(sandboxes, session)
      // A boot under way may have come to its end without noticing; what it left is removed.
      const removed = stopped.then(() => deleteSandbox(sandboxes, session))
      const waited = new AbortController()
      const late = sleep(timings.bootStopMs, 'late' as const, { signal: waited.signal }).catch(() => 'late' as const)
      if ((await Promise.race([removed, late])) === 'late') {
        removed.catch((error: unknown) => log.error({ err: error, sessionId: session.id }, 'a sandbox was left behind'))
      }
      waited.abort()
      await this.#deleteForkCheckpoint(session)
      await this.#repository.apply({ type: 'end', tokenHash: unusedTokenHash() })
    }),
  )

  /** Leaves everything running; another runner can take over. */
  async close(): Promise<void> {
    // A boot under way goes on inside the sandbox service; the next server finds what it left.
    await Promise.race([this.#stopDriving(), sleep(this.#deps.timings.bootStopMs, undefined, { ref: false })])
    this.#keepAwake(undefined)
  }

  /** Takes note of a change that the sandbox service has announced. */
  async sandboxChanged(sandboxId: string, status: string, reason?: string): Promise<void> {
    if (this.#stop.signal.aborted) return
    const take = async () => {
      const { sandboxReady, session } = await this.#repository.read()
      if (!sandboxReady || session.sandboxId !== sandboxId) return
      const sandbox = await this.#find(sandboxId)
      await this.#applyAtLast({ type: 'sandbox_changed', sandboxId, status, reason, sandbox })
    }
    await this.#asAgent(() => this.#serve(take))
  }

  /** Begins effects, in their order. Only a step takes time; its result is an input. */
  #perform(effects: readonly Effect[], state: SessionState): void {
    if (this.#stop.signal.aborted) return
    this.#keepAwake(awakeSandboxId(state))
    const { session } = state
    for (const effect of effects) {
      if (!isStep(effect)) this.#begin(effect, session)
      else this.#step = this.#asAgent(() => this.#run(effect, session)).catch((error: unknown) => this.#recover(error))
    }
  }

  #begin(effect: Exclude<Effect, StepEffect>, session: Session): void {
    const { log } = this.#deps
    switch (effect.type) {
      case 'end_capacity_pause':
        return this.#capacity.endPause()
      case 'leave_capacity_queue':
        return this.#capacity.leave(effect.succeeded)
      case 'release_start_permit':
        return this.#permit.release()
      case 'start_turn':
        if (this.#connection?.isOpen) void this.#applyOrDetach({ type: 'start_turn' })
        return
      case 'send':
        return this.#connection?.send(() => this.#command(effect.command, session))
      case 'report_sent':
        return this.#connection?.afterSent(
          () => void this.#applyOrDetach({ type: 'commands_sent', wakes: effect.wakes }),
        )
      case 'detach':
        return this.#connection?.close()
      case 'signal_agent':
        return void this.#signal(session.sandboxId, effect.processId, effect.signal)
      case 'set_timer':
        return this.#setTimer(effect.name, effect.ms)
      case 'watch_preview':
        return this.#project.preview.watch()
      case 'delete_sandbox':
        return void deleteSandbox(this.#deps.sandboxes, { orgId: this.#orgId, sandboxId: effect.sandboxId }).catch(
          (error: unknown) => log.error({ err: error, sessionId: this.sessionId }, 'a sandbox was left behind'),
        )
      case 'log_failure':
        return log.warn({ err: effect.error, sessionId: this.sessionId }, effect.what)
    }
  }

  async #run(effect: StepEffect, session: Session): Promise<void> {
    const { sandboxId } = session
    switch (effect.type) {
      case 'inspect_sandbox':
        return await this.#result({ type: 'inspected', sandboxId, sandbox: await this.#find(sandboxId) })
      case 'boot':
        return await this.#attempt('The sandbox could not be started', session, effect.queues, () =>
          this.#boot(session),
        )
      case 'delete_fork_checkpoint': {
        const isDeleted = await this.#deleteForkCheckpoint(session)
        return await this.#result({ type: 'fork_checkpoint_deleted', sandboxId, isDeleted })
      }
      case 'accept_restore':
        return await this.#attempt(wakeFailedText, session, effect.queues, () => this.#acceptRestore(session))
      case 'start_agent':
        return await this.#startAgent(effect, session)
      case 'attach':
        return await this.#attach(effect, session)
      case 'wait_for_capacity':
        await this.#capacity.pause(effect)
        return await this.#result({ type: 'capacity_wait_over' })
      case 'back_off':
        await backOff(effect.failures, retryBackOff(this.#deps.timings), this.#stop.signal)
        return await this.#result({ type: 'step_done' })
    }
  }

  /** Runs a step whose failure is the session's; `work` returns its result. */
  async #attempt(what: string, session: Session, queues: boolean, work: () => Promise<Input>): Promise<void> {
    let result: Input
    try {
      if (queues) this.#capacity.assertFree()
      result = await work()
    } catch (error) {
      return await this.#stepFailed(what, session, error)
    }
    await this.#result(result)
  }

  async #stepFailed(what: string, { sandboxId }: Session, error: unknown, processId?: string): Promise<void> {
    // The sandbox may have ended while a call was at work on it.
    const sandbox = isServiceError(error) ? undefined : await this.#find(sandboxId)
    const fault = sandbox?.status === 'error' ? sandbox.reason : undefined
    await this.#result({ type: 'step_failed', sandboxId, what, error, fault, processId })
  }

  async #boot(session: Session): Promise<Input> {
    const { sandboxes } = this.#deps
    await ensureSandbox(this.#deps, session, this.#stop.signal)
    this.#stop.signal.throwIfAborted()
    if (session.checkpointId !== undefined) {
      await endAgents(sandboxes, session, await runningAgents(sandboxes, session))
    }
    return { type: 'booted', sandboxId: session.sandboxId }
  }

  /** Kills the agents that came back with the memory of the checkpoint. */
  async #acceptRestore(session: Session): Promise<Input> {
    const { sandboxes } = this.#deps
    const { sandboxId } = session
    // This call waits for a restore that is under way. A restore that failed is not counted any more.
    const agents = await runningAgents(sandboxes, session)
    const restores = (await this.#find(sandboxId))?.restores
    if (restores === undefined || restores === session.sandboxRestores) {
      return { type: 'restore_accepted', sandboxId, restores: undefined }
    }
    await endAgents(sandboxes, session, agents)
    return { type: 'restore_accepted', sandboxId, restores }
  }

  async #startAgent({ failedStarts, queues }: StepEffect & { type: 'start_agent' }, session: Session): Promise<void> {
    const { sandboxes, store, timings } = this.#deps
    const what = 'The agent could not be started'
    if (!this.#permit.isHeld) {
      if (failedStarts > 0) await backOff(failedStarts, retryBackOff(timings), this.#stop.signal)
      await this.#permit.acquire()
      // The wait may have been long: the sandbox is inspected again.
      return await this.#result({ type: 'step_done' })
    }
    try {
      if (queues) this.#capacity.assertFree()
      await endAgents(sandboxes, session, await runningAgents(sandboxes, session))
      // For every agent: the checkpoint of a restore may be older than the directory.
      await sandboxes.files.mkdir(this.#orgId, session.sandboxId, session.agentConfig.cwd, { user: 'root' })
      if (!(await this.#repository.read()).agentReady) await writeSkills({ sandboxes, store }, session)
    } catch (error) {
      return await this.#stepFailed(what, session, error)
    }
    if (this.#stop.signal.aborted) return
    const processId = newId('ag-')
    const token = newGatewayToken()
    const { sandboxId } = session
    const begun = await this.#apply({ type: 'agent_begun', sandboxId, processId, tokenHash: sha256(token) })
    // The sandbox was lost meanwhile.
    if (begun.session.agentProcessId !== processId) return await this.#result({ type: 'step_done' })
    try {
      await startAgent(this.#deps, session, { processId, token })
    } catch (error) {
      return await this.#stepFailed(what, session, error, processId)
    }
    await this.#result({ type: 'agent_started' })
  }

  /** Stays with the agent process until it or the attachment ends. */
  async #attach(effect: StepEffect & { type: 'attach' }, session: Session): Promise<void> {
    const { processId, offset, wake } = effect
    const { sandboxId } = session
    let connection: AgentConnection
    try {
      if (effect.queues) this.#capacity.assertFree()
      const options = { offset, kind: 'internal', wake } as const
      const attachment = await this.#deps.sandboxes.exec.attach(this.#orgId, sandboxId, processId, options)
      connection = new AgentConnection(attachment, offset, this.#handlers(processId), this.#deps)
    } catch (error) {
      return await this.#result({ type: 'attach_failed', processId, error, sandbox: await this.#find(sandboxId) })
    }
    const attachedAt = performance.now()
    let end: ConnectionEnd
    try {
      this.#connection = connection
      if (this.#stop.signal.aborted) return
      // Asked after the attachment, since a restore ends the attachments that were made before it.
      const sandbox = await this.#find(sandboxId)
      if (sandbox && sandbox.restores !== session.sandboxRestores) return await this.#result({ type: 'step_done' })
      await this.#result({ type: 'attached', processId })
      end = connection.isOpen ? await connection.run() : { type: 'broken' }
    } finally {
      connection.close()
      this.#connection = undefined
      this.#permit.release()
      this.#clearTimers()
      this.#project.preview.pause()
    }
    if (end.type === 'exited') {
      const { exitCode, stderr } = end
      this.#deps.log.warn({ sessionId: this.sessionId, exitCode, stderr }, 'an agent process ended')
    }
    const wasLong = performance.now() - attachedAt > this.#deps.timings.retryMaxMs
    const exitCode = end.type === 'exited' ? end.exitCode : undefined
    await this.#result({ type: 'attachment_ended', processId, exitCode, wasLong })
  }

  #handlers(processId: string) {
    return {
      take: async (output: AgentOutput[], offset: number) => {
        const { turn } = await this.#repository.read()
        const ends = output.some((line) => line.type === 'turn_complete' && line.message_id === turn?.messageId)
        // Before the commit, so that a client that sees `turn_complete` sees the framework of that turn too.
        if (ends) this.#clearTimer('escalate')
        const framework = ends ? await this.#project.inspect() : undefined
        await this.#apply({ type: 'agent_output', processId, output, offset, framework })
      },
      live: async () => void (await this.#apply({ type: 'live' })),
    }
  }

  async #command(command: CommandRef, session: Session): Promise<AgentCommandInput | undefined> {
    const { store, config } = this.#deps
    if (command.type === 'interrupt') return command
    if (command.type === 'configure') {
      const instructions = await store.instructions(this.sessionId)
      return instructions && configureCommand(session, instructions, config)
    }
    const { messageId } = command
    const message = await store.message(this.sessionId, messageId)
    return message && { type: 'message', messageId, content: message.content }
  }

  /** True when none is left. A checkpoint that cannot be removed now is tried again later. */
  async #deleteForkCheckpoint(session: Session): Promise<boolean> {
    try {
      await dropForkCheckpoint(this.#deps.sandboxes, session)
      return true
    } catch (error) {
      this.#deps.log.warn({ err: error, sessionId: session.id }, 'the checkpoint of a fork was left behind')
      return false
    }
  }

  async #signal(sandboxId: string, processId: string, signal: number): Promise<void> {
    const { sandboxes, log } = this.#deps
    log.warn({ sessionId: this.sessionId, signal }, 'an agent process is signalled')
    try {
      await sandboxes.exec.kill(this.#orgId, sandboxId, processId, signal, 'internal')
    } catch (error) {
      log.debug({ err: error, sessionId: this.sessionId }, 'an agent process could not be signalled')
    }
  }

  async #find(sandboxId: string): Promise<Sandbox | undefined> {
    return await findSandbox(this.#deps.sandboxes, this.#orgId, sandboxId)
  }

  async #apply(input: Input): Promise<SessionState> {
    return await this.#serve(() => this.#repository.apply(input))
  }

  /** Applies the result of a step, unless the runner has stopped. */
  async #result(input: Input): Promise<void> {
    if (!this.#stop.signal.aborted) await this.#apply(input)
  }

  /** For inputs beside the steps: the next attachment makes up for one that could not be applied. */
  async #applyOrDetach(input: Input): Promise<void> {
    try {
      await this.#result(input)
    } catch (error) {
      this.#deps.log.warn({ err: error, sessionId: this.sessionId }, 'an input of a session was lost')
      this.#connection?.close()
    }
  }

  /** What was under way is gone: everything is read again and the session goes on from there. */
  async #recover(error: unknown): Promise<void> {
    if (this.#stop.signal.aborted) return
    this.#deps.log.warn({ err: error, sessionId: this.sessionId }, 'a step of a session failed')
    this.#repository.invalidate()
    await this.#applyAtLast({ type: 'recover' })
  }

  /** Applies an input that must not be lost, until it succeeds or the runner stops. */
  async #applyAtLast(input: Input): Promise<void> {
    for (let failures = 1; !this.#stop.signal.aborted; failures++) {
      try {
        return void (await this.#apply(input))
      } catch (error) {
        this.#deps.log.warn({ err: error, sessionId: this.sessionId }, 'an input of a session is tried again')
        this.#repository.invalidate()
        await backOff(failures, retryBackOff(this.#deps.timings), this.#stop.signal)
      }
    }
  }

  /** What the session needs by itself: whoever has asked for it before is not the one who acts. */
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

  #setTimer(name: TimerName, ms: number): void {
    clearTimeout(this.#timers.get(name))
    const timer = setTimeout(() => void this.#asAgent(() => this.#applyOrDetach({ type: 'timer', name })), ms)
    this.#timers.set(name, timer.unref())
  }

  #clearTimer(name: TimerName): void {
    clearTimeout(this.#timers.get(name))
    this.#timers.delete(name)
  }

  #clearTimers(): void {
    for (const name of this.#timers.keys()) this.#clearTimer(name)
  }

  /** Holds a keep-alive lease of this sandbox and of no other. */
  #keepAwake(sandboxId: string | undefined): void {
    if (this.#lease?.sandboxId === sandboxId) return
    this.#lease?.release()
    this.#lease =
      sandboxId === undefined ? undefined : { sandboxId, release: this.#deps.sandboxes.previews.keepAlive(sandboxId) }
  }

  /** No effect begins any more. Resolves when the step under way has ended. */
  async #stopDriving(): Promise<void> {
    this.#stop.abort()
    this.#connection?.close()
    this.#project.preview.stop()
    this.#clearTimers()
    await this.#step
    this.#permit.release()
    this.#capacity.leave(false)
    this.#keepAwake(undefined)
  }
}
