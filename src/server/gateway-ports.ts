import { ServiceError } from '../errors.ts'
import { costNanoUsd, type ModelPrice } from '../lib/model-price.ts'
import type { GatewayTokens, GatewayUsage } from '../gateway/index.ts'
import { sessionCostUsd, type SessionStore } from '../session/index.ts'

/** Answers the model gateway from the sessions: whose token it is, whether there is budget left, and what was used. */
export function gatewayPorts(
  sessions: SessionStore,
  prices: ReadonlyMap<string, ModelPrice>,
): { tokens: GatewayTokens; usage: GatewayUsage } {
  return {
    tokens: {
      async resolve(tokenSha256) {
        const session = await sessions.meteredByGatewayToken(tokenSha256)
        if (session?.status !== 'running') return undefined
        const { id, orgId, sandboxId, agentConfig } = session
        return { orgId, sessionId: id, sandboxId, allowedModels: [agentConfig.model] }
      },
    },
    usage: {
      async checkBudget(sessionId) {
        const session = await sessions.metered(sessionId)
        if (session === undefined) return
        const { model, maxTokens, maxCostUsd } = session.agentConfig
        const used = session.inputTokens + session.outputTokens
        if (maxTokens !== undefined && used >= maxTokens) {
          throw new ServiceError('forbidden', `the session has used ${used} of its ${maxTokens} tokens`)
        }
        if (maxCostUsd === undefined) return
        const price = prices.get(model)
        const cost = price && sessionCostUsd(session, price)
        // The operator has taken the price away since: a limit that nobody can check must not turn into none.
        if (cost === undefined) throw new ServiceError('forbidden', `the price of ${model} is unknown`)
        if (cost >= maxCostUsd) throw new ServiceError('forbidden', `the session has cost ${cost} of ${maxCostUsd} USD`)
      },
      async record(sessionId, { model, ...used }) {
        const { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens } = used
        const price = prices.get(model)
        const cost = price && costNanoUsd(price, used)
        const usage = { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens, costNanoUsd: cost }
        await sessions.commit(sessionId, { usage })
      },
    },
  }
}
