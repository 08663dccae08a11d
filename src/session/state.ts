import type { ServiceError } from '../errors.ts'
import type { ResultSubtype } from '../protocol/agent.ts'
import { type IdleOutput, type TurnOutput, weightOf } from './output-budget.ts'
import type { StepName } from './reducer-types.ts'
import type { Session, SessionEventType, StreamEvent } from './session.ts'
import type { SessionHead, SessionStore } from './store.ts'

/** All that the server knows of one session. Everything but `run` is read back from the store. */
export interface SessionState {
  session: Session
  turn: TurnState | undefined
  /** Messages that wait, oldest first. */
  queuedIds: readonly string[]
  /** Bytes of all its stream events. */
  streamBytes: number
  /** Bytes of all its messages and session events. */
  historyBytes: number
  idle: IdleOutput
  /** How often the artifacts have changed since the last turn ended; see `artifactWritesMax`. */
  artifactWrites: number
  /** The sandbox has run: from here on its loss is not a failed boot. */
  sandboxReady: boolean
  /** Skills are written and an agent has run. */
  agentReady: boolean
  previewReady: boolean
  /** The last recorded event of the sandbox says that it hibernates. */
  hibernated: boolean
  run: RunnerState
}

/** What is under way in this server. A server that starts, or takes up a session that rested, begins with `initialRun`. */
export interface RunnerState {
  step: StepName | undefined
  /** The attachment to the agent; the step is `attach` as long as it exists. */
  connection: ConnectionState | undefined
  /**
   * Requests that may wake a hibernated sandbox, and how many of them the agent has been given. They are counted, so that a
   * request that comes while an attachment is made outlives that attachment.
   */
  wakesWanted: number
  wakesServed: number
  /** No turn begins; messages wait. */
  isPaused: boolean
  /** Likewise, for a rewind, which takes a checkpoint of its own: none of the turn is begun. */
  isHeld: boolean
  /** A checkpoint of the turn that ended last is being taken. */
  isSaving: boolean
  isEnding: boolean
  /** Failures after which the next step waits; 0 for none. */
  backOffFailures: number
  /** Each counts failures in a row; the reducer holds the bounds. */
  failedStarts: number
  idleRestarts: number
  attachFailures: number
  failedSteps: number
  shortage: { failures: number; isDue: boolean; error: ServiceError | undefined }
  forkCheckpointTried: boolean
  /** The sandbox has changed since the inspection under way began. */
  isInspectionStale: boolean
  /** The sandbox whose loss is reported: until another one replaces it, messages are refused. */
  lostSandboxId: string | undefined
}

export interface ConnectionState {
  /** All output that was waiting is taken: the state of the turn is the agent's own. */
  isLive: boolean
  configureSent: boolean
  /** The last message sent through this attachment; an earlier attachment may have lost it. */
  sentMessageId: string | undefined
  interruptedMessageId: string | undefined
  /** Signals that the interrupted agent has ignored. */
  escalation: number
  /** The newest wake whose `report_sent` was asked for. */
  wakesReported: number
}

/** Agents that end without work, until the next one waits for a message. */
export const idleRestartsMax = 3

export const initialRun: RunnerState = {
  step: undefined,
  connection: undefined,
  wakesWanted: 0,
  wakesServed: 0,
  isPaused: false,
  isHeld: false,
  isSaving: false,
  isEnding: false,
  backOffFailures: 0,
  failedStarts: 0,
  idleRestarts: 0,
  attachFailures: 0,
  failedSteps: 0,
  shortage: { failures: 0, isDue: false, error: undefined },
  forkCheckpointTried: false,
  isInspectionStale: false,
  lostSandboxId: undefined,
}

/** Whether the sandbox must stay awake: a boot, a rewind, a turn, or messages that wait. */
export function hasWork({ session, turn, queuedIds }: Pick<SessionState, 'session' | 'turn' | 'queuedIds'>): boolean {
  if (session.activity === 'starting' || session.pendingRewind !== undefined || turn !== undefined) return true
  return queuedIds.length > 0 && session.activity !== 'paused'
}

/** What each type of session event means for the state, when it is recorded or read back. */
export const noted: { [Type in SessionEventType]?: Partial<SessionState> } = {
  session_started: { sandboxReady: false, agentReady: false, previewReady: false, hibernated: false },
  sandbox_ready: { sandboxReady: true },
  agent_ready: { agentReady: true },
  preview_ready: { previewReady: true },
  sandbox_hibernated: { hibernated: true },
  sandbox_resumed: { hibernated: false },
}

/** Reads everything but `run`. */
export async function loadState(
  store: SessionStore,
  session: Session,
  { streamBytes, historyBytes }: SessionHead,
): Promise<Omit<SessionState, 'run'>> {
  // The server forgets what an agent said outside of turns, except `ready`, which the agent says first.
  const ready = session.agentOffset > 0 || session.activity !== 'starting'
  let state: Omit<SessionState, 'run'> = {
    session,
    turn: await loadTurn(store, session.id),
    queuedIds: await store.queuedMessageIds(session.id),
    streamBytes,
    historyBytes,
    idle: { ready: ready && session.agentProcessId !== undefined, lines: 0, errors: 0 },
    artifactWrites: 0,
    sandboxReady: false,
    agentReady: false,
    previewReady: false,
    hibernated: false,
  }
  // The last event of a type means no less than all before it.
  for (const type of await store.eventTypes(session.id)) state = { ...state, ...noted[type] }
  return state
}

/**
 * The agent's work on one message, from its state `started` to `consumed`. All of it can be read back from the store, so
 * that a restart of the server goes on where the commit before stood:
 *
 *     started ──result──► resulted ──turn_complete──► (no turn)
 *
 * Each message gets exactly one `result` and one `turn_complete`; where the agent cannot say them, the service does.
 */
export interface TurnState {
  messageId: string
  /** Set once its `result` is in the stream. */
  result?: { subtype: ResultSubtype; text: string }
  /** What the assistant has said, for the message of this turn; bounded. */
  text: string
  /** The agent's own session id, once it is known. */
  agentSessionId: string
  /** How often the agent process ended during this turn. */
  agentExits: number
  /** The model gateway refused a call for the session's budget. */
  isBudgetSpent: boolean
  output: TurnOutput
}

export const agentExitedCode = 'agent_exited'
export const budgetCode = 'budget_exceeded'

/** Characters of one assistant message; of a longer one the beginning is kept. */
const textLengthMax = 256 * 1024
const pageEvents = 32

export function newTurn(messageId: string): TurnState {
  return {
    messageId,
    text: '',
    agentSessionId: '',
    agentExits: 0,
    isBudgetSpent: false,
    output: { lines: 0, bytes: 0 },
  }
}

/** What one stream event of this turn adds to it. */
export function advance(turn: TurnState, data: StreamEvent['data']): TurnState {
  const agentSessionId = typeof data['session_id'] === 'string' ? data['session_id'] : turn.agentSessionId
  if (data.type === 'assistant') return { ...turn, agentSessionId, text: joined(turn.text, assistantText(data)) }
  if (data.type === 'result') {
    const result = { subtype: data['subtype'] as ResultSubtype, text: data['result'] as string }
    return { ...turn, agentSessionId, result }
  }
  if (data.type === 'error' && data['code'] === agentExitedCode) return { ...turn, agentExits: turn.agentExits + 1 }
  if (data.type === 'error' && data['code'] === budgetCode) return { ...turn, isBudgetSpent: true }
  return { ...turn, agentSessionId }
}

/** The turn that is under way, from the message in state `started` and what the stream has since the turn before. */
export async function loadTurn(store: SessionStore, sessionId: string): Promise<TurnState | undefined> {
  const message = await store.firstMessage(sessionId, 'started')
  if (message === undefined) return undefined
  let turn = newTurn(message.id)
  const start = await endOfTurnBefore(store, sessionId)
  await eachPage(store, sessionId, { after: start, until: await store.lastSequence(sessionId) }, (page) => {
    for (const { data } of page) {
      const { lines, bytes } = turn.output
      turn = { ...advance(turn, data), output: { lines: lines + 1, bytes: bytes + weightOf(data) } }
    }
  })
  return turn
}

/** Number of the newest `turn_complete`, searched from the end; 0 when there is none. */
async function endOfTurnBefore(store: SessionStore, sessionId: string): Promise<number> {
  let end = await store.lastSequence(sessionId)
  while (end > 0) {
    const after = Math.max(0, end - pageEvents)
    const found: number[] = []
    await eachPage(store, sessionId, { after, until: end }, (page) => {
      found.push(...page.filter(({ data }) => data.type === 'turn_complete').map(({ sequence }) => sequence))
    })
    const complete = found.at(-1)
    if (complete !== undefined) return complete
    end = after
  }
  return 0
}

/** Reads page after page, and holds one. */
async function eachPage(
  store: SessionStore,
  sessionId: string,
  { after, until }: { after: number; until: number },
  take: (page: readonly StreamEvent[]) => void,
): Promise<void> {
  const next = async (start: number): Promise<number> => {
    const page = await store.stream(sessionId, start, Math.min(pageEvents, until - start))
    take(page)
    return page.at(-1)?.sequence ?? until
  }
  for (let start = after; start < until;) start = await next(start)
}

function assistantText(data: StreamEvent['data']): string {
  const { content } = data['message'] as { content: { type: string; text?: string }[] }
  return content.map((block) => (block.type === 'text' ? (block.text ?? '') : '')).join('')
}

function joined(before: string, text: string): string {
  if (text.trim() === '') return before
  const all = before === '' ? text : `${before}\n\n${text}`
  return all.length <= textLengthMax ? all : `${all.slice(0, textLengthMax).toWellFormed()}…`
}
