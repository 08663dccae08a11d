import type { CheckpointKind, PolicyInput, VolumeMount } from '../sandbox/index.ts'
import type { ErrorCode } from '../errors.ts'
import { newId } from '../lib/id.ts'
import { costNanoUsd, usd, type ModelPrice } from '../lib/model-price.ts'

/** `status` on the wire; nothing else exists there. */
export type SessionStatus = 'running' | 'ended'

/**
 * What a running session does:
 *
 *     starting ──► idle ⇄ working        any ──► failed (the next message tries again)        any ──► ended
 *                    paused (its budget is spent; messages wait until that is raised)
 */
export type SessionActivity = 'starting' | 'working' | 'idle' | 'paused' | 'failed' | 'ended'

export interface Session {
  id: string
  orgId: string
  /** The installation whose host runs it; see `Sandbox.hostId`. */
  hostId?: string
  /** The key that made it. The store fills it in. */
  keyId?: string
  /** Stands for the id in requests. Unique in its organisation until the session ends. */
  name?: string
  /** The owner. */
  userId: string
  userEmail?: string
  userName?: string
  status: SessionStatus
  activity: SessionActivity
  sandboxId: string
  title: string
  framework: string
  /** Newest first. */
  artifacts: Artifact[]
  agentConfig: AgentConfig
  /** Start from this checkpoint instead of from the image. */
  checkpointId?: string
  /** The session that it goes on from; its sandbox has that one's files. */
  forkedFrom?: string
  /** The checkpoint was made for this fork alone, of this sandbox, and is to be removed. */
  forkCheckpointOf?: string
  /** SHA-256 in hex of the token with which this session's agent speaks to the model gateway. */
  gatewayTokenHash: string
  /** Exec session of the agent process, once started. */
  agentProcessId?: string
  /** How far the agent's output has been taken in: bytes of its log. */
  agentOffset: number
  /** The message whose turn is to end, also after a restart of the server. */
  interruptedMessageId?: string
  /** The shortage that its next step waits out, and since when. */
  waitingFor?: ErrorCode
  waitingSince?: Date
  /** The number of in-place restores of its sandbox that it has accepted. */
  sandboxRestores: number
  /** The newest turn of the branch in force: its message. Absent before the first turn. */
  headTurnId?: string
  /** A turn that has ended, whose checkpoint is to be taken before the next one begins. */
  unsavedTurnId?: string
  /** A rewind that is decided and has to be carried out before anything else. */
  pendingRewind?: PendingRewind
  /** Why it is `paused`. */
  pausedFor?: 'budget'
  /** Why nobody needs it any more; a message takes that back. */
  archivedFor?: string
  /** Of a fork: the message of its source after whose turn it begins. */
  forkPoint?: string
  /** All that the model has read. */
  inputTokens: number
  /** Parts of the input: what came from a cache of the model API, and what went into one. */
  cacheReadTokens: number
  cacheWriteTokens: number
  outputTokens: number
  /**
   * The sum of what each call has cost when it was made, in billionths of a US dollar. Absent when that is not known of all of
   * them: the model had no price.
   */
  costNanoUsd?: number
  createdAt: Date
  updatedAt: Date
}

/** Positions and counters of a session in which no agent has run. */
export const unusedCounters = {
  agentOffset: 0,
  sandboxRestores: 0,
  inputTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 0,
  costNanoUsd: 0,
} satisfies Partial<Session>

/** What a rewind puts back: all, the sandbox under the conversation of the present, or the conversation in the sandbox of the present. */
export type RewindWhat = 'all' | 'machine' | 'conversation'

/** All that a server needs to complete a rewind that an earlier one has decided. */
export interface PendingRewind {
  what: RewindWhat
  /** The point that it goes to. */
  checkpointId: string
  kind: CheckpointKind
  /** The newest turn of the branch that is in force after it. */
  turnId?: string
  /** The number of the newest event at the point. */
  toEvent: number
  undoCheckpointId: string
  project: PointProject
  /** The session of the point, if that is a fork that is adopted. */
  adoptedFrom?: string
  /** The id that the newest turn of that fork gets in the session. Absent: it has had none. */
  adoptedTurnId?: string
  /** The first message that is left. */
  restoredMessageId?: string
  /** Messages that waited when it was decided: they are cancelled with it. */
  queuedIds?: string[]
}

/** What a session shows of its project, as kept with a point. */
export type PointProject = Pick<Session, 'artifacts' | 'framework'>

export interface Artifact {
  path: string
  summary: string
}

/** `agent_config` with its defaults applied. */
export interface AgentConfig {
  harness: string
  /** `provider/model` or `demo`. */
  model: string
  cwd: string
  systemPrompt?: string
  /** Absolute path in the sandbox → text. */
  skills: Record<string, string>
  allowedTools?: string[]
  maxTurns?: number
  maxTokens?: number
  /** US dollars, for the whole session. */
  maxCostUsd?: number
  envs: Record<string, string>
  /** Of its sandbox, in place of those of a checkpoint. */
  volumes?: readonly VolumeMount[]
  /** Name of the secret store of its sandbox. */
  secretStore?: string
  /** What its sandbox may reach. */
  egress?: PolicyInput
  /** Of what a checkpoint is taken after each turn. Absent: what the server takes. */
  checkpoints?: TurnCheckpoints
  /** Names of `envs` that no fork of another person gets. */
  secretEnvs?: string[]
  /** The checkpoint from whose disk alone, and without secrets, its sandbox starts: that of another person's session. */
  handedOverIn?: string
  /** A turn that fails makes a capsule of scope `read`. */
  capsuleOnError?: boolean
}

/** Disk and memory, the disk alone, or nothing. */
export type TurnCheckpoints = 'turn' | 'disk' | 'none'

export type MessageRole = 'user' | 'assistant' | 'system'
export type MessageState = 'queued' | 'started' | 'consumed' | 'cancelled'

export interface Message {
  id: string
  role: MessageRole
  content: string
  /** Of user messages only. */
  state?: MessageState
  /** The user message whose turn said it: its own id for one that has had a turn. */
  turnId?: string
  /** A rewind has left its turn. */
  isLeft?: boolean
  createdAt: Date
}

export type SessionEventType =
  | 'session_started'
  | 'sandbox_ready'
  | 'agent_ready'
  | 'turn_started'
  | 'turn_completed'
  | 'preview_ready'
  | 'sandbox_hibernated'
  | 'sandbox_resumed'
  | 'session_rewound'
  | 'session_paused'
  | 'session_continued'
  | 'session_failed'
  | 'session_ended'

/** An item of `Session.events`; the stream's events are {@link StreamEvent}. */
export interface SessionEvent {
  id: string
  type: SessionEventType
  level: 'info' | 'warning' | 'error'
  message: string
  createdAt: Date
}

/** The first event of a session. */
export function startedEvent(message: string, createdAt: Date): SessionEvent {
  return { id: newId('evt_'), type: 'session_started', level: 'info', message, createdAt }
}

/** One event of the stream: its number in the session (1, 2, 3 …) and the JSON object that clients get. */
export interface StreamEvent {
  sequence: number
  data: Record<string, unknown> & { type: string }
  createdAt: Date
}

const texts = new WeakMap<StreamEvent, string>()

/** An event as it is stored. The first read of `data` parses it; passing the event on does not. */
export function storedEvent(sequence: number, text: string, createdAt: Date): StreamEvent {
  let parsed: StreamEvent['data'] | undefined
  const event: StreamEvent = {
    sequence,
    get data() {
      return (parsed ??= JSON.parse(text) as StreamEvent['data'])
    },
    createdAt,
  }
  texts.set(event, text)
  return event
}

/** The JSON text of the data, on one line. */
export function eventText(event: StreamEvent): string {
  return texts.get(event) ?? JSON.stringify(event.data)
}

type Used = Pick<Session, 'inputTokens' | 'cacheReadTokens' | 'cacheWriteTokens' | 'outputTokens' | 'costNanoUsd'>

/**
 * What the calls of a session have cost in US dollars: the sum of what each cost when it was made. Where that is not known of
 * all of them, it is what their tokens would cost now, and `undefined` without a price.
 */
export function sessionCostUsd(session: Used, price: ModelPrice | undefined): number | undefined {
  if (session.costNanoUsd !== undefined) return usd(session.costNanoUsd)
  // The lifetime of what was written to a cache is not kept: assume the dearest.
  return price && usd(costNanoUsd(price, { ...session, longCacheWriteTokens: session.cacheWriteTokens }))
}

type Budgeted = Used & { agentConfig: Pick<AgentConfig, 'model' | 'maxTokens' | 'maxCostUsd'> }

/** Which limit a session has used up, in words. A cost that is not known counts as spent: a limit that nobody can check is no limit. */
export function spentBudget(
  session: Budgeted,
  prices: ReadonlyMap<string, ModelPrice> = new Map(),
): string | undefined {
  const { model, maxTokens, maxCostUsd } = session.agentConfig
  const used = session.inputTokens + session.outputTokens
  if (maxTokens !== undefined && used >= maxTokens) return `the session has used ${used} of its ${maxTokens} tokens`
  if (maxCostUsd === undefined) return undefined
  const price = prices.get(model)
  const cost = price && sessionCostUsd(session, price)
  // The operator may remove a price later.
  if (cost === undefined) return `the price of ${model} is unknown`
  return cost >= maxCostUsd ? `the session has cost ${cost} of ${maxCostUsd} USD` : undefined
}
