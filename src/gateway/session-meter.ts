import { ServiceError } from '../errors.ts'
import type { Log } from '../lib/log.ts'
import { costNanoUsd, type ModelPrice, type TokenUsage } from '../lib/model-price.ts'
import { type SessionStore, spentBudget } from '../session/index.ts'

/** The session behind a token. */
export interface GatewayIdentity {
  orgId: string
  sessionId: string
  sandboxId: string
  /** Models of the session: `anthropic/claude-sonnet-4-5`, `openai/gpt-5`, `demo`. Absent: all. */
  allowedModels?: readonly string[]
}

export interface RecordedUsage extends TokenUsage {
  /** With its provider, as in `GatewayIdentity.allowedModels`. */
  model: string
  /** The answer did not report its usage, or broke off: a guess, and rather too high. */
  estimated: boolean
}

export interface SessionMeter {
  /**
   * The running session of a token, by the hex SHA-256 of the token; `undefined` for an unknown token. Called once per request, so a
   * token stops working as soon as its session ends.
   */
  identify(tokenSha256: string): Promise<GatewayIdentity | undefined>

  /**
   * Called before each request is forwarded, after all earlier usage was written. Throws a `ServiceError` when the budget is spent:
   * any code but `unavailable` and `internal_error`, which are answered as such. The agent then gets the code `budget_exceeded`
   * and its turn ends.
   */
  checkBudget(sessionId: string): Promise<void>

  /** Called for each answer with a cost, also when it broke off or when its client had left. */
  record(sessionId: string, usage: RecordedUsage): Promise<void>
}

export function sessionMeter(
  sessions: Pick<SessionStore, 'metered' | 'meteredByGatewayToken' | 'commit'>,
  prices: ReadonlyMap<string, ModelPrice>,
): SessionMeter {
  return {
    async identify(tokenSha256) {
      const session = await sessions.meteredByGatewayToken(tokenSha256)
      if (session?.status !== 'running') return undefined
      const { id, orgId, sandboxId, agentConfig } = session
      return { orgId, sessionId: id, sandboxId, allowedModels: [agentConfig.model] }
    },

    async checkBudget(sessionId) {
      const session = await sessions.metered(sessionId)
      const spent = session && spentBudget(session, prices)
      if (spent !== undefined) throw new ServiceError('forbidden', spent)
    },

    async record(sessionId, { model, ...tokens }) {
      const { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens } = tokens
      const price = prices.get(model)
      const cost = price && costNanoUsd(price, tokens)
      const usage = { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens, costNanoUsd: cost }
      await sessions.commit(sessionId, { usage })
    },
  }
}

/** Records usage in the background. A client can call again before its usage is written, so the budget check waits for that write. */
export class UsageRecorder {
  readonly #meter: SessionMeter
  readonly #log: Log
  /** The last write of each session, after all earlier ones. */
  readonly #pending = new Map<string, Promise<void>>()

  constructor(meter: SessionMeter, log: Log) {
    this.#meter = meter
    this.#log = log
  }

  /** Logs a failed write. */
  record(sessionId: string, usage: RecordedUsage): void {
    if (usage.inputTokens + usage.outputTokens === 0) return
    const write = this.#meter
      .record(sessionId, usage)
      .catch((error: unknown) => this.#log.error({ err: error, sessionId }, 'usage was not recorded'))
    const written = Promise.all([this.#pending.get(sessionId), write]).then(() => {
      if (this.#pending.get(sessionId) === written) this.#pending.delete(sessionId)
    })
    this.#pending.set(sessionId, written)
  }

  /** Throws as `SessionMeter.checkBudget` does. */
  async checkBudget(sessionId: string): Promise<void> {
    await this.#pending.get(sessionId)
    await this.#meter.checkBudget(sessionId)
  }

  /** Resolves when no write is pending. */
  async written(): Promise<void> {
    await Promise.all(this.#pending.values())
  }
}
