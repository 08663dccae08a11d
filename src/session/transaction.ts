import type { ErrorCode } from '../errors.ts'
import type { Creation } from '../lib/creation.ts'
import type { IdPrefix } from '../lib/id.ts'
import type { ResultSubtype } from '../protocol/agent.ts'
import type { StreamEventData } from '../protocol/stream-events.ts'
import type { AgentOutput } from './agent-connection.ts'
import {
  counted,
  type Overdraft,
  overdraft,
  outputLimitCode,
  type OutputLimits,
  overdraftText,
  weightOf,
  withArtifact,
} from './output-budget.ts'
import type {
  Artifact,
  Message,
  Session,
  SessionActivity,
  SessionEvent,
  SessionEventType,
  TurnCheckpoints,
} from './session.ts'
import type { AdoptedTurn } from './reducer-types.ts'
import {
  advance,
  agentExitedCode,
  newTurn,
  noted,
  type RunnerState,
  type SessionState,
  type TurnState,
} from './state.ts'
import type { SessionChange } from './store.ts'

/**
 * Commits of one turn that may write artifacts, since each writes all of them. Later artifacts are written at the end of the turn, and
 * lost if the server dies before.
 */
const artifactWritesMax = 200
const agentExitsMax = 3
/** Characters of an error message in an event. */
const errorLengthMax = 4000
/** Characters that are kept of an answer for which the session has no room. */
const cutAnswerLength = 1000
const interruptedText = 'The turn was interrupted.'
const restoredText = 'The sandbox was put back to a checkpoint; the session goes on from there.'
/** Errors of an agent that will take no message. */
const configureErrors = new Set(['configure_failed', 'unknown_harness', 'not_configured'])
/** Errors about what the server wrote; clients can do nothing with them. */
const lineErrors = new Set(['invalid_command', 'busy'])

export interface TransactionContext {
  limits: OutputLimits
  now: Date
  /** Of what a checkpoint is taken after each turn of a session that does not say. */
  checkpoints: TurnCheckpoints
  newId: (prefix: IdPrefix) => string
}

type Change = SessionChange &
  Required<Pick<SessionChange, 'addStream' | 'addEvents' | 'addMessages' | 'setMessages' | 'session' | 'turns'>>

/**
 * One commit in the making. Its methods say what happened; it works out the rows, the stream events and the state after the
 * commit. It holds all rules about which event may follow which.
 */
export class Transaction {
  state: SessionState
  readonly change: Change = {
    when: 'running',
    addStream: [],
    addEvents: [],
    addMessages: [],
    setMessages: [],
    turns: [],
    session: {},
  }
  /** The agent said that it cannot be configured. */
  configureError: { code: string; message: string } | undefined
  /** The agent said more than it may; the rest of its output is left out. */
  overdraft: Overdraft | undefined
  readonly #context: TransactionContext

  constructor(state: SessionState, context: TransactionContext) {
    this.state = state
    this.#context = context
  }

  get isEmpty(): boolean {
    const { addStream, addEvents, addMessages, setMessages, turns, session } = this.change
    const lists = [addStream, addEvents, addMessages, setMessages, turns]
    return lists.every((list) => list.length === 0) && Object.keys(session).length === 0
  }

  setRun(fields: Partial<RunnerState>): void {
    this.state = { ...this.state, run: { ...this.state.run, ...fields } }
  }

  set(fields: NonNullable<SessionChange['session']>): void {
    Object.assign(this.change.session, fields)
    this.state = { ...this.state, session: { ...this.state.session, ...(fields as Partial<Session>) } }
  }

  /** Takes one line of the agent. Drops lines that are out of order: a second `result`, an event outside of a turn. */
  take(line: AgentOutput): void {
    if (this.overdraft) return
    const bytes = weightOf(line)
    this.state = counted(this.state, line, bytes)
    this.overdraft = overdraft(this.state, this.#context.limits, bytes)
    if (!this.overdraft && line.type !== 'invalid') this.#accept(line)
  }

  #accept(event: Exclude<AgentOutput, { type: 'invalid' }>): void {
    const { turn, session, idle } = this.state
    const inTurn = turn !== undefined && turn.result === undefined
    switch (event.type) {
      case 'ready':
        if (idle.ready) return
        this.state = { ...this.state, idle: { ...idle, ready: true } }
        return this.stream(event)
      case 'configured':
        // A repeat answers a `configure` that a restarted server had to send again.
        if (session.activity !== 'starting') return
        this.stream(event)
        this.note('agent_ready', 'info', `The agent is ready with model ${event.model}.`)
        return this.settle()
      case 'assistant':
      case 'tool_use_summary':
      case 'result':
        if (inTurn) this.stream(event)
        return
      case 'turn_complete':
        if (turn && event.message_id === turn.messageId) this.endTurn(event)
        return
      case 'error':
        if (lineErrors.has(event.code)) return
        this.stream(event)
        if (configureErrors.has(event.code) && session.activity === 'starting') this.configureError = event
        return
      case 'artifact':
        return this.#addArtifact({ path: event.path, summary: event.summary })
      case 'turn_started':
        return
    }
  }

  addUserMessage(content: string, creation?: Creation): void {
    const id = this.#context.newId('msg_')
    this.#addMessage({ id, role: 'user', content, state: 'queued', createdAt: this.#context.now })
    if (creation) this.change.made = { creation, id }
    this.state = { ...this.state, queuedIds: [...this.state.queuedIds, id] }
    const { activity, archivedFor } = this.state.session
    if (archivedFor !== undefined) this.set({ archivedFor: undefined })
    if (activity === 'idle') this.transition('working')
    if (activity === 'failed') this.transition('starting')
  }

  cancelMessage(id: string): void {
    this.change.setMessages.push({ id, state: 'cancelled' })
    this.state = { ...this.state, queuedIds: this.state.queuedIds.filter((queued) => queued !== id) }
    if (this.state.session.activity === 'working') this.settle()
  }

  startTurn(messageId: string): void {
    this.#beginTurn(messageId)
    this.transition('working')
  }

  /** Ends the turn with the agent's own `turn_complete`, or with one of ours; a `result` that is missing is added. */
  endTurn(complete?: StreamEventData, subtype: ResultSubtype = 'error_during_execution', text?: string): void {
    const { turn } = this.state
    if (!turn) return
    if (!turn.result) this.stream(missingResult(turn, subtype, text ?? 'The turn ended without a result.'))
    const { result, messageId, agentSessionId, isBudgetSpent, text: said } = this.state.turn!
    this.stream(complete ?? { type: 'turn_complete', message_id: messageId, session_id: agentSessionId })
    this.change.setMessages.push({ id: messageId, state: 'consumed' })
    this.change.turns.push({
      type: 'ended',
      messageId,
      subtype: result?.subtype ?? subtype,
      preview: this.state.previewReady ? 'ready' : 'none',
      eventsBefore: this.change.addStream.length,
    })
    const answer = said === '' && result?.subtype === 'success' ? result.text : said
    if (answer !== '') this.#addAnswer(answer, messageId)
    if (result?.subtype === 'success') this.note('turn_completed', 'info', 'The agent finished a message.')
    else this.note('turn_completed', 'warning', `The agent's turn ended: ${result?.subtype}.`)
    const { idle, artifactWrites, session } = this.state
    if (artifactWrites > artifactWritesMax) this.set({ artifacts: session.artifacts })
    this.state = { ...this.state, turn: undefined, idle: { ...idle, lines: 0, errors: 0 }, artifactWrites: 0 }
    if (this.state.session.interruptedMessageId !== undefined) this.set({ interruptedMessageId: undefined })
    const { checkpoints = this.#context.checkpoints } = this.state.session.agentConfig
    if (checkpoints !== 'none') this.set({ unsavedTurnId: messageId })
    if (isBudgetSpent) this.#pause()
    if (this.state.session.activity === 'working') this.settle()
  }

  /** A budget is spent: messages wait until it is raised. */
  #pause(): void {
    this.set({ pausedFor: 'budget' })
    this.note('session_paused', 'warning', 'The budget of the session is spent. It goes on when that is raised.')
  }

  /** Adds turns that a fork has had, behind the one of this id. Returns the last. */
  adoptTurns(turns: readonly AdoptedTurn[], after: string | undefined): string | undefined {
    const eventsBefore = this.change.addStream.length
    let parentId = after
    for (const { id: messageId, messages, ...ended } of turns) {
      for (const message of messages) this.#addMessage(message)
      this.change.turns.push({ type: 'begun', messageId, parentId, eventsBefore })
      this.change.turns.push({ type: 'ended', messageId, ...ended, eventsBefore })
      parentId = messageId
    }
    return parentId
  }

  /**
   * Marks the running turn as interrupted, if an agent works on it, or ends it here. Without a turn, the turn of the first
   * message that waits for a boot or a wake ends before an agent hears of it.
   */
  interrupt(): void {
    const { turn, session, queuedIds } = this.state
    if (!turn) {
      const [next] = queuedIds
      if (next === undefined || session.activity === 'failed') return
      this.#beginTurn(next)
      return this.endTurn(undefined, 'interrupted', interruptedText)
    }
    const works = session.agentProcessId !== undefined && session.activity !== 'starting'
    if (works && session.waitingFor === undefined) return this.set({ interruptedMessageId: turn.messageId })
    this.endTurn(undefined, 'interrupted', interruptedText)
    // The agent sleeps in a sandbox that cannot be woken for now. It must not go on with the turn later: the next start kills it.
    if (works) this.dropAgent()
  }

  /** The session has no agent process any more. The output of the next one is read from its beginning. */
  dropAgent(): void {
    this.set({ agentProcessId: undefined, agentOffset: 0 })
  }

  beginAgent(agentProcessId: string, gatewayTokenHash: string): void {
    this.set({ agentProcessId, agentOffset: 0, gatewayTokenHash })
    this.state = { ...this.state, idle: { ready: false, lines: 0, errors: 0 } }
    this.transition('starting')
  }

  /**
   * The agent process is gone. The turn goes on in the next process, which finds the conversation on the sandbox's disk. A turn
   * whose result is known is complete; a turn that has lost three processes ends. A process that was not configured yet had no
   * message, so the turn has lost nothing with it.
   */
  loseAgent(detail: string): void {
    this.dropAgent()
    const { turn, session } = this.state
    if (!turn) return
    if (turn.result) return this.endTurn()
    if (session.interruptedMessageId === turn.messageId) return this.endTurn(undefined, 'interrupted', interruptedText)
    if (session.activity === 'starting') return
    this.stream({ type: 'error', message: `The agent process ended (${detail}).`, code: agentExitedCode, fatal: false })
    if (turn.agentExits + 1 < agentExitsMax) return
    this.endTurn(undefined, 'error_during_execution', `The agent process ended ${agentExitsMax} times in this turn.`)
  }

  /** The agent said more than it may: its turn ends, or the session fails. The caller kills the process. */
  stopOutput(over: Overdraft): void {
    this.dropAgent()
    const text = overdraftText(over)
    if (over === 'session') return this.fail(outputLimitCode, text)
    this.stream({ type: 'error', message: text, code: outputLimitCode, fatal: false })
    this.endTurn(undefined, 'error_during_execution', text)
  }

  /**
   * The next step lacks capacity and is tried again. The event has the type of the last state that was reached, where the session
   * still is.
   */
  wait(code: ErrorCode, message: string): void {
    const { session, sandboxReady, hibernated } = this.state
    const text = message.slice(0, errorLengthMax)
    this.set({ waitingFor: code, waitingSince: session.waitingSince ?? this.#context.now })
    this.stream({ type: 'error', message: text, code, fatal: false })
    if (!sandboxReady) this.note('session_started', 'warning', text)
    else this.note(hibernated ? 'sandbox_hibernated' : 'sandbox_ready', 'warning', text)
  }

  /** Changes nothing but the stream. */
  warn(code: string, message: string): void {
    this.stream({ type: 'error', message: message.slice(0, errorLengthMax), code, fatal: false })
  }

  /** The wait for capacity is over. */
  endWait(): void {
    if (this.state.session.waitingFor === undefined) return
    this.set({ waitingFor: undefined, waitingSince: undefined })
  }

  /** The running turn ends; waiting messages stay. */
  fail(code: string, message: string): void {
    const text = message.slice(0, errorLengthMax)
    this.endWait()
    this.stream({ type: 'error', message: text, code, fatal: false })
    this.endTurn(undefined, 'error_during_execution', text)
    this.note('session_failed', 'error', text)
    this.transition('failed')
  }

  /** A client restored the sandbox to a checkpoint, for the nth time: the turn and its agent are lost. */
  acceptRestore(times: number): void {
    const { turn, session } = this.state
    const isInterrupted = turn !== undefined && session.interruptedMessageId === turn.messageId
    this.set({ sandboxRestores: times })
    this.dropAgent()
    if (turn) this.stream({ type: 'error', message: restoredText, code: 'sandbox_restored', fatal: false })
    this.endTurn(undefined, isInterrupted ? 'interrupted' : 'error_during_execution', restoredText)
    this.set({ unsavedTurnId: undefined })
    this.note('sandbox_resumed', 'warning', restoredText)
  }

  /** A new sandbox replaces a lost one. Messages that wait go on. */
  restart(sandboxId: string, checkpointId: string | undefined, creation?: Creation): void {
    if (creation) this.change.made = { creation, id: sandboxId }
    this.set({ sandboxId, sandboxRestores: 0, checkpointId, forkedFrom: undefined, forkCheckpointOf: undefined })
    this.set({ unsavedTurnId: undefined })
    this.dropAgent()
    this.endWait()
    this.note('session_started', 'info', 'The session goes on in a new sandbox.')
    this.transition('starting')
  }

  /** `gatewayTokenHash` is the hash of a token that nobody has. */
  end(gatewayTokenHash: string): void {
    this.endTurn(undefined, 'interrupted', 'The session was deleted.')
    for (const id of this.state.queuedIds) this.change.setMessages.push({ id, state: 'cancelled' })
    this.endWait()
    this.note('session_ended', 'info', 'The session has ended.')
    this.set({ status: 'ended', agentProcessId: undefined, gatewayTokenHash })
    this.set({ unsavedTurnId: undefined, pendingRewind: undefined, pausedFor: undefined })
    this.transition('ended')
    this.state = { ...this.state, queuedIds: [] }
  }

  note(type: SessionEventType, level: SessionEvent['level'], message: string): void {
    const event: SessionEvent = { id: this.#context.newId('evt_'), type, level, message, createdAt: this.#context.now }
    this.change.addEvents.push(event)
    this.state = { ...this.#withHistory(event), ...noted[type] }
  }

  stream(data: StreamEventData): void {
    this.change.addStream.push(data)
    const { turn, streamBytes } = this.state
    this.state = { ...this.state, streamBytes: streamBytes + weightOf(data) }
    if (turn) this.state = { ...this.state, turn: advance(turn, data) }
  }

  #beginTurn(messageId: string): void {
    this.change.setMessages.push({ id: messageId, state: 'started' })
    const parentId = this.state.session.headTurnId
    this.change.turns.push({ type: 'begun', messageId, parentId, eventsBefore: this.change.addStream.length })
    this.set({ headTurnId: messageId, unsavedTurnId: undefined })
    this.state = {
      ...this.state,
      turn: newTurn(messageId),
      queuedIds: this.state.queuedIds.filter((id) => id !== messageId),
    }
    this.note('turn_started', 'info', 'The agent works on a message.')
  }

  #addArtifact(artifact: Artifact): void {
    const { session, artifactWrites } = this.state
    const [newest] = session.artifacts
    if (newest?.path === artifact.path && newest.summary === artifact.summary) return
    const artifacts = withArtifact(session.artifacts, artifact)
    const isWritten = this.change.session.artifacts !== undefined
    if (!isWritten) this.state = { ...this.state, artifactWrites: artifactWrites + 1 }
    if (isWritten || artifactWrites < artifactWritesMax) this.set({ artifacts })
    else this.state = { ...this.state, session: { ...session, artifacts } }
  }

  /** A session without room for the answer keeps its beginning; the stream has all of it. */
  #addAnswer(text: string, turnId: string): void {
    const message: Message = {
      id: this.#context.newId('msg_'),
      role: 'assistant',
      content: text,
      turnId,
      createdAt: this.#context.now,
    }
    const fits = this.#withHistory(message).historyBytes <= this.#context.limits.historyBytesMax
    const beginning = `${text.slice(0, cutAnswerLength).toWellFormed()}…`
    this.#addMessage(fits || text.length <= cutAnswerLength ? message : { ...message, content: beginning })
  }

  #addMessage(message: Message): void {
    this.change.addMessages.push(message)
    this.state = this.#withHistory(message)
  }

  #withHistory(by: Message | SessionEvent): SessionState {
    return { ...this.state, historyBytes: this.state.historyBytes + weightOf(by) }
  }

  settle(): void {
    if (this.state.session.pausedFor !== undefined) return this.transition('paused')
    this.transition(this.state.turn || this.state.queuedIds.length > 0 ? 'working' : 'idle')
  }

  transition(activity: SessionActivity): void {
    if (this.state.session.activity !== activity) this.set({ activity })
  }
}

function missingResult(turn: TurnState, subtype: ResultSubtype, text: string): StreamEventData {
  return {
    type: 'result',
    subtype,
    result: text,
    num_turns: 0,
    duration_ms: 0,
    usage: { input_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 0 },
    session_id: turn.agentSessionId,
  }
}
