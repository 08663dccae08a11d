import { z } from 'zod'
import type { ModelPrice } from '../lib/model-price.ts'

export const modelPattern = /^(demo|(anthropic|openai)\/\S+)$/

const modelsMax = 1000

const priceTable = z.record(
  z.string().regex(modelPattern, 'must be "demo" or provider/model'),
  z.strictObject({ inputPerMillion: z.number().min(0), outputPerMillion: z.number().min(0) }),
)

/** `ATOLL_MODELS`: models with commas between. The default model is always among them, and comes first. */
export function readModels(text: string, defaultModel: string, faults: string[]): string[] {
  const listed = text
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '')
  if (listed.length > modelsMax) faults.push(`ATOLL_MODELS must name at most ${modelsMax} models`)
  for (const name of listed) {
    if (!modelPattern.test(name)) {
      faults.push(`ATOLL_MODELS ${name} must be "demo" or provider/model with provider anthropic or openai`)
    }
  }
  return [...new Set([defaultModel, ...listed])]
}

/** The demo model runs in this process. */
const demoPrice = { inputPerMillion: 0, outputPerMillion: 0 }

/** `ATOLL_PRICES`: a JSON object from model to what a million tokens cost in US dollars. */
export function readPrices(text: string, faults: string[]): ReadonlyMap<string, ModelPrice> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    faults.push('ATOLL_PRICES must be JSON')
    return new Map()
  }
  const parsed = priceTable.safeParse(value)
  if (parsed.success) return new Map(Object.entries({ demo: demoPrice, ...parsed.data }))
  const [issue] = parsed.error.issues
  const place = issue?.path.map(String).join('.') ?? ''
  faults.push(`ATOLL_PRICES ${place === '' ? '' : `${place}: `}${issue?.message ?? 'is wrong'}`)
  return new Map()
}
