/** The tokens that calls of a model have used. */
export interface TokenUsage {
  /** All input: fresh, read from a cache, and written to a cache. */
  inputTokens: number
  /** Part of the input. */
  cacheReadTokens: number
  /** Part of the input. */
  cacheWriteTokens: number
  /** Part of the cache writes: kept for an hour instead of minutes, at a higher price. */
  longCacheWriteTokens: number
  outputTokens: number
}

/** Prices of a million tokens, in US dollars. */
export interface ModelPrice {
  inputPerMillion: number
  cacheReadPerMillion: number
  cacheWritePerMillion: number
  outputPerMillion: number
}

/** Anthropic charges 2 times the price of fresh input for a cache of an hour, and 1.25 times for five minutes. */
const longCacheWriteWeight = 2 / 1.25

const nanosPerUsd = 1_000_000_000

/** In billionths of a US dollar: the sum of integers does not depend on their order. */
export function costNanoUsd(price: ModelPrice, usage: TokenUsage): number {
  const { inputTokens, cacheReadTokens, cacheWriteTokens, longCacheWriteTokens, outputTokens } = usage
  const fresh = inputTokens - cacheReadTokens - cacheWriteTokens
  const written = cacheWriteTokens - longCacheWriteTokens + longCacheWriteTokens * longCacheWriteWeight
  const millionths =
    fresh * price.inputPerMillion +
    cacheReadTokens * price.cacheReadPerMillion +
    written * price.cacheWritePerMillion +
    outputTokens * price.outputPerMillion
  return Math.round(millionths * 1000)
}

export function usd(nanoUsd: number): number {
  return nanoUsd / nanosPerUsd
}

export function noTokens(): TokenUsage {
  return { inputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0, longCacheWriteTokens: 0, outputTokens: 0 }
}

export function addTokens(sum: TokenUsage, more: TokenUsage): void {
  sum.inputTokens += more.inputTokens
  sum.cacheReadTokens += more.cacheReadTokens
  sum.cacheWriteTokens += more.cacheWriteTokens
  sum.longCacheWriteTokens += more.longCacheWriteTokens
  sum.outputTokens += more.outputTokens
}
