/** Beyond this number the least recently used bucket is dropped, which at worst refills it. */
const bucketsMax = 10_000

export interface TokenBucketOptions {
  /** Tokens that return per second. */
  perSecond: number
  /** Tokens of a full bucket. */
  burst: number
  /** Milliseconds of a monotonic clock. */
  now?: () => number
}

/**
 * Token buckets by name. A request takes one token, and tokens return at a steady rate up to the burst. Unlike a fixed window, two bursts
 * cannot meet at the edge of a window.
 */
export class TokenBuckets {
  readonly #options: Required<TokenBucketOptions>
  /** Least recently used first. */
  readonly #buckets = new Map<string, { tokens: number; atMs: number }>()

  constructor(options: TokenBucketOptions) {
    this.#options = { now: () => performance.now(), ...options }
  }

  /** Takes a token and returns 0, or returns the milliseconds until the next token. A name may have a rate of its own. */
  take(name: string, rate: Partial<Pick<TokenBucketOptions, 'perSecond' | 'burst'>> = {}): number {
    const { perSecond, burst, now } = { ...this.#options, ...rate }
    const atMs = now()
    const bucket = this.#buckets.get(name) ?? { tokens: burst, atMs }
    const tokens = Math.min(burst, bucket.tokens + ((atMs - bucket.atMs) / 1000) * perSecond)
    this.#buckets.delete(name)
    this.#buckets.set(name, { tokens: tokens >= 1 ? tokens - 1 : tokens, atMs })
    const [leastRecent] = this.#buckets.keys()
    if (this.#buckets.size > bucketsMax && leastRecent !== undefined) this.#buckets.delete(leastRecent)
    return tokens >= 1 ? 0 : ((1 - tokens) / perSecond) * 1000
  }
}
