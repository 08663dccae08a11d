import type { CreateOptions } from '../lib/creation.ts'
import type { AccessScope, AccessToken, AccessUse, SessionAccess } from './access-token.ts'
import type { ExportRecord } from './history.ts'
import type { AgentConfig, Message, Session, SessionEvent, StreamEvent } from './session.ts'

/**
 * Agent sessions, strictly on top of the sandbox service. Each call names the organisation that asks; a session that it
 * does not own, or that the given `userId` does not own, is `not_found` (for messages and interrupts: `forbidden`).
 */
export interface SessionService {
  /** Returns before the sandbox has booted; ids are allocated already. Throws what its volumes would make a sandbox throw now. */
  create(orgId: string, input: CreateSession, options?: CreateViewOptions): Promise<SessionView>
  get(orgId: string, sessionId: string, userId?: string, options?: ViewOptions): Promise<SessionView>
  list(
    orgId: string,
    query: ListSessions,
    options?: ViewOptions,
  ): Promise<{ items: SessionView[]; nextCursor?: string }>
  /** Kills the sandbox and ends the session. Repeating it is harmless. */
  delete(orgId: string, sessionId: string, userId?: string): Promise<void>
  /** Queues a message for the agent. Throws `forbidden` for another user, `conflict` when the session has ended. */
  sendMessage(
    orgId: string,
    sessionId: string,
    input: { message: string; userId: string },
    options?: CreateViewOptions,
  ): Promise<SessionView>
  /**
   * Takes a message back before its turn. Throws `not_found` for an unknown one, and `conflict` for one that is not `queued`,
   * a cancelled one included.
   */
  cancelMessage(
    orgId: string,
    sessionId: string,
    messageId: string,
    userId?: string,
    options?: ViewOptions,
  ): Promise<SessionView>
  /**
   * Ends the current turn with a `result` of subtype `interrupted`, within a second whatever the agent does; without a turn
   * it does nothing.
   */
  interrupt(orgId: string, sessionId: string, userId: string): Promise<void>

  /**
   * A new session with conversation and files of this moment. Throws `forbidden` for another user, `conflict` unless the session
   * is idle and its sandbox writes no volume, and what a checkpoint of its sandbox throws.
   */
  fork(orgId: string, sessionId: string, userId: string, options?: CreateViewOptions): Promise<SessionView>

  /**
   * Gives a session whose sandbox was lost another one, from the checkpoint or bare; messages that wait go on in it. Throws
   * `forbidden` for another user, `conflict` while the sandbox is there or when the session has ended.
   */
  restart(
    orgId: string,
    sessionId: string,
    input: { userId: string; checkpointId?: string },
    options?: CreateViewOptions,
  ): Promise<SessionView>

  /**
   * A token for this session alone, for clients that must not have the API key. Throws `forbidden` for another user, `conflict`
   * when the session has ended.
   */
  createToken(orgId: string, sessionId: string, input: CreateToken): Promise<AccessToken>
  /** Whose session the token opens. Throws as `AccessTokens.check`. */
  access(token: string, sessionId: string, use: AccessUse): Promise<SessionAccess>

  /**
   * Opens the event stream after a sequence number. Throws `not_found`. Iteration yields every event once, in order,
   * stored ones first, and ends after the session has ended and all was yielded, or when `signal` aborts.
   */
  stream(orgId: string, sessionId: string, options: StreamOptions): Promise<SessionStream>

  /** All of a session. Throws `not_found`. */
  export(orgId: string, sessionId: string, userId?: string): Promise<SessionExport>
}

export interface CreateToken {
  userId: string
  scope: AccessScope
  /** 1 to 86 400; default 3600. */
  ttlSeconds?: number
}

export interface StreamOptions {
  userId?: string
  /** Only events above this number. */
  after: number
  signal: AbortSignal
}

export interface SessionExport {
  /** Without messages and events, which are among the records. */
  view: SessionView
  /** Read page by page as they are asked for. */
  records: AsyncIterable<ExportRecord>
}

/** Events in order, in arrays of those that are known together. */
export interface SessionStream extends AsyncIterable<readonly StreamEvent[]> {
  /** The session has ended and `after` is at or past its last event: the answer is 204. */
  readonly exhausted: boolean
}

export interface SessionView {
  session: Session
  messages: Message[]
  events: SessionEvent[]
  previewUrl: string
  /** What the session's model calls have cost, in US dollars; absent while the price of its model is unknown. */
  costUsd?: number
}

export interface ViewOptions {
  /**
   * Settles when the view is needed no more: it was sent, or its client is gone. Until then large views take of what an organisation
   * may have in memory, and those beyond it wait before they are read.
   */
  sent?: Promise<unknown>
}

export type CreateViewOptions = CreateOptions & ViewOptions

export interface ListSessions {
  userId?: string
  /** See `SessionQuery`. */
  search?: string
  limit?: number
  cursor?: string
}

export interface CreateSession extends Pick<Session, 'userId' | 'userEmail' | 'userName' | 'checkpointId'> {
  prompt: string
  agentConfig?: CreateAgentConfig
  volumes?: AgentConfig['volumes']
}

export type CreateAgentConfig = Partial<Omit<AgentConfig, 'volumes'>>
