import { randomBytes } from 'node:crypto'
import type { ErrorCode } from '../errors.ts'
import type { Creation } from '../lib/creation.ts'
import { newId } from '../lib/id.ts'
import { sha256 } from '../lib/secret.ts'
import { withArtifact } from './artifacts.ts'
import type { AgentEvent, ResultSubtype, StreamEventData } from '../protocol/agent.ts'
import type { AgentOutput } from './agent-connection.ts'
import {
  counted,
  type IdleOutput,
  type Overdraft,
  overdraft,
  outputLimitCode,
  type OutputLimits,
  overdraftText,
  weightOf,
} from './output-budget.ts'
import type { Artifact, Message, Session, SessionActivity, SessionEvent, SessionEventType } from './session.ts'
import type { SessionChange } from './store.ts'
import { advance, agentExitedCode, newTurn, type Turn } from './state.ts'

/** What is known of a session besides its record. */
export interface Progress {
  session: Session
  turn: Turn | undefined
  /** Messages that wait. */
  queued: number
  /** Of all of its stream events. */
  streamBytes: number
  /** Of all of its messages and session events. */
  historyBytes: number
  idle: IdleOutput
  /** How often the artifacts have changed since the last turn ended; see `artifactWritesMax`. */
  artifactWrites: number
  /** The sandbox has run: from here on its loss is not a failed boot. */
  sandboxReady: boolean
  /** Skills are written and an agent has run. */
  agentReady: boolean
  previewReady: boolean
  /** The last that was recorded of the sandbox is that it hibernates. */
  hibernated: boolean
}

/**
 * Commits until the end of a turn that write artifacts: a short line makes each write all of them anew. Beyond, what an agent
 * tells is written with the end of its turn, and lost if the server dies before.
 */
const artifactWritesMax = 200
const agentExitsMax = 3
/** Of an error message in an event, in characters. */
const errorLengthMax = 4000
/** Of an answer for which the session has no room, in characters. */
const cutAnswerLength = 1000
const interruptedText = 'The turn was interrupted.'
const restoredText = 'The sandbox was put back to a checkpoint; the session goes on from there.'
/** Errors of the agent that mean it will take no message. */
const configureErrors = new Set(['configure_failed', 'unknown_harness', 'not_configured'])
/** Errors about what the server wrote; clients can do nothing with them. */
const lineErrors = new Set(['invalid_command', 'busy'])

type DraftChange = SessionChange &
  Required<Pick<SessionChange, 'addStream' | 'addEvents' | 'addMessages' | 'setMessages' | 'session'>>

/**
 * One commit in the making: methods say what happened, and the draft works out rows, stream events and the progress that
 * holds once the commit is done. It holds all rules about which event may follow which.
 */
export class Draft {
  progress: Progress
  readonly change: DraftChange = {
    when: 'running',
    addStream: [],
    addEvents: [],
    addMessages: [],
    setMessages: [],
    session: {},
  }
  /** The agent said that it cannot be configured. */
  configureError: { code: string; message: string } | undefined
  /** The agent said more than it may; what it said from there on is left out. */
  overdraft: Overdraft | undefined
  readonly #limits: OutputLimits

  constructor(progress: Progress, limits: OutputLimits) {
    this.progress = progress
    this.#limits = limits
  }

  get isEmpty(): boolean {
    const { addStream, addEvents, addMessages, setMessages, session } = this.change
    const lists = [addStream, addEvents, addMessages, setMessages]
    return lists.every((list) => list.length === 0) && Object.keys(session).length === 0
  }

  set(fields: NonNullable<SessionChange['session']>): void {
    Object.assign(this.change.session, fields)
    this.progress = { ...this.progress, session: { ...this.progress.session, ...(fields as Partial<Session>) } }
  }

  /** One line of the agent. What is out of order (a second `result`, an event outside of a turn) is left out. */
  take(line: AgentOutput): void {
    if (this.overdraft) return
    const bytes = weightOf(line)
    this.progress = counted(this.progress, line, bytes)
    this.overdraft = overdraft(this.progress, this.#limits, bytes)
    if (!this.overdraft && line.type !== 'invalid') this.#accept(line)
  }

  #accept(event: AgentEvent): void {
    const { turn, session, idle } = this.progress
    const inTurn = turn !== undefined && turn.result === undefined
    switch (event.type) {
      case 'ready':
        if (idle.ready) return
        this.progress = { ...this.progress, idle: { ...idle, ready: true } }
        return this.stream(event)
      case 'configured':
        // A repeat answers a `configure` that a restarted server had to send again.
        if (session.activity !== 'starting') return
        this.stream(event)
        this.note('agent_ready', 'info', `The agent is ready with model ${event.model}.`)
        return this.#settle()
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
    const id = newId('msg_')
    this.#addMessage({ id, role: 'user', content, state: 'queued', createdAt: new Date() })
    if (creation) this.change.made = { creation, id }
    this.progress = { ...this.progress, queued: this.progress.queued + 1 }
    const { activity } = this.progress.session
    if (activity === 'idle') this.#move('working')
    if (activity === 'failed') this.#move('starting')
  }

  /** A message that waits will not be dealt with. */
  cancelMessage(id: string): void {
    this.change.setMessages.push({ id, state: 'cancelled' })
    this.progress = { ...this.progress, queued: this.progress.queued - 1 }
    if (this.progress.session.activity === 'working') this.#settle()
  }

  /** Of a message that waited. */
  startTurn({ id }: Message): void {
    this.#beginTurn(id)
    this.#move('working')
  }

  /** Ends the turn with the agent's own `turn_complete`, or with one of ours; a `result` that is missing is added. */
  endTurn(complete?: StreamEventData, subtype: ResultSubtype = 'error_during_execution', text?: string): void {
    const { turn } = this.progress
    if (!turn) return
    if (!turn.result) this.stream(missingResult(turn, subtype, text ?? 'The turn ended without a result.'))
    const { result, messageId, agentSessionId, text: said } = this.progress.turn!
    this.stream(complete ?? { type: 'turn_complete', message_id: messageId, session_id: agentSessionId })
    this.change.setMessages.push({ id: messageId, state: 'consumed' })
    const answer = said === '' && result?.subtype === 'success' ? result.text : said
    if (answer !== '') this.#addAnswer(answer)
    if (result?.subtype === 'success') this.note('turn_completed', 'info', 'The agent finished a message.')
    else this.note('turn_completed', 'warning', `The agent's turn ended: ${result?.subtype}.`)
    const { idle, artifactWrites, session } = this.progress
    if (artifactWrites > artifactWritesMax) this.set({ artifacts: session.artifacts })
    this.progress = { ...this.progress, turn: undefined, idle: { ...idle, lines: 0, errors: 0 }, artifactWrites: 0 }
    if (this.progress.session.interruptedMessageId !== undefined) this.set({ interruptedMessageId: undefined })
    if (this.progress.session.activity === 'working') this.#settle()
  }

  /**
   * The running turn is to end: its agent has to be made to, and where none works on it, it ends here. Without one, that of
   * `next`, the first message that waits for a boot or a wake, ends before any agent hears of it.
   */
  interrupt(next?: Message): void {
    const { turn, session } = this.progress
    if (!turn) {
      if (next === undefined || session.activity === 'failed') return
      this.#beginTurn(next.id)
      return this.endTurn(undefined, 'interrupted', interruptedText)
    }
    const works = session.agentProcessId !== undefined && session.activity !== 'starting'
    if (works && session.waitingFor === undefined) return this.set({ interruptedMessageId: turn.messageId })
    this.endTurn(undefined, 'interrupted', interruptedText)
    // Its agent sleeps in a sandbox that cannot be woken for now, and must not go on with the turn when it can: the next one ends it.
    if (works) this.dropAgent()
  }

  /** The session has no agent process any more; the next one is read from its beginning. */
  dropAgent(): void {
    this.set({ agentProcessId: undefined, agentOffset: 0 })
  }

  /** A new agent process under this id; returns its token for the model gateway, of which only the hash is kept. */
  beginAgent(agentProcessId: string): string {
    const token = newToken()
    this.set({ agentProcessId, agentOffset: 0, gatewayTokenHash: sha256(token) })
    this.progress = { ...this.progress, idle: { ready: false, lines: 0, errors: 0 } }
    this.#move('starting')
    return token
  }

  /**
   * The agent process is gone. A turn goes on in the next process, which finds the conversation on the sandbox's disk;
   * one that has lost three processes ends, and one whose result is known is complete. A process that was not configured
   * yet has had no message: the turn has lost nothing with it, and perhaps it never ran, since its server died over the start.
   */
  agentGone(detail: string): void {
    this.dropAgent()
    const { turn, session } = this.progress
    if (!turn) return
    if (turn.result) return this.endTurn()
    if (session.interruptedMessageId === turn.messageId) return this.endTurn(undefined, 'interrupted', interruptedText)
    if (session.activity === 'starting') return
    this.stream({ type: 'error', message: `The agent process ended (${detail}).`, code: agentExitedCode, fatal: false })
    if (turn.agentExits + 1 < agentExitsMax) return
    this.endTurn(undefined, 'error_during_execution', `The agent process ended ${agentExitsMax} times in this turn.`)
  }

  /** The agent said more than it may: its process is to be killed, its turn ends, and so may the session. */
  stopOutput(over: Overdraft): void {
    this.dropAgent()
    const text = overdraftText(over)
    if (over === 'session') return this.fail(outputLimitCode, text)
    this.stream({ type: 'error', message: text, code: outputLimitCode, fatal: false })
    this.endTurn(undefined, 'error_during_execution', text)
  }

  /**
   * The next step lacks this for the moment and is tried again. Told under the type of the step before it: that is where the session
   * still stands.
   */
  wait(code: ErrorCode, message: string): void {
    const { session, sandboxReady, hibernated } = this.progress
    const text = message.slice(0, errorLengthMax)
    this.set({ waitingFor: code, waitingSince: session.waitingSince ?? new Date() })
    this.stream({ type: 'error', message: text, code, fatal: false })
    if (!sandboxReady) this.note('session_started', 'warning', text)
    else this.note(hibernated ? 'sandbox_hibernated' : 'sandbox_ready', 'warning', text)
  }

  /** The session waits for nothing any more. */
  waited(): void {
    if (this.progress.session.waitingFor === undefined) return
    this.set({ waitingFor: undefined, waitingSince: undefined })
  }

  /** The session cannot go on by itself: the running turn ends, waiting messages stay. */
  fail(code: string, message: string): void {
    const text = message.slice(0, errorLengthMax)
    this.waited()
    this.stream({ type: 'error', message: text, code, fatal: false })
    this.endTurn(undefined, 'error_during_execution', text)
    this.note('session_failed', 'error', text)
    this.#move('failed')
  }

  /** The sandbox is that of a checkpoint again, for the nth time: the turn is lost, and whoever worked on it. */
  restored(times: number): void {
    const { turn, session } = this.progress
    const isInterrupted = turn !== undefined && session.interruptedMessageId === turn.messageId
    this.set({ sandboxRestores: times })
    this.dropAgent()
    if (turn) this.stream({ type: 'error', message: restoredText, code: 'sandbox_restored', fatal: false })
    this.endTurn(undefined, isInterrupted ? 'interrupted' : 'error_during_execution', restoredText)
    this.note('sandbox_resumed', 'warning', restoredText)
  }

  /** Another sandbox takes the place of a lost one; nothing of the old one is left, and messages that wait go on. */
  restart(sandboxId: string, checkpointId: string | undefined, creation?: Creation): void {
    if (creation) this.change.made = { creation, id: sandboxId }
    this.set({ sandboxId, sandboxRestores: 0, checkpointId, forkedFrom: undefined, forkCheckpointOf: undefined })
    this.dropAgent()
    this.waited()
    this.note('session_started', 'info', 'The session goes on in a new sandbox.')
    this.#move('starting')
  }

  /** For good: waiting messages are cancelled and the token of the model gateway dies. */
  end(queuedIds: readonly string[]): void {
    this.endTurn(undefined, 'interrupted', 'The session was deleted.')
    for (const id of queuedIds) this.change.setMessages.push({ id, state: 'cancelled' })
    this.waited()
    this.note('session_ended', 'info', 'The session has ended.')
    this.set({ status: 'ended', agentProcessId: undefined, gatewayTokenHash: unusedTokenHash() })
    this.#move('ended')
    this.progress = { ...this.progress, queued: 0 }
  }

  note(type: SessionEventType, level: SessionEvent['level'], message: string): void {
    const event: SessionEvent = { id: newId('evt_'), type, level, message, createdAt: new Date() }
    this.change.addEvents.push(event)
    this.progress = { ...this.#grown(event), ...noted(type) }
  }

  stream(data: StreamEventData): void {
    this.change.addStream.push(data)
    const { turn, streamBytes } = this.progress
    this.progress = { ...this.progress, streamBytes: streamBytes + weightOf(data) }
    if (turn) this.progress = { ...this.progress, turn: advance(turn, data) }
  }

  #beginTurn(messageId: string): void {
    this.change.setMessages.push({ id: messageId, state: 'started' })
    this.progress = { ...this.progress, turn: newTurn(messageId), queued: this.progress.queued - 1 }
    this.note('turn_started', 'info', 'The agent works on a message.')
  }

  #addArtifact(artifact: Artifact): void {
    const { session, artifactWrites } = this.progress
    const [newest] = session.artifacts
    if (newest?.path === artifact.path && newest.summary === artifact.summary) return
    const artifacts = withArtifact(session.artifacts, artifact)
    const isWritten = this.change.session.artifacts !== undefined
    if (!isWritten) this.progress = { ...this.progress, artifactWrites: artifactWrites + 1 }
    if (isWritten || artifactWrites < artifactWritesMax) this.set({ artifacts })
    else this.progress = { ...this.progress, session: { ...session, artifacts } }
  }

  /** Of a session without room for more only the beginning is kept beside the stream, which has all of it. */
  #addAnswer(text: string): void {
    const message: Message = { id: newId('msg_'), role: 'assistant', content: text, createdAt: new Date() }
    const fits = this.#grown(message).historyBytes <= this.#limits.historyBytesMax
    const beginning = `${text.slice(0, cutAnswerLength).toWellFormed()}…`
    this.#addMessage(fits || text.length <= cutAnswerLength ? message : { ...message, content: beginning })
  }

  #addMessage(message: Message): void {
    this.change.addMessages.push(message)
    this.progress = this.#grown(message)
  }

  #grown(by: Message | SessionEvent): Progress {
    return { ...this.progress, historyBytes: this.progress.historyBytes + weightOf(by) }
  }

  #settle(): void {
    this.#move(this.progress.turn || this.progress.queued > 0 ? 'working' : 'idle')
  }

  #move(activity: SessionActivity): void {
    if (this.progress.session.activity !== activity) this.set({ activity })
  }
}

/** Whether the sandbox must stay awake: a boot, a turn, or messages that wait. */
export function hasWork({ session, turn, queued }: Progress): boolean {
  return session.activity === 'starting' || turn !== undefined || queued > 0
}

/** What a session event, when it is recorded or read back, says about the progress. */
export function noted(type: SessionEventType): Partial<Progress> {
  if (type === 'session_started') {
    return { sandboxReady: false, agentReady: false, previewReady: false, hibernated: false }
  }
  if (type === 'sandbox_ready') return { sandboxReady: true }
  if (type === 'agent_ready') return { agentReady: true }
  if (type === 'preview_ready') return { previewReady: true }
  if (type === 'sandbox_hibernated') return { hibernated: true }
  if (type === 'sandbox_resumed') return { hibernated: false }
  return {}
}

/** The hash of a token that nobody holds: before an agent runs, and after the session has ended. */
export function unusedTokenHash(): string {
  return sha256(newToken())
}

function newToken(): string {
  return randomBytes(32).toString('base64url')
}

function missingResult(turn: Turn, subtype: ResultSubtype, text: string): StreamEventData {
  return {
    type: 'result',
    subtype,
    result: text,
    num_turns: 0,
    duration_ms: 0,
    usage: { input_tokens: 0, output_tokens: 0 },
    session_id: turn.agentSessionId,
  }
}
