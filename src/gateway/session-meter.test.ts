import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../errors.ts'
import type { ModelPrice } from '../lib/model-price.ts'
import type { AgentConfig, Session, SessionChange, SessionStore } from '../session/index.ts'
import { sessionMeter } from './session-meter.ts'

const price: ModelPrice = {
  inputPerMillion: 1,
  cacheReadPerMillion: 0.1,
  cacheWritePerMillion: 1.25,
  outputPerMillion: 10,
}
const demoPrice = new Map([['demo', price]])

/** Whether a session that has used 1000 tokens each way (0.011 USD at that price) may call again. */
async function mayCall(
  limits: Partial<AgentConfig>,
  prices = demoPrice,
  used: Partial<Session> = {},
): Promise<boolean> {
  const agentConfig = { harness: 'pi', model: 'demo', cwd: '/', skills: {}, envs: {}, ...limits }
  const counters = { inputTokens: 1000, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 1000 }
  const session = { id: 'session_a', status: 'running', agentConfig, ...counters, ...used }
  const store = { metered: () => Promise.resolve(session) } as unknown as SessionStore
  try {
    await sessionMeter(store, prices).checkBudget('session_a')
    return true
  } catch (error) {
    assert.ok(isServiceError(error, 'forbidden'))
    return false
  }
}

test('budget: a session without limits may always call', async () => {
  assert.equal(await mayCall({}), true)
})

test('budget: a call is refused as soon as the tokens or the money are used up', async () => {
  const used = { costNanoUsd: 11_000_000 }
  assert.equal(await mayCall({ maxTokens: 2001 }, demoPrice, used), true)
  assert.equal(await mayCall({ maxTokens: 2000 }, demoPrice, used), false)
  assert.equal(await mayCall({ maxCostUsd: 0.0111 }, demoPrice, used), true)
  assert.equal(await mayCall({ maxCostUsd: 0.011 }, demoPrice, used), false)
  assert.equal(await mayCall({ maxTokens: 5000, maxCostUsd: 0.001 }, demoPrice, used), false)
})

test('budget: cached tokens count as tokens, at their recorded cost', async () => {
  const used = { inputTokens: 1000, cacheReadTokens: 900, outputTokens: 0, costNanoUsd: 190_000 }
  assert.equal(await mayCall({ maxTokens: 1000 }, demoPrice, used), false)
  assert.equal(await mayCall({ maxTokens: 1001, maxCostUsd: 0.0002 }, demoPrice, used), true)
  assert.equal(await mayCall({ maxCostUsd: 0.00019 }, demoPrice, used), false)
})

test('budget: a changed price does not change the cost of earlier calls', async () => {
  const dear = new Map([['demo', { ...price, outputPerMillion: 1000 }]])
  assert.equal(await mayCall({ maxCostUsd: 0.02 }, dear, { costNanoUsd: 11_000_000 }), true)
})

test('budget: a limit in money refuses calls once the price is removed', async () => {
  assert.equal(await mayCall({ maxCostUsd: 100 }, new Map()), false)
  assert.equal(await mayCall({ maxCostUsd: 100 }, new Map(), { costNanoUsd: 1 }), false)
})

test('budget: an unknown cost is computed from the tokens, cache writes at their highest rate', async () => {
  assert.equal(await mayCall({ maxCostUsd: 0.0111 }), true)
  assert.equal(await mayCall({ maxCostUsd: 0.011 }), false)
  // 700 · 0.1 + 300 · 2 millionths
  const used = { inputTokens: 1000, cacheReadTokens: 700, cacheWriteTokens: 300, outputTokens: 0 }
  assert.equal(await mayCall({ maxCostUsd: 0.000671 }, demoPrice, used), true)
  assert.equal(await mayCall({ maxCostUsd: 0.00067 }, demoPrice, used), false)
})

test('meter: a call is recorded with its cost at the price of its model, or without when that is unknown', async () => {
  const committed: SessionChange['usage'][] = []
  const store = {
    commit: (_id: string, { usage }: SessionChange) => Promise.resolve(void committed.push(usage)),
  } as unknown as SessionStore
  const meter = sessionMeter(store, demoPrice)
  const tokens = { inputTokens: 1000, cacheReadTokens: 600, cacheWriteTokens: 100, outputTokens: 10 }
  const call = { ...tokens, longCacheWriteTokens: 50, estimated: false }
  await meter.record('session_a', { ...call, model: 'demo' })
  await meter.record('session_a', { ...call, model: 'openai/demo' })
  const nano = 300 * 1000 + 600 * 100 + 50 * 1250 + 50 * 2000 + 10 * 10_000
  assert.deepEqual(committed, [
    { ...tokens, costNanoUsd: nano },
    { ...tokens, costNanoUsd: undefined },
  ])
})
