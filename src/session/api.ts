import type { KeyReach } from '../lib/key-reach.ts'
import type { CreateOptions } from '../lib/creation.ts'
import type { AccessScope } from './access-token.ts'
import type { ExportRecord } from './history.ts'
import type { Branch } from './store.ts'
import type { AgentConfig, Message, Session, SessionEvent } from './session.ts'
import type { StreamBatch } from './stream.ts'

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
  /** With what the model writes before its answer is whole. Default false. */
  drafts?: boolean
}

export interface SessionExport {
  /** Without messages and events, which are among the records. */
  view: SessionView
  /** Read page by page as they are asked for. */
  records: AsyncIterable<ExportRecord>
}

/** Events in order, in arrays of those that are known together, and the drafts between them that were asked for. */
export interface SessionStream extends AsyncIterable<StreamBatch> {
  /** The number after which it begins: at most that of the newest event. */
  readonly after: number
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

export interface GetViewOptions extends ViewOptions {
  /** Whose messages it has. Default: the branch in force. */
  branch?: Branch
}

export type CreateViewOptions = CreateOptions & ViewOptions

/** `name`: of the fork. */
export type ForkSessionOptions = CreateViewOptions & Pick<Session, 'name'>

export interface ListSessions {
  userId?: string
  reach?: KeyReach
  /** See `SessionQuery`. */
  search?: string
  limit?: number
  cursor?: string
}

export interface CreateSession extends Pick<Session, 'name' | 'userId' | 'userEmail' | 'userName' | 'checkpointId'> {
  prompt: string
  agentConfig?: CreateAgentConfig
  volumes?: AgentConfig['volumes']
  secretStore?: AgentConfig['secretStore']
  egress?: AgentConfig['egress']
}

export type CreateAgentConfig = Partial<Omit<AgentConfig, 'volumes' | 'secretStore' | 'egress'>>
