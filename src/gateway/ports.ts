import type { TokenUsage } from '../lib/model-price.ts'

/** What the gateway asks of those who know sessions. `server/` wires it. */
export interface GatewayTokens {
  /**
   * Whose token this is, by the hex SHA-256 of it; `undefined` for an unknown one and for one that died with its session.
   * Called once per request, so that a token stops working at once.
   */
  resolve(tokenSha256: string): Promise<GatewayIdentity | undefined>
}

export interface GatewayIdentity {
  orgId: string
  sessionId: string
  sandboxId: string
  /** What the session may use: `anthropic/claude-sonnet-4-5`, `openai/gpt-5`, `demo`. Absent: all. */
  allowedModels?: readonly string[]
}

export interface GatewayUsage {
  /**
   * Called before each request is forwarded, and not before everything recorded until then is written. Throws a
   * `ServiceError` when the budget is spent (any code but `unavailable` and `internal_error`, which are told as such): the
   * agent gets code `budget_exceeded` and its turn ends.
   */
  checkBudget(sessionId: string): Promise<void>

  /** Called for each answer that cost something, also for one that broke off, and for one that nobody waited for. */
  record(sessionId: string, usage: RecordedUsage): Promise<void>
}

export interface RecordedUsage extends TokenUsage {
  /** With its provider, as in `GatewayIdentity.allowedModels`. */
  model: string
  /** The answer did not say what it cost, or broke off: a guess that is rather too high. */
  estimated: boolean
}

/** A model API behind the gateway. */
export interface Upstream {
  /** For Anthropic's wire without `/v1`, for OpenAI's with it. */
  baseUrl: string
  /** Absent for servers that want none. */
  apiKey?: string
}

/** The part of a pino logger that the gateway uses. It is never given tokens, keys or bodies. */
export interface GatewayLog {
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

export interface GatewayLimits {
  bodyBytesMax: number
  /** Request bodies held at one time, of all sessions together. Half of it is for one organisation, a quarter for a session. */
  heldBytesMax: number
  /** The demo model runs in this process, and reads more than the gateway does. */
  demoBytesMax: number
  demoValuesMax: number
  /** Requests of one session at one time. */
  concurrentPerSession: number
  connectionsMax: number
  /** How long a request may take to arrive. */
  requestMs: number
  /** Until the upstream's first byte: long, since an answer that is not streamed thinks first. */
  upstreamFirstByteMs: number
  /** Between two bytes of an upstream's answer. */
  upstreamIdleMs: number
  /** How long failures that may pass are tried again (docs/agent.md § The model gateway). */
  retryMs: number
  retryPauseFirstMs: number
  retryPauseMaxMs: number
}

export const defaultGatewayLimits: GatewayLimits = {
  bodyBytesMax: 32 * 1024 * 1024,
  heldBytesMax: 512 * 1024 * 1024,
  // No more is taken by aimock.
  demoBytesMax: 10 * 1024 * 1024,
  demoValuesMax: 100_000,
  concurrentPerSession: 8,
  connectionsMax: 4096,
  requestMs: 60_000,
  upstreamFirstByteMs: 10 * 60_000,
  upstreamIdleMs: 5 * 60_000,
  retryMs: 60_000,
  retryPauseFirstMs: 500,
  retryPauseMaxMs: 8000,
}

export const anthropicBaseUrlDefault = 'https://api.anthropic.com'
export const openaiBaseUrlDefault = 'https://api.openai.com/v1'
