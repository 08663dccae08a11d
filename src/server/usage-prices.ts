import { z } from 'zod'
import { type ComputePrices, noPrices } from '../organisation/usage/index.ts'
import { readJson } from './limits.ts'

const usd = z.number('must be a number of USD').min(0, 'must not be below 0').exactOptional()
const prices = z.strictObject({ memoryGbHour: usd, cpuHour: usd, diskGbHour: usd, egressGb: usd })

/** `ATOLL_USAGE_PRICES`: a JSON object of USD; what has no price costs nothing. */
export function readUsagePrices(text: string, faults: string[]): ComputePrices {
  return { ...noPrices, ...readJson('ATOLL_USAGE_PRICES', text, prices, faults) }
}
