import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { answerWith, fakeAnthropic } from '../agent/fake-anthropic.ts'
import { isTurnComplete, readEvents, type StreamedEvent } from './event-stream.ts'
import { sh } from './sandbox-calls.ts'
import { gatewayTokenHash, tokenInMemory } from './sandbox-insides.ts'
import { AtollServer } from './server.ts'
import { createSession, errors, getSession, lastId, resultOf, sendMessage } from './session-client.ts'

const model = 'anthropic/some-model'

/** Asks the gateway as the session's agent does, from inside its sandbox, for a model with these tools. Returns the status. */
const askFromInside = (token: string, tools: object[]) => `
  url=$(cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | sed -n 's/^ATOLL_GATEWAY_URL=//p' | head -n 1)
  curl --silent --output /dev/null --write-out '%{http_code}' --header "x-api-key: ${token}" --data @- \
    "$url/anthropic/v1/messages" <<'END'
${JSON.stringify({ model: 'some-model', max_tokens: 10, stream: true, messages: [{ role: 'user', content: 'x' }], tools })}
END`

/** Calls of the model that is not the demo model. */
let calls = 0
const cached = { input_tokens: 100, cache_read_input_tokens: 100_000, cache_creation_input_tokens: 2000 }
const api = await fakeAnthropic(
  () => {
    calls += 1
    return false
  },
  answerWith({ ...cached, output_tokens: 1 }),
)
const prices = {
  [model]: { inputPerMillion: 3, outputPerMillion: 15 },
  demo: { inputPerMillion: 10, outputPerMillion: 10 },
}
const server = await AtollServer.startForFile({
  env: {
    ANTHROPIC_BASE_URL: api.url,
    ATOLL_MODEL: model,
    ATOLL_MODELS: `${model},demo`,
    ATOLL_PRICES: JSON.stringify(prices),
  },
})
after(() => api[Symbol.asyncDispose]())

test('session: cached tokens cost their rates, and no tool that is billed apart from tokens is reached', async () => {
  // A call costs 0.037875 USD; with all of its input fresh it would be 0.306375.
  const session = await createSession(server, 'Hello', { agent_config: { max_cost_usd: 0.1 } })
  const events = await readEvents(server, session.id, isTurnComplete)
  const result = resultOf(events)
  const oneCall = {
    inputTokens: 102_100,
    cacheReadTokens: 100_000,
    cacheWriteTokens: 2000,
    outputTokens: 5,
    totalCostUsd: 0.037_875,
  }
  assert.equal(calls, 1)
  await eventually(async () => assert.deepEqual((await getSession(server, session.id)).usage, oneCall))
  assert.deepEqual(result?.['usage'], {
    input_tokens: 102_100,
    cache_read_input_tokens: 100_000,
    cache_creation_input_tokens: 2000,
    output_tokens: 5,
  })
  assert.equal(result?.['total_cost_usd'], oneCall.totalCostUsd)

  const hash = await gatewayTokenHash(server.dataDir, session.id)
  const token = await tokenInMemory(session.sandboxId, hash)
  const ask = (tools: object[]) => sh(server, session.sandboxId, askFromInside(token, tools))
  assert.equal(await ask([{ type: 'web_search_20250305', name: 'web_search' }]), '400')
  assert.equal(
    await ask([
      { type: 'custom', name: 'own' },
      { type: 'mcp_toolset', mcp_server_name: 'x' },
    ]),
    '400',
  )
  assert.equal(calls, 1, 'neither has reached the model API')
  const isLast = ({ data }: StreamedEvent) => String(data['message']).includes('tools[1].mcp_server_name')
  assert.deepEqual(errors(await readEvents(server, session.id, isLast)), [
    ['model_field_refused', false],
    ['model_field_refused', false],
  ])
  assert.equal(await ask([{ type: 'custom', name: 'own', input_schema: {} }]), '200')
  assert.equal(await ask([]), '200')
  assert.equal(await ask([]), '402', 'three calls have spent the budget')
  assert.equal(calls, 3)
  assert.equal((await getSession(server, session.id)).usage.totalCostUsd, 3 * oneCall.totalCostUsd)
})

test('session: a budget in tokens or in money is checked before each call, and turn and session have what was used', async () => {
  for (const [budget, more] of [
    [{ max_tokens: 1 }, { max_tokens: 1e9 }],
    [{ max_cost_usd: 0.000001 }, { max_cost_usd: 1000 }],
  ]) {
    const session = await createSession(server, 'A page about tides', {
      agent_config: { ...budget, model: 'demo' },
    })
    const events = await readEvents(server, session.id, isTurnComplete)
    const isAnswer = ({ data }: StreamedEvent) => data.type === 'assistant'
    assert.deepEqual(errors(events), [['budget_exceeded', false]])
    assert.equal(events.filter(isAnswer).length, 1, 'one call was made with the budget untouched')
    const result = resultOf(events)
    assert.equal(result?.['subtype'], 'error_during_execution')
    const ofTurn = result?.['usage'] as { input_tokens: number; output_tokens: number }
    const { usage, activity } = await getSession(server, session.id)
    assert.equal(activity, 'paused')
    assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0)
    assert.deepEqual([ofTurn.input_tokens, ofTurn.output_tokens], [usage.inputTokens, usage.outputTokens])
    assert.equal(usage.totalCostUsd, ((usage.inputTokens + usage.outputTokens) * 10) / 1e6)
    assert.equal(result?.['total_cost_usd'], usage.totalCostUsd)

    await sendMessage(server, session.id, 'More')
    const waiting = await getSession(server, session.id)
    assert.deepEqual([waiting.activity, waiting.usage], ['paused', usage], 'the next message waits, and costs nothing')
    await server.json('PATCH', `/v1/sessions/${session.id}`, { user_id: 'ada', agent_config: more })
    const next = await readEvents(server, session.id, isTurnComplete, lastId(events))
    assert.ok(next.some(isAnswer), 'it is answered once there is more to spend')
  }
})
