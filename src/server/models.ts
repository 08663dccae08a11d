import { z } from 'zod'
import type { ModelPrice } from '../lib/model-price.ts'

export const modelPattern = /^(demo|(anthropic|openai)\/\S+)$/

const modelsMax = 1000

/** A dollar per token. More is a typing error, and costs must stay safe integers. */
const ratePerMillionMax = 1_000_000

const rate = z.number().min(0).max(ratePerMillionMax)
const priceTable = z.record(
  z.string().regex(modelPattern, 'must be "demo" or provider/model'),
  z.strictObject({
    inputPerMillion: rate,
    cacheReadPerMillion: rate.optional(),
    cacheWritePerMillion: rate.optional(),
    outputPerMillion: rate,
  }),
)
type GivenPrice = z.output<typeof priceTable>[string]

/** `ATOLL_MODELS`: models, comma-separated. The default model is always among them and comes first. */
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
const demoPrice: GivenPrice = { inputPerMillion: 0, outputPerMillion: 0 }

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
  if (parsed.success) {
    const given = Object.entries({ demo: demoPrice, ...parsed.data })
    return new Map(given.map(([model, price]) => [model, wholePrice(model, price)]))
  }
  for (const issue of parsed.error.issues) {
    const place = issue.path.map(String).join('.')
    const message = issue.code === 'invalid_key' ? issue.issues[0]?.message : issue.message
    faults.push(`ATOLL_PRICES ${place === '' ? '' : `${place}: `}${message ?? 'is wrong'}`)
  }
  return new Map()
}

/**
 * Fills in the missing rates. A cache write costs 1.25 times the fresh input at Anthropic and, since GPT-5.6, at OpenAI. The discount of
 * other APIs for a cache read is unknown, so it costs as much as fresh input.
 */
function wholePrice(model: string, given: GivenPrice): ModelPrice {
  const { inputPerMillion, outputPerMillion } = given
  const cacheRead = model.startsWith('anthropic/') ? inputPerMillion / 10 : inputPerMillion
  return {
    inputPerMillion,
    cacheReadPerMillion: given.cacheReadPerMillion ?? cacheRead,
    cacheWritePerMillion: given.cacheWritePerMillion ?? inputPerMillion * 1.25,
    outputPerMillion,
  }
}
