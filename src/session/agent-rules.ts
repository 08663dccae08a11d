import { constants } from 'node:os'
import { isServiceError, ServiceError } from '../errors.ts'
import type { SessionTimings } from './config.ts'
import { type Decision, wakeFailedText } from './decision.ts'
import type { Effect, Input } from './reducer-types.ts'
import { isShortage } from './shortage.ts'
import { idleRestartsMax, type ConnectionState, type SessionState } from './state.ts'
import type { Transaction } from './transaction.ts'
import type { TravelRules } from './travel-rules.ts'

/** Agents in a row that end before they are configured, until the session is `failed`. */
const agentStartsMax = 3
/** Failures in a row to reach the agent of a running sandbox, until the session is `failed`. */
const attachFailuresMax = 12
const { SIGINT, SIGKILL } = constants.signals

/** The rules about the agent process of a session: what it says, what it is sent, and what its end leads to. */
export class AgentRules {
  readonly #decision: Decision
  readonly #travel: TravelRules
  readonly #transaction: Transaction
  readonly #effects: Effect[]
  readonly #timings: SessionTimings

  constructor(decision: Decision, travel: TravelRules) {
    this.#decision = decision
    this.#travel = travel
    this.#transaction = decision.transaction
    this.#effects = decision.effects
    this.#timings = decision.context.timings
  }

  get #state(): SessionState {
    return this.#decision.state
  }

  attach(): void {
    this.#transaction.setRun({ connection: newConnection })
    if (this.#state.session.activity === 'starting') {
      this.#effects.push({ type: 'set_timer', name: 'late_start', ms: this.#timings.agentStartMs })
    }
  }

  detach({ processId, exitCode, wasLong }: Input & { type: 'attachment_ended' }): void {
    const { attachFailures } = this.#state.run
    this.#transaction.setRun({ connection: undefined })
    this.#effects.push({ type: 'release_start_permit' })
    if (exitCode !== undefined) return this.#lose(processId, describeExit(exitCode))
    this.#transaction.setRun({ attachFailures: wasLong ? attachFailures : attachFailures + 1 })
    this.#decision.backOff(wasLong ? 1 : attachFailures + 1)
  }

  goLive(): void {
    this.#setConnection({ isLive: true })
    if (this.#state.agentReady && !this.#state.previewReady) this.#effects.push({ type: 'watch_preview' })
  }

  takeOutput({ processId, output, offset, framework }: Input & { type: 'agent_output' }): void {
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
    if (isConfigured) this.#effects.push({ type: 'release_start_permit' })
    // A configured agent may be in a sandbox whose servers came with the memory of a checkpoint.
    if (hasTurnEnded || isConfigured || types.has('tool_use_summary')) this.#effects.push({ type: 'watch_preview' })
    const { configureError, overdraft } = transaction
    if (!configureError && !overdraft) return
    if (configureError) {
      transaction.fail(configureError.code, configureError.message)
      transaction.dropAgent()
    } else if (overdraft) {
      transaction.stopOutput(overdraft)
    }
    this.#effects.push({ type: 'detach' }, { type: 'signal_agent', processId, signal: SIGKILL })
    if (overdraft === 'idle' || overdraft === 'turn') {
      this.#countEnd(session.activity === 'starting', 'it said more than it may')
    }
  }

  /** Sends what the agent is to do next: `configure`, then one message at a time, then an interrupt. */
  sendCommands(): void {
    const { session, run } = this.#state
    const { connection } = run
    if (!connection?.isLive || run.isEnding || session.activity === 'failed') return
    if (session.activity === 'starting') {
      if (!connection.configureSent) this.#effects.push({ type: 'send', command: { type: 'configure' } })
      return this.#setConnection({ configureSent: true })
    }
    if (session.pendingRewind !== undefined) return
    const [next] = this.#state.queuedIds
    if (!this.#state.turn) {
      if (this.#travel.savesFirst()) return
      if (next !== undefined && (run.isPaused || session.pausedFor !== undefined)) return
      if (next !== undefined) this.#transaction.startTurn(next)
    }
    const { turn } = this.#state
    // An earlier attachment may have lost the message; the agent knows a repeat by its id.
    if (turn && connection.sentMessageId !== turn.messageId) {
      this.#effects.push({ type: 'send', command: { type: 'message', messageId: turn.messageId } })
      this.#setConnection({ sentMessageId: turn.messageId })
    }
    const interruptedId = this.#interruptedId
    if (interruptedId !== undefined && connection.interruptedMessageId !== interruptedId) {
      this.#effects.push({ type: 'send', command: { type: 'interrupt', messageId: interruptedId } })
      this.#setConnection({ interruptedMessageId: interruptedId, escalation: 0 })
      this.#effects.push({ type: 'set_timer', name: 'escalate', ms: this.#timings.interruptAskMs })
    }
    if (run.wakesWanted > Math.max(run.wakesServed, connection.wakesReported)) {
      this.#effects.push({ type: 'report_sent', wakes: run.wakesWanted })
      this.#setConnection({ wakesReported: run.wakesWanted })
    }
  }

  /** The message of the running turn, if that is to end. */
  get #interruptedId(): string | undefined {
    const { turn, session } = this.#state
    return turn && session.interruptedMessageId === turn.messageId ? turn.messageId : undefined
  }

  /** The agent has not ended its turn in time: asked ─interruptAskMs─► SIGINT ─interruptSigintMs─► SIGKILL, every retryMaxMs. */
  escalate(): void {
    const { session, run } = this.#state
    const { connection } = run
    const interruptedId = this.#interruptedId
    const processId = session.agentProcessId
    if (!connection || processId === undefined || interruptedId === undefined) return
    if (connection.interruptedMessageId !== interruptedId) return
    const isFirst = connection.escalation === 0
    const ms = isFirst ? this.#timings.interruptSigintMs : this.#timings.retryMaxMs
    this.#effects.push({ type: 'signal_agent', processId, signal: isFirst ? SIGINT : SIGKILL })
    this.#setConnection({ escalation: connection.escalation + 1 })
    this.#effects.push({ type: 'set_timer', name: 'escalate', ms })
  }

  killLate(): void {
    const { session, run } = this.#state
    if (!run.connection || session.activity !== 'starting' || session.agentProcessId === undefined) return
    this.#effects.push({ type: 'signal_agent', processId: session.agentProcessId, signal: SIGKILL })
    // Again, since the signal may fail.
    this.#effects.push({ type: 'set_timer', name: 'late_start', ms: this.#timings.agentStartMs })
  }

  /** The process of the agent has ended. */
  #lose(processId: string, detail: string): void {
    const { session } = this.#state
    if (session.agentProcessId !== processId) return
    this.#transaction.loseAgent(detail)
    this.#countEnd(session.activity === 'starting', detail)
  }

  /** Counts a process that has ended. Too many that were not configured fail the session. */
  #countEnd(wasStarting: boolean, detail: string): void {
    const { failedStarts: before, idleRestarts } = this.#state.run
    const failedStarts = wasStarting ? before + 1 : before
    this.#transaction.setRun({ failedStarts, idleRestarts: Math.min(idleRestarts + 1, idleRestartsMax) })
    if (!wasStarting || failedStarts < agentStartsMax) return this.#decision.backOff(1)
    this.#decision.fail(new ServiceError('unavailable', detail), 'The agent does not start', 'agent_exited')
  }

  failAttach({ processId, error, sandbox }: Input & { type: 'attach_failed' }): void {
    const { session, run } = this.#state
    if (session.agentProcessId !== processId || this.#decision.isRestored(sandbox)) return
    if (isServiceError(error, 'not_found')) {
      // The sandbox came back without its processes. Without work the next agent waits for a message.
      this.#transaction.setRun({ idleRestarts: idleRestartsMax })
      return this.#lose(processId, 'it is not there any more')
    }
    const isRunning = sandbox?.status === 'running'
    // Otherwise it fell asleep meanwhile, or is lost: the next inspection finds which.
    const counts = isRunning || this.#decision.isWakeWanted
    if (!isRunning && this.#decision.isWakeWanted && isShortage(error))
      return this.#decision.waitOrFail(error, wakeFailedText)
    const attachFailures = run.attachFailures + (counts ? 1 : 0)
    this.#transaction.setRun({ attachFailures })
    if (counts && attachFailures >= attachFailuresMax) {
      const fault = !isServiceError(error) && sandbox?.status === 'error' ? sandbox.reason : undefined
      return this.#decision.fail(error, isRunning ? 'The agent cannot be reached' : wakeFailedText, fault)
    }
    this.#decision.backOff(attachFailures)
  }

  #setConnection(fields: Partial<ConnectionState>): void {
    const { connection } = this.#state.run
    if (connection) this.#transaction.setRun({ connection: { ...connection, ...fields } })
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

/** The status of a command that is not there (POSIX, Shell & Utilities § 2.8.2). */
const notFoundStatus = 127

function describeExit(exitCode: number): string {
  if (exitCode !== notFoundStatus) return `status ${exitCode}`
  return 'its sandbox has no `node` that runs: begin in an image that is built on `base`, or has Node 24 and glibc'
}
