import { costNanoUsd, usd, type ModelPrice } from '../lib/model-price.ts'
import type { Session } from './session.ts'

type Used = Pick<Session, 'inputTokens' | 'cacheReadTokens' | 'cacheWriteTokens' | 'outputTokens' | 'costNanoUsd'>

/**
 * What the calls of a session have cost in US dollars: the sum of what each cost when it was made. Where that is not known of
 * all of them, it is what their tokens would cost now, and `undefined` without a price.
 */
export function sessionCostUsd(session: Used, price: ModelPrice | undefined): number | undefined {
  if (session.costNanoUsd !== undefined) return usd(session.costNanoUsd)
  // How long a cache was to keep what was written is not known any more: as long as costs most.
  return price && usd(costNanoUsd(price, { ...session, longCacheWriteTokens: session.cacheWriteTokens }))
}
