import assert from 'node:assert/strict'
import { test } from 'node:test'
import { answerWith, fakeAnthropic } from '../agent/fake-anthropic.ts'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { AtollServer } from './server.ts'
import { createSession, getSession } from './session-client.ts'

const model = 'anthropic/some-model'
const price = { inputPerMillion: 3, outputPerMillion: 15 }

/** Asks the gateway as the session's agent does, from inside its sandbox, for a model with these tools. Returns the status. */
const askFromInside = (tools: object[]) => `
  token=$(cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | sed -n 's/^ATOLL_GATEWAY_TOKEN=//p' | head -n 1)
  url=$(cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | sed -n 's/^ATOLL_GATEWAY_URL=//p' | head -n 1)
  curl --silent --output /dev/null --write-out '%{http_code}' --header "x-api-key: $token" --data @- \
    "$url/anthropic/v1/messages" <<'END'
${JSON.stringify({ model: 'some-model', max_tokens: 10, stream: true, messages: [{ role: 'user', content: 'x' }], tools })}
END`

test('a session costs its cached tokens at their rates, and no tool that is billed apart from tokens is reached', async () => {
  let calls = 0
  const cached = { input_tokens: 100, cache_read_input_tokens: 100_000, cache_creation_input_tokens: 2000 }
  await using api = await fakeAnthropic(
    () => {
      calls += 1
      return false
    },
    answerWith({ ...cached, output_tokens: 1 }),
  )
  const env = {
    ANTHROPIC_BASE_URL: api.url,
    ATOLL_MODEL: model,
    ATOLL_PRICES: JSON.stringify({ [model]: price }),
  }
  await using server = await AtollServer.start({ env })
  // A call costs 0.037875 USD; with all of its input fresh it would be 0.306375.
  const session = await createSession(server, 'Hello', { agent_config: { max_cost_usd: 0.1 } })
  const events = await readEvents(server, session.id, isTurnComplete)
  const result = events.find((event) => event.data.type === 'result')?.data
  const oneCall = {
    inputTokens: 102_100,
    cacheReadTokens: 100_000,
    cacheWriteTokens: 2000,
    outputTokens: 5,
    totalCostUsd: 0.037_875,
  }
  assert.equal(calls, 1)
  assert.deepEqual((await getSession(server, session.id)).usage, oneCall)
  assert.deepEqual(result?.['usage'], {
    input_tokens: 102_100,
    cache_read_input_tokens: 100_000,
    cache_creation_input_tokens: 2000,
    output_tokens: 5,
  })
  assert.equal(result?.['total_cost_usd'], oneCall.totalCostUsd)

  const ask = async (tools: object[]) => {
    const path = `/api/sandboxes/${session.sandboxId}/exec/run`
    const body = { cmd: 'bash', args: ['-c', askFromInside(tools)] }
    return ((await server.json('POST', path, body)) as { stdout: string }).stdout
  }
  assert.equal(await ask([{ type: 'web_search_20250305', name: 'web_search' }]), '400')
  assert.equal(
    await ask([
      { type: 'custom', name: 'own' },
      { type: 'mcp_toolset', mcp_server_name: 'x' },
    ]),
    '400',
  )
  assert.equal(calls, 1, 'neither has reached the model API')
  assert.equal(await ask([{ type: 'custom', name: 'own', input_schema: {} }]), '200')
  assert.equal(await ask([]), '200')
  assert.equal(await ask([]), '402', 'three calls have spent the budget')
  assert.equal(calls, 3)
  assert.equal((await getSession(server, session.id)).usage.totalCostUsd, 3 * oneCall.totalCostUsd)
})
