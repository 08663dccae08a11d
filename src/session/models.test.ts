import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../errors.ts'
import type { CreateAgentConfig } from './api.ts'
import { configureCommand } from './boot.ts'
import type { SessionConfig } from './config.ts'
import { checkCreate } from './input.ts'
import type { Session } from './session.ts'

const price = { inputPerMillion: 1, cacheReadPerMillion: 0.1, cacheWritePerMillion: 1.25, outputPerMillion: 2 }
const config: SessionConfig = {
  defaultModel: 'demo',
  models: ['demo', 'anthropic/claude-haiku-4-5'],
  prices: new Map([['demo', price]]),
  harnesses: ['pi'],
  gatewayUrl: '',
  previewUrl: (host) => host,
}

function check(agentConfig: CreateAgentConfig) {
  return checkCreate({ prompt: 'x', userId: 'ann', agentConfig }, config).agentConfig
}

function refusedField(agentConfig: CreateAgentConfig): unknown {
  try {
    check(agentConfig)
  } catch (error) {
    assert.ok(isServiceError(error, 'invalid_request'))
    return error.details['field']
  }
  return undefined
}

test('a session may name any model of the list and no other', () => {
  assert.equal(check({}).model, 'demo')
  assert.equal(check({ model: 'anthropic/claude-haiku-4-5' }).model, 'anthropic/claude-haiku-4-5')
  assert.equal(refusedField({ model: 'anthropic/claude-opus-4-5' }), 'agent_config.model')
})

test('limit in money: it needs a model with a price', () => {
  assert.equal(check({ maxCostUsd: 0.5 }).maxCostUsd, 0.5)
  assert.equal(refusedField({ maxCostUsd: 1, model: 'anthropic/claude-haiku-4-5' }), 'agent_config.max_cost_usd')
})

test('the agent is told the price of its model', () => {
  const session = { id: 'session_a', agentConfig: check({}) } as Session
  assert.deepEqual(configureCommand(session, { skillPaths: [] }, config).price, price)
})

test('a harness that the image lacks is unavailable, unless a checkpoint may hold it', () => {
  const lacking: SessionConfig = { ...config, harnesses: ['pi', 'claude'], missingHarness: (name) => `install ${name}` }
  const input = { prompt: 'x', userId: 'ann', agentConfig: { harness: 'claude' } }
  assert.throws(
    () => checkCreate(input, lacking),
    (error: unknown) => isServiceError(error, 'unavailable') && error.message === 'install claude',
  )
  assert.equal(checkCreate({ ...input, checkpointId: 'cp-1' }, lacking).agentConfig.harness, 'claude')
})
