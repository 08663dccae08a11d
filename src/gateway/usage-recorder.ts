import type { GatewayLog, GatewayUsage, RecordedUsage } from './ports.ts'

/**
 * Writes down what was used, and knows per session what is on its way: a client has the end of an answer before its usage is
 * written, and its next call must not be measured against what was used before.
 */
export class UsageRecorder {
  readonly #usage: GatewayUsage
  readonly #log: GatewayLog
  readonly #pending = new Map<string, Set<Promise<void>>>()

  constructor(usage: GatewayUsage, log: GatewayLog) {
    this.#usage = usage
    this.#log = log
  }

  /** A failure to write it is logged. */
  record(sessionId: string, usage: RecordedUsage): void {
    if (usage.inputTokens + usage.outputTokens === 0) return
    const pending = this.#pending.get(sessionId) ?? new Set()
    this.#pending.set(sessionId, pending)
    const written = this.#usage
      .record(sessionId, usage)
      .catch((error: unknown) => this.#log.error({ err: error, sessionId }, 'usage was not recorded'))
      .finally(() => {
        pending.delete(written)
        if (pending.size === 0) this.#pending.delete(sessionId)
      })
    pending.add(written)
  }

  /** Throws as `GatewayUsage.checkBudget` does. */
  async checkBudget(sessionId: string): Promise<void> {
    await Promise.all([...(this.#pending.get(sessionId) ?? [])])
    await this.#usage.checkBudget(sessionId)
  }

  /** Resolves when nothing is on its way. */
  async written(): Promise<void> {
    await Promise.all([...this.#pending.values()].flatMap((pending) => [...pending]))
  }
}
