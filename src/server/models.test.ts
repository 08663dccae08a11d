import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readConfig } from './config.ts'

test('models: only the default model is offered unless more are listed', () => {
  assert.deepEqual(readConfig({}).models, ['demo'])
  assert.deepEqual(readConfig({ ANTHROPIC_API_KEY: 'k' }).models, ['anthropic/claude-sonnet-4-5'])
  const env = { ANTHROPIC_API_KEY: 'k', ATOLL_MODELS: ' anthropic/claude-haiku-4-5 ,demo,demo' }
  assert.deepEqual(readConfig(env).models, ['anthropic/claude-sonnet-4-5', 'anthropic/claude-haiku-4-5', 'demo'])
})

test('models: an invalid name, or a provider without a key, is a fault', () => {
  assert.throws(() => readConfig({ ATOLL_MODELS: 'gpt-5' }), /ATOLL_MODELS gpt-5/)
  assert.throws(() => readConfig({ ATOLL_MODELS: 'openai/gpt-5' }), /ATOLL_MODELS openai\/gpt-5 needs OPENAI_API_KEY/)
})

test('prices: they are read by model, and faults are reported with their path', () => {
  const price = { inputPerMillion: 3, cacheReadPerMillion: 0.2, cacheWritePerMillion: 4, outputPerMillion: 15 }
  const { prices } = readConfig({ ATOLL_PRICES: JSON.stringify({ 'anthropic/claude-sonnet-4-5': price }) })
  assert.deepEqual(prices.get('anthropic/claude-sonnet-4-5'), price)
  const free = { inputPerMillion: 0, cacheReadPerMillion: 0, cacheWritePerMillion: 0, outputPerMillion: 0 }
  assert.deepEqual([...readConfig({}).prices], [['demo', free]], 'the demo model costs nothing')
  assert.deepEqual(readConfig({ ATOLL_PRICES: JSON.stringify({ demo: price }) }).prices.get('demo'), price)
  for (const [text, pattern] of [
    ['{', /ATOLL_PRICES must be JSON/],
    ['[]', /ATOLL_PRICES /],
    ['{"gpt-5":{"inputPerMillion":1,"outputPerMillion":1}}', /ATOLL_PRICES gpt-5: must be "demo" or provider\/model/],
    ['{"demo":{"inputPerMillion":-1,"outputPerMillion":1}}', /ATOLL_PRICES demo\.inputPerMillion/],
    ['{"demo":{"inputPerMillion":1}}', /ATOLL_PRICES demo\.outputPerMillion/],
    ['{"demo":{"inputPerMillion":"1","outputPerMillion":-1}}', /demo\.inputPerMillion: .*\n.*demo\.outputPerMillion: /],
    [
      '{"openai/gpt-5":{"inputPerMillion":1,"outputPerMillion":1,"cacheReadPerMillion":"0"}}',
      /ATOLL_PRICES openai\/gpt-5\.cacheReadPerMillion/,
    ],
    [
      '{"demo":{"inputPerMillion":1,"outputPerMillion":1,"cacheWritePerMillion":-1}}',
      /ATOLL_PRICES demo\.cacheWritePerMillion/,
    ],
    ['{"demo":{"inputPerMillion":1,"outputPerMillion":1,"cached":1}}', /ATOLL_PRICES demo.*cached/],
    ['{"demo":{"inputPerMillion":1,"outputPerMillion":1e9}}', /ATOLL_PRICES demo\.outputPerMillion/],
  ] as const) {
    assert.throws(() => readConfig({ ATOLL_PRICES: text }), pattern, text)
  }
})

test("rates of a cache that nobody gave are Anthropic's for its models, and never too low for others", () => {
  const given = { inputPerMillion: 4, outputPerMillion: 8 }
  const { prices } = readConfig({ ATOLL_PRICES: JSON.stringify({ 'anthropic/claude-x': given, 'openai/x': given }) })
  assert.deepEqual(prices.get('anthropic/claude-x'), { ...given, cacheReadPerMillion: 0.4, cacheWritePerMillion: 5 })
  assert.deepEqual(prices.get('openai/x'), { ...given, cacheReadPerMillion: 4, cacheWritePerMillion: 5 })
})
