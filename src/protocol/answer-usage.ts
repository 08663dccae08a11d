import { addTokens, noTokens, type TokenUsage } from '../lib/model-price.ts'
import { isRecord } from '../lib/json.ts'
import type { ModelApi } from './agent.ts'

/** Far more than a model reads or writes in one call. A larger number is invalid and would overflow counters. */
export const tokensMax = 1_000_000_000

/**
 * The usage that an answer, or one event of a stream, reports; `undefined` when it reports none. Model APIs are trusted with
 * answers, not with numbers: an invalid number counts as absent.
 */
export function usageOf(wire: ModelApi, event: Record<string, unknown>): TokenUsage | undefined {
  const usages = [event, event['message'], event['response']].map((part) =>
    isRecord(part) ? part['usage'] : undefined,
  )
  const usage = usages.find(isRecord)
  if (!usage) return undefined
  switch (wire) {
    case 'anthropic-messages':
      return anthropicUsage(usage)
    case 'openai-completions':
      return openaiUsage(usage, ['prompt_tokens', 'prompt_tokens_details', 'completion_tokens'])
    case 'openai-responses':
      return openaiUsage(usage, ['input_tokens', 'input_tokens_details', 'output_tokens'])
  }
}

/** Combines the usage of two events of one stream. */
export function mergedUsage(earlier: TokenUsage | undefined, later: TokenUsage): TokenUsage {
  if (!earlier) return later
  // Take one input as a whole, so that its parts stay parts of it: the later event may repeat the input or add its cached tokens.
  const input = later.inputTokens >= earlier.inputTokens ? later : earlier
  const longCacheWriteTokens = Math.max(earlier.longCacheWriteTokens, later.longCacheWriteTokens)
  return {
    ...input,
    longCacheWriteTokens: Math.min(longCacheWriteTokens, input.cacheWriteTokens),
    outputTokens: Math.max(earlier.outputTokens, later.outputTokens),
  }
}

/** Anthropic's input excludes tokens read from or written to a cache. */
function anthropicUsage(usage: Record<string, unknown>): TokenUsage {
  const reported = anthropicSample(usage)
  const iterations = usage['iterations']
  if (!Array.isArray(iterations)) return reported
  // A compaction calls the model more than once, and the sum omits that call.
  const sum = noTokens()
  for (const iteration of iterations.filter(isRecord)) addTokens(sum, anthropicSample(iteration))
  const isMore = sum.inputTokens + sum.outputTokens > reported.inputTokens + reported.outputTokens
  return isMore && Math.max(sum.inputTokens, sum.outputTokens) <= tokensMax ? sum : reported
}

function anthropicSample(usage: Record<string, unknown>): TokenUsage {
  const creation = isRecord(usage['cache_creation']) ? usage['cache_creation'] : {}
  const longCacheWriteTokens = count(creation['ephemeral_1h_input_tokens'])
  const parts = longCacheWriteTokens + count(creation['ephemeral_5m_input_tokens'])
  const cacheWriteTokens = Math.max(count(usage['cache_creation_input_tokens']), parts)
  const cacheReadTokens = count(usage['cache_read_input_tokens'])
  return {
    inputTokens: count(usage['input_tokens']) + cacheReadTokens + cacheWriteTokens,
    cacheReadTokens,
    cacheWriteTokens,
    longCacheWriteTokens,
    outputTokens: count(usage['output_tokens']),
  }
}

/** OpenAI's input includes cached tokens, and its output includes the reasoning. */
function openaiUsage(
  usage: Record<string, unknown>,
  [input, details, output]: readonly [string, string, string],
): TokenUsage {
  const cached = isRecord(usage[details]) ? usage[details] : {}
  const inputTokens = count(usage[input])
  const cacheReadTokens = count(cached['cached_tokens'] ?? usage['prompt_cache_hit_tokens'])
  const cacheWriteTokens = count(cached['cache_write_tokens'])
  const isPart = cacheReadTokens + cacheWriteTokens <= inputTokens
  return {
    inputTokens,
    cacheReadTokens: isPart ? cacheReadTokens : 0,
    cacheWriteTokens: isPart ? cacheWriteTokens : 0,
    longCacheWriteTokens: 0,
    outputTokens: count(usage[output]),
  }
}

function count(value: unknown): number {
  return typeof value === 'number' && Number.isInteger(value) && value > 0 && value <= tokensMax ? value : 0
}
