import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../errors.ts'
import type { AgentConfig, SessionStore } from '../session/index.ts'
import { gatewayPorts } from './gateway-ports.ts'

const demoPrice = new Map([['demo', { inputPerMillion: 1, outputPerMillion: 10 }]])

/** Whether a session that has used 1000 tokens each way (0.011 USD) may make another call. */
async function mayCall(limits: Partial<AgentConfig>, prices = demoPrice): Promise<boolean> {
  const agentConfig = { harness: 'pi', model: 'demo', cwd: '/', skills: {}, envs: {}, ...limits }
  const session = { id: 'session_a', status: 'running', agentConfig, inputTokens: 1000, outputTokens: 1000 }
  const store = { session: () => Promise.resolve(session) } as unknown as SessionStore
  try {
    await gatewayPorts(store, prices).usage.checkBudget('session_a')
    return true
  } catch (error) {
    assert.ok(isServiceError(error, 'forbidden'))
    return false
  }
}

test('a session without limits may always call', async () => {
  assert.equal(await mayCall({}), true)
})

test('a call is refused as soon as the tokens or the money are used up', async () => {
  assert.equal(await mayCall({ maxTokens: 2001 }), true)
  assert.equal(await mayCall({ maxTokens: 2000 }), false)
  assert.equal(await mayCall({ maxCostUsd: 0.0111 }), true)
  assert.equal(await mayCall({ maxCostUsd: 0.011 }), false)
  assert.equal(await mayCall({ maxTokens: 5000, maxCostUsd: 0.001 }), false)
})

test('a limit in money is not forgotten when the price is taken away', async () => {
  assert.equal(await mayCall({ maxCostUsd: 100 }, new Map()), false)
})
