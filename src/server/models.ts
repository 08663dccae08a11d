import { z } from 'zod'
import type { ModelPrice } from '../lib/model-price.ts'
import { readJson } from './limits.ts'

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
  const given = readJson('ATOLL_PRICES', text, priceTable, faults)
  const priced = given === undefined ? [] : Object.entries({ demo: demoPrice, ...given })
  return new Map(priced.map(([model, price]) => [model, wholePrice(model, price)]))
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
