import assert from 'node:assert/strict'
import { test } from 'node:test'
import { costNanoUsd, usd } from '../../src/lib/model-price.ts'
import { result } from './conformance.ts'
import { answerWith, fakeAnthropic, sendEvents } from './fake-anthropic.ts'
import { World } from './world.ts'

test('what an agent tells of caches is what the gateway counts, and costs the same', async () => {
  const usage = {
    input_tokens: 12,
    cache_read_input_tokens: 1000,
    cache_creation_input_tokens: 200,
    output_tokens: 1,
  }
  await using upstream = await fakeAnthropic((_body, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    sendEvents(response, answerWith(usage))
    response.end()
    return true
  })
  await using world = await World.create({ anthropic: { baseUrl: upstream.url, apiKey: 'real-key' } })
  const price = { inputPerMillion: 3, cacheReadPerMillion: 0.3, cacheWritePerMillion: 3.75, outputPerMillion: 15 }
  await using agent = await world.agent({ model: { provider: 'anthropic', id: 'claude-sonnet-4-5' }, price })
  const { usage: told, total_cost_usd: cost } = result(await agent.turn('msg_1', 'Hello'))
  assert.deepEqual(told, {
    input_tokens: 1212,
    cache_read_input_tokens: 1000,
    cache_creation_input_tokens: 200,
    output_tokens: 5,
  })
  const [counted] = world.usage
  assert.ok(counted && world.usage.length === 1)
  const { model, estimated, ...tokens } = counted
  assert.deepEqual([model, estimated], ['anthropic/claude-sonnet-4-5', false])
  assert.deepEqual([tokens.inputTokens, tokens.cacheReadTokens, tokens.cacheWriteTokens], [1212, 1000, 200])
  assert.equal(cost, usd(costNanoUsd(price, tokens)))
})
