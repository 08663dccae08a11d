import { availableParallelism } from 'node:os'
import type { BackOff } from '../lib/async/retry.ts'
import type { ModelPrice } from '../lib/model-price.ts'
import type { TurnCheckpoints } from './session.ts'

/** What the operator decides about sessions; `server/` reads it from the environment. */
export interface SessionConfig {
  /** `provider/model` or `demo`, for sessions that name none. */
  defaultModel: string
  /** What a session may name; without it, any model. */
  models?: readonly string[]
  /** By model; one without a price has costs that are unknown. */
  prices?: ReadonlyMap<string, ModelPrice>
  /** Names of known harnesses; one that ends in `:` stands for itself with a command behind it (`acp:`). */
  harnesses: readonly string[]
  /** Says what to do about a harness that the image lacks; `undefined` for one that it has. */
  missingHarness?: (harness: string) => string | undefined
  /** The agent's program inside the sandbox; the harness's name is added. */
  agentCommand?: readonly [string, ...string[]]
  /** The model gateway as the agent reaches it, such as `http://gateway.atoll.internal:4180`. */
  gatewayUrl: string
  /** The address of a preview host name, such as `http://sb-1-p3000.preview.localhost:4100`. */
  previewUrl: (hostname: string) => string
  /** Where clients read the capsule of a token. Default: the path alone. */
  capsuleUrl?: (token: string) => string
  /** Of what a checkpoint is taken after each turn of a session that does not say. Default: nothing. */
  checkpoints?: TurnCheckpoints
  limits?: Partial<SessionLimits>
  timings?: Partial<SessionTimings>
}

/** Bounds of the session half, queues and agents included (`ATOLL_LIMITS`). */
export const defaultSessionLimits = {
  /** Bytes of a prompt, and of a message. */
  messageBytesMax: 256 * 1024,
  systemPromptBytesMax: 1024 * 1024,
  skillFilesMax: 200,
  skillBytesMax: 10 * 1024 * 1024,
  /** Messages of one session that wait for the agent. */
  queuedMessagesMax: 100,
  /** Lines that an agent may write in one turn, and the bytes of their events. */
  turnLinesMax: 50_000,
  turnBytesMax: 64 * 1024 * 1024,
  /** Lines of an agent process outside of turns, and `error`s among them, until a turn has ended. */
  idleLinesMax: 1000,
  idleErrorsMax: 20,
  /** Bytes of all stream events that a session ever has. */
  streamBytesMax: 1024 * 1024 * 1024,
  /** Bytes of all messages and session events of a session, which every answer about it holds; also of a page of sessions. */
  historyBytesMax: 32 * 1024 * 1024,
  /** Checkpoints of turns, and before rewinds, of one session. */
  turnCheckpointsMax: 120,
  /** Agents that start at the same time, over all sessions: a start keeps a processor busy for about a second. */
  agentStartsAtOnce: Math.max(4, 2 * availableParallelism()),
  /** How long a session waits for a sandbox that lacks room, a place in the quota, or an answer, until it has failed. */
  shortageWaitMs: 600_000,
  /** Pause between attempts at what is lacking: doubles from the first to the last. */
  shortageFirstMs: 1000,
  shortageMaxMs: 30_000,
}

export type SessionLimits = typeof defaultSessionLimits

/** Pauses between attempts at an agent. */
export function retryBackOff({ retryFirstMs, retryMaxMs }: SessionTimings): BackOff {
  return { firstMs: retryFirstMs, maxMs: retryMaxMs }
}

export const defaultSessionTimings = {
  /** Back-off before a lost agent is attached to or started again: doubles from the first to the last. */
  retryFirstMs: 100,
  retryMaxMs: 5000,
  /** Of sessions that queue for the same capacity, the next one tries after this time, even while an attempt goes on. */
  shortageAttemptMs: 15_000,
  /** From the attachment to `configured`; an agent that needs longer is killed and started again. */
  agentStartMs: 60_000,
  /** How long a start holds its permit: an agent that hangs must not hold up those of others. */
  agentStartPermitMs: 15_000,
  /** From the interrupt to SIGINT, and from there to SIGKILL: a working harness ends its turn before. */
  interruptAskMs: 400,
  interruptSigintMs: 200,
  /** Between two looks at whether the preview's port listens. */
  previewPollMs: 1000,
  /** How long a deletion waits for a boot that it interrupted. */
  bootStopMs: 10_000,
  /** A stream that was notified of no change reads the store after this time. */
  streamPollMs: 15_000,
}

export type SessionTimings = typeof defaultSessionTimings

export const defaultAgentCommand: readonly [string, ...string[]] = ['node', '/.atoll/agent/app/src/agent/start.mjs']

/** The port of `previewUrl`. */
export const previewPort = 3000

/** Where relative skill paths lie and where the agent looks for skills. */
export const skillsDir = '/workspace/agent'
