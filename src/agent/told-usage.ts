import type { TokenUsage } from '../lib/model-price.ts'
import type { AgentEventOf } from '../protocol/agent.ts'

/** As events tell it. */
export function toldUsage(usage: TokenUsage): AgentEventOf<'result'>['usage'] {
  return {
    input_tokens: usage.inputTokens,
    cache_read_input_tokens: usage.cacheReadTokens,
    cache_creation_input_tokens: usage.cacheWriteTokens,
    output_tokens: usage.outputTokens,
  }
}
