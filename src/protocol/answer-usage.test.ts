import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mergedUsage, tokensMax, usageOf } from './answer-usage.ts'

const none = { inputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0, longCacheWriteTokens: 0, outputTokens: 0 }

test("usage: Anthropic's cached tokens are part of the input, writes for an hour are counted apart", () => {
  const usage = {
    input_tokens: 10,
    cache_read_input_tokens: 500,
    cache_creation_input_tokens: 90,
    cache_creation: { ephemeral_5m_input_tokens: 60, ephemeral_1h_input_tokens: 30 },
    output_tokens: 7,
  }
  const reported = {
    inputTokens: 600,
    cacheReadTokens: 500,
    cacheWriteTokens: 90,
    longCacheWriteTokens: 30,
    outputTokens: 7,
  }
  assert.deepEqual(usageOf('anthropic-messages', { usage }), reported)
  assert.deepEqual(usageOf('anthropic-messages', { type: 'message_start', message: { usage } }), reported)
  const { cache_creation_input_tokens: _sum, ...parts } = usage
  assert.deepEqual(usageOf('anthropic-messages', { usage: parts }), reported, 'the parts alone')
})

test("usage: the tokens of Anthropic's compaction count, although its sum omits them", () => {
  const iterations = [
    { type: 'compaction', input_tokens: 100_000, cache_read_input_tokens: 80_000, output_tokens: 3500 },
    { type: 'message', input_tokens: 23_000, cache_creation_input_tokens: 5, output_tokens: 1000 },
    'odd',
  ]
  const usage = { input_tokens: 23_000, output_tokens: 1000, iterations }
  assert.deepEqual(usageOf('anthropic-messages', { usage }), {
    inputTokens: 203_005,
    cacheReadTokens: 80_000,
    cacheWriteTokens: 5,
    longCacheWriteTokens: 0,
    outputTokens: 4500,
  })
  const less = { input_tokens: 23_000, output_tokens: 1000, iterations: [{ input_tokens: 1, output_tokens: 1 }] }
  assert.deepEqual(usageOf('anthropic-messages', { usage: less }), { ...none, inputTokens: 23_000, outputTokens: 1000 })
})

test("usage: OpenAI's cached tokens are part of the input, on both wires", () => {
  const details = { cached_tokens: 60, cache_write_tokens: 30 }
  const reported = { ...none, inputTokens: 100, cacheReadTokens: 60, cacheWriteTokens: 30, outputTokens: 9 }
  const chat = { prompt_tokens: 100, prompt_tokens_details: details, completion_tokens: 9 }
  assert.deepEqual(usageOf('openai-completions', { usage: chat }), reported)
  const response = { usage: { input_tokens: 100, input_tokens_details: details, output_tokens: 9 } }
  assert.deepEqual(usageOf('openai-responses', { type: 'response.completed', response }), reported)
  // DeepSeek's name for it.
  const hit = { prompt_tokens: 100, prompt_cache_hit_tokens: 60, completion_tokens: 9 }
  assert.deepEqual(usageOf('openai-completions', { usage: hit }), { ...reported, cacheWriteTokens: 0 })
})

test('usage: impossible cached tokens count as fresh ones', () => {
  for (const details of [{ cached_tokens: 101 }, { cached_tokens: 60, cache_write_tokens: 41 }]) {
    const usage = { prompt_tokens: 100, prompt_tokens_details: details, completion_tokens: 9 }
    assert.deepEqual(usageOf('openai-completions', { usage }), { ...none, inputTokens: 100, outputTokens: 9 })
  }
  const creation = { ephemeral_1h_input_tokens: 1000 }
  const usage = { input_tokens: 1, cache_creation_input_tokens: 5, cache_creation: creation, output_tokens: 1 }
  assert.deepEqual(usageOf('anthropic-messages', { usage }), {
    ...none,
    inputTokens: 1001,
    cacheWriteTokens: 1000,
    longCacheWriteTokens: 1000,
    outputTokens: 1,
  })
})

test('usage: numbers that are no counts are ignored', () => {
  for (const wrong of [-5, 1.5, '7', null, true, Number.MAX_SAFE_INTEGER, tokensMax + 1, {}, [3]]) {
    const chat = { prompt_tokens: wrong, completion_tokens: wrong, prompt_tokens_details: { cached_tokens: wrong } }
    assert.deepEqual(usageOf('openai-completions', { usage: chat }), none, JSON.stringify(wrong))
    const messages = { input_tokens: 4, cache_read_input_tokens: wrong, output_tokens: wrong, iterations: wrong }
    assert.deepEqual(
      usageOf('anthropic-messages', { usage: messages }),
      { ...none, inputTokens: 4 },
      JSON.stringify(wrong),
    )
  }
  assert.equal(usageOf('openai-completions', { usage: [] }), undefined)
})

test('usage: of two events with an input, the larger input counts as a whole', () => {
  const first = { ...none, inputTokens: 100, cacheWriteTokens: 90, longCacheWriteTokens: 90, outputTokens: 1 }
  // The later event does not report how long cache writes are kept.
  const later = { ...none, inputTokens: 100, cacheWriteTokens: 90, outputTokens: 40 }
  assert.deepEqual(mergedUsage(first, later), { ...first, outputTokens: 40 })
  assert.deepEqual(mergedUsage(first, { ...none, outputTokens: 40 }), { ...first, outputTokens: 40 })
  // Some servers report cached tokens only at the end.
  const cached = { ...none, inputTokens: 100, cacheReadTokens: 80, outputTokens: 40 }
  assert.deepEqual(mergedUsage({ ...none, inputTokens: 100 }, cached), cached)
  assert.deepEqual(mergedUsage(undefined, later), later)
})
