/** Buckets kept at once; beyond it the one used longest ago is forgotten, which at worst refills it. */
const bucketsMax = 10_000

export interface TokenBucketOptions {
  /** Tokens that come back per second. */
  perSecond: number
  /** Tokens that a rested bucket holds. */
  burst: number
  /** Milliseconds of a clock that never goes back. */
  now?: () => number
}

/**
 * Token buckets by name: each request takes one token, tokens return at a steady rate up to the burst. In contrast to a
 * fixed window, two bursts never fall together at a window's edge.
 */
export class TokenBuckets {
  readonly #options: Required<TokenBucketOptions>
  /** In order of last use. */
  readonly #buckets = new Map<string, { tokens: number; atMs: number }>()

  constructor(options: TokenBucketOptions) {
    this.#options = { now: () => performance.now(), ...options }
  }

  /** Takes a token and returns 0, or returns the milliseconds after which there will be one. */
  take(name: string): number {
    const { perSecond, burst, now } = this.#options
    const atMs = now()
    const bucket = this.#buckets.get(name) ?? { tokens: burst, atMs }
    const tokens = Math.min(burst, bucket.tokens + ((atMs - bucket.atMs) / 1000) * perSecond)
    this.#buckets.delete(name)
    this.#buckets.set(name, { tokens: tokens >= 1 ? tokens - 1 : tokens, atMs })
    if (this.#buckets.size > bucketsMax) this.#forgetOldest()
    return tokens >= 1 ? 0 : ((1 - tokens) / perSecond) * 1000
  }

  #forgetOldest(): void {
    const oldest = this.#buckets.keys().next()
    if (!oldest.done) this.#buckets.delete(oldest.value)
  }
}
