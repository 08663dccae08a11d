import type { PolicyInput, VolumeMount } from '../sandbox/index.ts'
import type { ErrorCode } from '../errors.ts'
import { newId } from '../lib/id.ts'
import { costNanoUsd, usd, type ModelPrice } from '../lib/model-price.ts'

/** `status` on the wire; nothing else exists there. */
export type SessionStatus = 'running' | 'ended'

/**
 * What a running session does:
 *
 *     starting ──► idle ⇄ working        any ──► failed (the next message tries again)        any ──► ended
 */
export type SessionActivity = 'starting' | 'working' | 'idle' | 'failed' | 'ended'

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
}

export type MessageRole = 'user' | 'assistant' | 'system'
export type MessageState = 'queued' | 'started' | 'consumed' | 'cancelled'

export interface Message {
  id: string
  role: MessageRole
  content: string
  /** Of user messages only. */
  state?: MessageState
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
