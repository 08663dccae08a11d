import type { KeyReach } from '../lib/key-reach.ts'
import type { Creation } from '../lib/creation.ts'
import type {
  AgentConfig,
  Message,
  MessageState,
  Session,
  SessionEvent,
  SessionEventType,
  SessionStatus,
  StreamEvent,
} from './session.ts'
import type { Counters, KeptPoint, Point, Rewind, Turn, TurnFiles } from './turn.ts'

/** Bytes of JSON: one read of stream events ends with the event that reaches them, which can be as long as a line of the agent. */
export const streamPageBytes = 1024 * 1024
/** Bytes of text: one page of messages or of session events ends with the row that reaches them. */
export const rowPageBytes = 512 * 1024

/**
 * The port behind which sessions are kept. Every method is one transaction; what it acknowledged survives a crash.
 * Sequence numbers of stream events are dense per session and assigned in commit order.
 */
export interface SessionStore {
  /**
   * Inserts the session with the messages that it begins with, oldest first, and its first event. With `configOf` it gets the
   * whole configuration of that session in place of its own. With a creation, writes its id into the row of the
   * `Idempotency-Key`; throws `conflict`, and makes nothing, when an earlier run of the request has made one.
   */
  /** Of one organisation that have not ended. */
  countRunning(orgId: string): Promise<number>
  createSession(
    session: Session,
    messages: readonly Message[],
    event: SessionEvent,
    options?: { configOf?: string; creation?: Creation | undefined },
  ): Promise<void>
  /** With its artifacts. Without what can be megabytes: `agentConfig` has no system prompt, and its `skills` are left out (`{}`). */
  session(id: string, orgId?: string): Promise<Session | undefined>
  /** One small row, for frequent reads. */
  head(id: string, orgId?: string): Promise<SessionHead | undefined>
  /** The id of the session of this name that has not ended. */
  sessionNamed(name: string, orgId: string): Promise<string | undefined>
  metered(id: string): Promise<MeteredSession | undefined>
  meteredByGatewayToken(tokenHash: string): Promise<MeteredSession | undefined>
  /** The system prompt and the paths of the skills, which `session` leaves out. */
  instructions(id: string): Promise<Instructions | undefined>
  /** Absolute path in the sandbox → text; megabytes. */
  skills(id: string): Promise<AgentConfig['skills']>
  /** A key that is absent keeps its value, one that is `undefined` clears it. Does nothing for an unknown session. */
  changeAgentConfig(sessionId: string, change: AgentConfigChange): Promise<void>
  /**
   * Newest first. A search looks into a bounded number of sessions for one page, which may hold less than `limit`, even
   * nothing, and still have a next one. An unreadable cursor throws `invalid_request`. `agentConfig` is without its system prompt
   * and skills: a page of sessions with megabytes of them each does not fit into memory. For the same reason a page ends before the
   * session with which the histories and artifacts on it would exceed `historyBytesMax`, unless that is its first.
   */
  listSessions(query: SessionQuery): Promise<{ items: Session[]; nextCursor?: string }>
  /** Oldest first, all at once, so only references. */
  sessionsIn(status: SessionStatus): Promise<SessionReference[]>

  /**
   * Applies all of a change or nothing. Returns `undefined`, having changed nothing, when the session is unknown or not in
   * `change.when`. Locks the session's row first, so that changes of one session happen one after the other.
   */
  commit(sessionId: string, change: SessionChange): Promise<Committed | undefined>

  /**
   * Of the branch in force, or of all; oldest first; all, or a page of them, which ends before `limit` with the message that reaches
   * `rowPageBytes`.
   */
  messages(sessionId: string, page?: RowPage & { branch?: Branch }): Promise<Message[]>
  message(sessionId: string, id: string): Promise<Message | undefined>
  /** Oldest first, without their texts. */
  queuedMessageIds(sessionId: string): Promise<string[]>
  /** The oldest user message in this state. */
  firstMessage(sessionId: string, state: MessageState): Promise<Message | undefined>
  /** As `messages`. */
  events(sessionId: string, page?: RowPage): Promise<SessionEvent[]>
  /** Each type of which the session has an event, in the order of their last ones. */
  eventTypes(sessionId: string): Promise<SessionEventType[]>
  /**
   * Stream events with a number above `after`, in order: at most `limit`, and none behind the one with which they reach
   * `streamPageBytes`. So fewer than `limit` need not be all; `isLastPage` tells.
   */
  stream(sessionId: string, after: number, limit: number): Promise<StreamEvent[]>
  /** The number of the newest stream event; 0 when there is none. */
  lastSequence(sessionId: string): Promise<number>
  /** What all messages and events of each of these sessions hold, in bytes of their JSON text. */
  historyBytes(sessionIds: readonly string[]): Promise<ReadonlyMap<string, number>>
  /**
   * All events, and the messages of the branch in force, of each of these sessions, oldest first. For sessions that hold `rowPageBytes` together
   * at most.
   */
  histories(sessionIds: readonly string[]): Promise<ReadonlyMap<string, History>>

  /** A turn by its message. */
  turn(sessionId: string, messageId: string): Promise<Turn | undefined>
  /** Turns by their order, newest first, of the branch in force or of all. */
  turns(sessionId: string, query: TurnQuery): Promise<Turn[]>
  /** The messages of the turns of the branch that ends with this turn, newest first; at most `limit`. */
  branch(sessionId: string, turnId: string | undefined, limit: number): Promise<string[]>
  setTurnFiles(sessionId: string, messageId: string, files: TurnFiles): Promise<void>
  /** What belongs to each of these turns beside its row. */
  turnFacts(sessionId: string, messageIds: readonly string[]): Promise<ReadonlyMap<string, TurnFacts>>
  /** Of all turns that have ended, of all branches. */
  turnTotals(sessionId: string): Promise<TurnTotals>
  /** A point by its checkpoint. */
  point(sessionId: string, checkpointId: string): Promise<Point | undefined>
  /**
   * The newest point of this origin and turn. Of either origin: the one that was taken at the end of the turn, else one before a rewind whose
   * sandbox no earlier rewind has changed since the turn.
   */
  pointOfTurn(sessionId: string, turnId: string, origin?: Point['origin']): Promise<Point | undefined>
  /** The newest point with these numbers: above `after` and up to `until`. */
  pointBefore(sessionId: string, range: { after: number; until: number }): Promise<Point | undefined>
  /** All, oldest first: at most as many as the policy keeps, and a few. */
  points(sessionId: string): Promise<KeptPoint[]>
  /** Which of these checkpoints are points of a session. */
  knownPoints(checkpointIds: readonly string[]): Promise<ReadonlySet<string>>
  removePoints(sessionId: string, checkpointIds: readonly string[]): Promise<void>
  /** The rewind that this checkpoint undoes. */
  rewindUndoneBy(sessionId: string, undoCheckpointId: string): Promise<Rewind | undefined>
  /** The newest rewind with a number up to this one. */
  rewindBefore(sessionId: string, event: number): Promise<Rewind | undefined>
  /** Sessions that have not been deleted and were forked from this one: at the ends of these turns, or all; at most `limit`, oldest first. */
  forksOf(sessionId: string, query: { turnIds?: readonly string[]; limit: number }): Promise<ForkReference[]>
  /** Of these checkpoints, those from which a session begins that is `starting`, or `failed` and may start again. */
  startingFrom(checkpointIds: readonly string[]): Promise<ReadonlySet<string>>

  /** Ids of at most `limit` sessions that ended before this time. */
  expiredSessions(endedBefore: Date, limit: number): Promise<string[]>
  /** Deletes the sessions with their history, in several transactions. Unknown ids are ignored, so a repeat completes an interrupted call. */
  deleteSessions(ids: readonly string[]): Promise<void>
}

/** A session without its configuration and its artifacts. */
export interface SessionHead extends Omit<Session, 'agentConfig' | 'artifacts'> {
  /** The number of the newest stream event; 0 when there is none. */
  lastSequence: number
  /** What all its stream events hold, in bytes of their JSON text. */
  streamBytes: number
  /** The same of its messages and session events. */
  historyBytes: number
}

/** What the model gateway asks about with each call of a session. */
export interface MeteredSession extends Omit<Session, 'agentConfig' | 'artifacts'> {
  agentConfig: Pick<AgentConfig, 'model' | 'maxTokens' | 'maxCostUsd'>
}

/** What of a configuration can change. */
export type AgentConfigChange = {
  [Key in 'maxCostUsd' | 'maxTokens' | 'maxTurns' | 'checkpoints' | 'secretEnvs' | 'capsuleOnError']?:
    | AgentConfig[Key]
    | undefined
}

export interface Instructions {
  systemPrompt?: string
  skillPaths: string[]
}

/** What a session has said and done. */
export interface History {
  messages: Message[]
  events: SessionEvent[]
}

export type SessionReference = Pick<Session, 'id' | 'orgId' | 'sandboxId'>

export type Branch = 'in force' | 'all'

export interface TurnQuery {
  limit: number
  branch?: Branch
  /** Only turns before this one, by its message. */
  before?: string
  /** Only turns whose first event has at most this number. */
  begunBy?: number
}

export interface TurnFacts {
  /** The first characters of its message. */
  message: string
  /** The counters at the begin of the next turn by order, of any branch. Absent for the newest. */
  usageAfter?: Counters
  /** The newest point of origin `turn`. */
  point?: Omit<Point, 'origin' | 'turnId' | 'project'>
}

export interface TurnTotals {
  turns: number
  durationMs: number
  inputTokens: number
  outputTokens: number
  /** How many of them have a cost that is known, and the sum of it. */
  pricedTurns: number
  costNanoUsd: number
}

export type ForkReference = Pick<
  Session,
  'id' | 'keyId' | 'userId' | 'name' | 'status' | 'activity' | 'forkPoint' | 'archivedFor' | 'createdAt'
>

export interface RowPage {
  /** Id of the row before the first; from the beginning without it. */
  after?: string
  limit: number
}

export interface SessionQuery {
  orgId: string
  userId?: string
  /** Only those of it. */
  reach?: KeyReach
  /** Only those whose title, or one of whose messages, holds this text in whatever case. */
  search?: string
  limit: number
  /** Of the sessions of one page together. */
  historyBytesMax?: number
  cursor?: string
}

export interface SessionChange {
  /** Apply only when the session has this status. */
  when?: SessionStatus
  /** Fields to set; `undefined` clears. `updatedAt` is set to now with every commit. */
  session?: {
    [Key in keyof Omit<Session, 'id' | 'orgId' | 'agentConfig' | 'createdAt' | 'updatedAt'>]?: Session[Key] | undefined
  }
  /** Added to the session's counters; with a cost that is not known the session's cost is not known either. */
  usage?: AddedUsage
  addMessages?: Message[]
  setMessages?: { id: string; state: MessageState }[]
  addEvents?: SessionEvent[]
  addStream?: StreamEvent['data'][]
  /** What a request makes by this change, under which id; see `createSession`. */
  made?: { creation: Creation; id: string }
  /** Begins and ends of turns, in their order. */
  turns?: TurnChange[]
  addPoint?: Point
  /** Makes the branch of its turn the one in force. */
  rewind?: Omit<Rewind, 'event'>
}

/** `eventsBefore`: how many of the stream events of the change come before it. */
export type TurnChange =
  | { type: 'begun'; messageId: string; parentId: string | undefined; eventsBefore: number }
  | { type: 'ended'; messageId: string; subtype: string; preview: 'ready' | 'none'; eventsBefore: number }

export interface AddedUsage extends Pick<
  Session,
  'inputTokens' | 'cacheReadTokens' | 'cacheWriteTokens' | 'outputTokens'
> {
  costNanoUsd: number | undefined
}

export interface Committed {
  /** Without its configuration and its artifacts, so that a commit need not read them. */
  session: Omit<Session, 'agentConfig' | 'artifacts'>
  /** The number of the newest stream event; of those that the commit has added, which follow one another, the last. */
  lastSequence: number
}
