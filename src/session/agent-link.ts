import { constants } from 'node:os'
import { isServiceError, ServiceError } from '../errors.ts'
import type { EventBus } from '../events/bus.ts'
import { newId } from '../lib/id.ts'
import type { Log } from '../lib/log.ts'
import type { SandboxService } from '../sandbox/index.ts'
import { AgentConnection, type AgentOutput, type ConnectionEnd } from './agent-connection.ts'
import { backOff } from '../lib/async/retry.ts'
import { configureCommand, endAgents, findSandbox, runningAgents, startAgent, writeSkills } from './boot.ts'
import { retryBackOff, type SessionConfig, type SessionLimits, type SessionTimings } from './config.ts'
import { hasWork, type Progress } from './transaction.ts'
import { Escalation } from './escalation.ts'
import type { Ledger } from './repository.ts'
import { ProjectWatch } from './project-watch.ts'
import type { RetryQueues } from './retry-queues.ts'
import { isShortage } from './shortage.ts'
import { StartSlot, type Starts } from './start-limiter.ts'
import type { Message } from './session.ts'
import type { SessionStore } from './store.ts'

export interface WorkerDeps {
  store: SessionStore
  sandboxes: SandboxService
  bus: EventBus
  config: SessionConfig
  limits: SessionLimits
  timings: SessionTimings
  /** Shared by all sessions. */
  starts: Starts
  queues: RetryQueues
  log: Log
}

/** What the worker of the session does for its link. */
export interface SessionLife {
  /** Aborts when the session ends or the server leaves it. */
  readonly signal: AbortSignal
  /** The sandbox has been seen running. */
  awake(): Promise<void>
  /** The sandbox is that of a checkpoint again, and processes in it may be of the past. */
  isRestored(): Promise<boolean>
  /** Keeps the sandbox awake while there is work. */
  hold(progress: Progress): void
  fail(error: unknown, what: string, code?: string): Promise<void>
  /** Runs a step of the boot; its failure is the session's. */
  orFail(what: string, work: () => Promise<void>): Promise<void>
  /** Makes the session wait for what a step lacks for the moment; any other failure is the session's. */
  waitOrFail(error: unknown, what: string): Promise<void>
}

/** Agents in a row that end before they are configured, until the session is `failed`. */
const agentStartsMax = 3
/** Agents that end without work, until the next one waits for a message. */
const idleRestartsMax = 3
/** Failures in a row to reach the agent of a running sandbox, until the session is `failed`. */
const attachFailuresMax = 12
const { SIGKILL } = constants.signals

/**
 * The agent process of a session: starts it, attaches to it, takes in what it says and sends it what it is to do.
 *
 *     none ──start──► detached ⇄ attached ──exit──► none
 *
 * The worker's loop calls `start` and `attach`; messages and interrupts may come at any time beside it.
 */
export class AgentLink {
  readonly #deps: WorkerDeps
  readonly #ledger: Ledger
  readonly #orgId: string
  readonly #life: SessionLife
  readonly #project: ProjectWatch
  readonly #escalation: Escalation
  readonly #slot: StartSlot
  #connection: AgentConnection | undefined
  /**
   * What was wanted so far, each of which may wake a hibernated sandbox, and how much of it an agent has been given. Counted, so
   * that what comes while an attachment is made outlives that one.
   */
  #wanted = 1
  #served = 0
  /** Each in a row; see the bounds above. */
  #failedStarts = 0
  #idleRestarts = 0
  #attachFailures = 0
  #paused = false

  constructor(deps: WorkerDeps, ledger: Ledger, orgId: string, life: SessionLife) {
    this.#deps = deps
    this.#ledger = ledger
    this.#orgId = orgId
    this.#life = life
    this.#project = new ProjectWatch(deps, ledger, orgId)
    this.#escalation = new Escalation(deps.timings, (...sent) => this.#signalInterrupted(...sent))
    this.#slot = new StartSlot(deps.starts, life.signal)
  }

  get wakeWanted(): boolean {
    return this.#wanted > this.#served
  }

  /** Whether an agent without work is started again. */
  get restartsIdle(): boolean {
    return this.#idleRestarts < idleRestartsMax
  }

  /** There is something new to send; it is sent now if the agent is attached to. */
  async wanted(what: 'message' | 'interrupt'): Promise<void> {
    if (what === 'message') this.#failedStarts = 0
    this.#wanted += 1
    await this.#pumpSafely()
  }

  /** From here on no turn begins, until `resume`. */
  pause(): void {
    this.#paused = true
  }

  async resume(): Promise<void> {
    this.#paused = false
    await this.#pumpSafely()
  }

  /** Leaves the attachment; the worker's loop may make another one. */
  detach(): void {
    this.#connection?.close()
  }

  close(): void {
    this.detach()
    this.#project.stop()
  }

  /** Nothing is started for now: others may. */
  leaveStartSlot(): void {
    this.#slot.leave()
  }

  /** Starts a process when it is its turn; its failure is the session's. */
  async start({ session, agentReady }: Progress): Promise<'again'> {
    if (!this.#slot.isHeld) {
      if (this.#failedStarts > 0) await this.#backOff(this.#failedStarts)
      // What was read before the wait may not hold any more.
      await this.#slot.enter()
      return 'again'
    }
    await this.#life.orFail('The agent could not be started', async () => {
      const { sandboxes, store } = this.#deps
      await endAgents(sandboxes, session, await runningAgents(sandboxes, session))
      // Also for the next agent: a checkpoint that the sandbox was put back to may be older than the directory.
      await sandboxes.files.mkdir(this.#orgId, session.sandboxId, session.agentConfig.cwd)
      if (!agentReady) await writeSkills({ sandboxes, store }, session)
      const processId = newId('ag-')
      const token = await this.#ledger.write((draft) => draft.beginAgent(processId))
      try {
        await startAgent(this.#deps, session, { processId, token })
      } catch (error) {
        // It may run all the same: the next start ends it.
        await this.#ledger.write((draft) => draft.dropAgent())
        throw error
      }
    })
    return 'again'
  }

  /** Stays with the process until it or the attachment ends. */
  async attach(progress: Progress, processId: string): Promise<'again' | 'wait'> {
    const { sandboxes, timings } = this.#deps
    const { agentOffset: offset, sandboxId } = progress.session
    let connection: AgentConnection
    try {
      const attachment = await sandboxes.exec.attach(this.#orgId, sandboxId, processId, {
        offset,
        kind: 'internal',
        wake: this.wakeWanted && hasWork(progress),
      })
      connection = new AgentConnection(attachment, offset, this.#handlers(processId), this.#deps)
    } catch (error) {
      if (await this.#life.isRestored()) return 'again'
      return await this.#attachFailed(error, processId)
    }
    this.#connection = connection
    if (this.#life.signal.aborted) connection.close()
    // Again and again, since it may not be possible the first time.
    const late = setInterval(() => void this.#killLateAgent(processId), timings.agentStartMs)
    late.unref()
    const attachedAt = performance.now()
    let end: ConnectionEnd
    try {
      // Asked behind the attachment: one that was made before a restore ends with it.
      if (await this.#life.isRestored()) return 'again'
      await this.#life.awake()
      end = await connection.run()
    } finally {
      clearInterval(late)
      connection.close()
      this.#slot.leave()
      this.#connection = undefined
      this.#escalation.stop()
      this.#project.pause()
    }
    if (this.#life.signal.aborted) return 'wait'
    if (end.type === 'exited') await this.#agentGone(processId, `status ${end.exitCode}`, end.stderr)
    else await this.#backOff(performance.now() - attachedAt > timings.retryMaxMs ? 1 : ++this.#attachFailures)
    return 'again'
  }

  async #attachFailed(error: unknown, processId: string): Promise<'again' | 'wait'> {
    const { sandboxes, log } = this.#deps
    if (isServiceError(error, 'not_found')) {
      // The sandbox came back without its processes. Without work the next agent waits for a message.
      this.#idleRestarts = idleRestartsMax
      await this.#agentGone(processId, 'it is not there any more')
      return 'again'
    }
    const { session } = await this.#ledger.read()
    const sandbox = await findSandbox(sandboxes, this.#orgId, session.sandboxId)
    // It fell asleep meanwhile, or it is lost: the next step sees which.
    if (sandbox?.status !== 'running') {
      if (this.wakeWanted && isShortage(error)) await this.#life.waitOrFail(error, 'The sandbox does not wake')
      else if (this.wakeWanted && ++this.#attachFailures >= attachFailuresMax)
        await this.#life.fail(error, 'The sandbox does not wake')
      else await this.#backOff(this.#attachFailures)
      return 'again'
    }
    log.debug({ err: error, sessionId: this.#ledger.sessionId }, 'the agent could not be attached to')
    if (++this.#attachFailures >= attachFailuresMax) await this.#life.fail(error, 'The agent cannot be reached')
    else await this.#backOff(this.#attachFailures)
    return 'again'
  }

  #handlers(processId: string) {
    return {
      take: (output: AgentOutput[], offset: number) => this.#take(processId, output, offset),
      live: async () => {
        const { agentReady, previewReady } = await this.#ledger.read()
        if (agentReady && !previewReady) this.#project.watch()
        await this.#pump()
      },
    }
  }

  async #take(processId: string, output: AgentOutput[], offset: number): Promise<void> {
    const { turn, session } = await this.#ledger.read()
    const ends = output.some((line) => line.type === 'turn_complete' && line.message_id === turn?.messageId)
    if (ends) this.#escalation.stop()
    // Before the commit, so that whoever sees `turn_complete` sees the project of that turn too.
    const framework = ends ? await this.#project.inspect() : undefined
    const stopped = await this.#ledger.write((draft) => {
      for (const line of output) draft.take(line)
      draft.set({ agentOffset: offset })
      if (framework !== undefined && framework !== draft.progress.session.framework) draft.set({ framework })
      if (draft.configureError) {
        draft.fail(draft.configureError.code, draft.configureError.message)
        draft.dropAgent()
      } else if (draft.overdraft) {
        draft.stopOutput(draft.overdraft)
      }
      return draft.configureError ? 'refused' : draft.overdraft
    })
    this.#tookIn(output, ends)
    if (stopped === undefined) return await this.#pump()
    this.#connection?.close()
    await this.#signal(processId, SIGKILL)
    if (stopped === 'idle' || stopped === 'turn') {
      await this.#countEnd(session.activity === 'starting', 'it said more than it may')
    }
  }

  /** The agent is well, as far as its words tell. */
  #tookIn(output: AgentOutput[], ends: boolean): void {
    const types = new Set(output.map(({ type }) => type))
    this.#attachFailures = 0
    if (types.has('configured')) {
      this.#failedStarts = 0
      this.#slot.leave()
    }
    if (ends) this.#idleRestarts = 0
    // A configured agent may be in a sandbox whose servers came with the memory of a checkpoint.
    if (ends || types.has('configured') || types.has('tool_use_summary')) this.#project.watch()
  }

  /** Sends what the agent is to do next: `configure`, then one message at a time, then an interrupt that is wanted. */
  async #pump(): Promise<void> {
    const connection = this.#connection
    if (!connection?.isLive || this.#life.signal.aborted) return
    const wanted = this.#wanted
    await this.#pumpTo(connection)
    connection.afterSent(() => (this.#served = Math.max(this.#served, wanted)))
  }

  async #pumpTo(connection: AgentConnection): Promise<void> {
    const progress = await this.#ledger.read()
    const { activity } = progress.session
    if (activity === 'failed') return
    if (activity === 'starting') return await this.#configure(connection, progress)
    const message = await this.#nextMessage(connection, progress)
    if (message && connection.sentMessageId !== message.id) {
      connection.sentMessageId = message.id
      connection.send({ type: 'message', messageId: message.id, content: message.content })
    }
    const now = await this.#ledger.read()
    this.#interrupt(connection, now)
    this.#life.hold(now)
  }

  async #configure(connection: AgentConnection, { session }: Progress): Promise<void> {
    if (connection.configureSent) return
    connection.configureSent = true
    const instructions = await this.#deps.store.instructions(this.#ledger.sessionId)
    if (instructions) connection.send(configureCommand(session, instructions, this.#deps.config))
  }

  /** The message of the turn that runs, unless this connection has sent it, or of the one that begins now. */
  async #nextMessage(connection: AgentConnection, { turn, queued }: Progress): Promise<Message | undefined> {
    const { store } = this.#deps
    const { sessionId } = this.#ledger
    if (turn) {
      // Sent through a connection that is gone, and perhaps not taken: the agent knows by the id.
      return connection.sentMessageId === turn.messageId ? undefined : await store.firstMessage(sessionId, 'started')
    }
    if (queued === 0) return undefined
    return await this.#ledger.write(async (draft) => {
      if (draft.progress.turn || this.#paused) return undefined
      const next = await store.firstMessage(sessionId, 'queued')
      if (next) draft.startTurn(next)
      return next
    })
  }

  /** Asks the agent to end a turn that is to end; should it not, it is made to. */
  #interrupt(connection: AgentConnection, progress: Progress): void {
    const messageId = interruptedMessage(progress)
    if (messageId === undefined || !connection.isLive) return
    if (connection.interruptedMessageId !== messageId) connection.send({ type: 'interrupt', messageId })
    connection.interruptedMessageId = messageId
    this.#escalation.begin()
  }

  async #signalInterrupted(signal: number, stopped: AbortSignal): Promise<void> {
    const progress = await this.#readSafely()
    const processId = progress?.session.agentProcessId
    if (stopped.aborted || !progress || processId === undefined || interruptedMessage(progress) === undefined) return
    const { sessionId } = this.#ledger
    this.#deps.log.warn({ sessionId, signal }, 'an agent does not end its turn by itself')
    await this.#signal(processId, signal)
  }

  /** For callers that have done their part already: the connection's own loop meets the same failure and deals with it. */
  async #pumpSafely(): Promise<void> {
    try {
      await this.#pump()
    } catch (error) {
      this.#deps.log.warn({ err: error, sessionId: this.#ledger.sessionId }, 'a message could not be sent on')
      this.#connection?.close()
    }
  }

  async #agentGone(processId: string, detail: string, stderr = ''): Promise<void> {
    const { log } = this.#deps
    const { session } = await this.#ledger.read()
    if (session.agentProcessId !== processId) return
    log.warn({ sessionId: this.#ledger.sessionId, detail, stderr }, 'an agent process ended')
    await this.#ledger.write((draft) => draft.agentGone(detail))
    await this.#countEnd(session.activity === 'starting', detail)
  }

  /** Counts a process that has ended. Too many that were not even configured fail the session. */
  async #countEnd(starting: boolean, detail: string): Promise<void> {
    if (starting) this.#failedStarts += 1
    this.#idleRestarts += 1
    if (starting && this.#failedStarts >= agentStartsMax) {
      await this.#life.fail(new ServiceError('unavailable', detail), 'The agent does not start', 'agent_exited')
    } else {
      await this.#backOff(1)
    }
  }

  async #killLateAgent(processId: string): Promise<void> {
    const progress = await this.#readSafely()
    if (progress?.session.activity !== 'starting') return
    this.#deps.log.warn({ sessionId: this.#ledger.sessionId }, 'an agent did not start in time')
    await this.#signal(processId, SIGKILL)
  }

  /** For what is tried again: undefined when the store does not answer. */
  async #readSafely(): Promise<Progress | undefined> {
    try {
      return await this.#ledger.read()
    } catch (error) {
      this.#deps.log.debug({ err: error, sessionId: this.#ledger.sessionId }, 'a session could not be read')
      return undefined
    }
  }

  async #signal(processId: string, signal: number): Promise<void> {
    try {
      const { session } = await this.#ledger.read()
      await this.#deps.sandboxes.exec.kill(this.#orgId, session.sandboxId, processId, signal, 'internal')
    } catch (error) {
      this.#deps.log.debug({ err: error, sessionId: this.#ledger.sessionId }, 'an agent process could not be signalled')
    }
  }

  async #backOff(failures: number): Promise<void> {
    await backOff(failures, retryBackOff(this.#deps.timings), this.#life.signal)
  }
}

/** The message whose turn runs and is to end. */
function interruptedMessage({ session, turn }: Progress): string | undefined {
  return turn && session.interruptedMessageId === turn.messageId ? turn.messageId : undefined
}
