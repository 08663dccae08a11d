import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ErrorCode, isServiceError } from '../errors.ts'
import type { CreateAgentConfig, CreateSession } from './api.ts'
import { configureCommand } from './boot.ts'
import type { SessionConfig } from './config.ts'
import { checkCreate, splitModel, sessionTitle } from './input.ts'
import { type Session, sessionCostUsd } from './session.ts'

const price = { inputPerMillion: 1, cacheReadPerMillion: 0.1, cacheWritePerMillion: 1.25, outputPerMillion: 10 }

const config: SessionConfig = {
  defaultModel: 'anthropic/claude-sonnet-4-5',
  models: ['anthropic/claude-sonnet-4-5', 'anthropic/claude-haiku-4-5', 'demo'],
  prices: new Map([['demo', price]]),
  harnesses: ['pi', 'acp:'],
  gatewayUrl: 'http://gateway.test',
  previewUrl: (hostname) => hostname,
}

function check(agentConfig: CreateAgentConfig = {}, rest: Partial<CreateSession> = {}) {
  return checkCreate({ prompt: 'p', userId: 'u', agentConfig, ...rest }, config)
}

function refused(pattern: RegExp, code: ErrorCode = 'invalid_request') {
  return (error: unknown) =>
    isServiceError(error, code) &&
    pattern.test(error.message) &&
    error.message.startsWith(String(error.details['field']))
}

test('an agent begins in the folder that the image names, unless it is given one', () => {
  const folder = (imageCwd: string, cwd?: string) =>
    checkCreate({ prompt: 'p', userId: 'u', agentConfig: cwd === undefined ? {} : { cwd } }, config, imageCwd)
      .agentConfig.cwd
  assert.deepEqual([folder('/srv'), folder('/srv', '/given'), folder('/')], ['/srv', '/given', '/workspace/app'])
})

test('what is not given has its default', () => {
  assert.deepEqual(check().agentConfig, {
    harness: 'pi',
    model: 'anthropic/claude-sonnet-4-5',
    cwd: '/workspace/app',
    skills: {},
    envs: {},
  })
})

test('a relative skill lies under /workspace/agent, an absolute one where it says', () => {
  const { agentConfig } = check({ skills: { 'a/SKILL.md': '1', '/etc/x': '2', './b//c.md': '3' } })
  assert.deepEqual(agentConfig.skills, {
    '/workspace/agent/a/SKILL.md': '1',
    '/etc/x': '2',
    '/workspace/agent/b/c.md': '3',
  })
})

const badSkills: [why: string, skills: Record<string, string>, message: RegExp][] = [
  ['..', { 'a/../../etc/passwd': '' }, /agent_config\.skills\["a\/\.\.\/\.\.\/etc\/passwd"\] must not contain "\.\."/],
  ['an absolute ..', { '/workspace/../etc/x': '' }, /must not contain "\.\."/],
  ['NUL', { 'a\0b': '' }, /agent_config\.skills\["a\\u0000b"\] must not contain NUL/],
  ['NUL in the text', { a: '\0' }, /must not hold NUL/],
  ['an empty key', { '': '' }, /must be the path of a file/],
  ['a directory', { 'a/': '' }, /must be the path of a file/],
  ['the folder of skills', { '.': '' }, /names the file \/workspace\/agent, which has to be a folder/],
  ['the root', { '/.': '' }, /names the file \/, which/],
  ['the working directory', { '/workspace/app': '' }, /names the file \/workspace\/app, which/],
  ['a folder above it', { '/workspace': '' }, /names the file \/workspace, which/],
  ['a file that another key is below', { 'a/b': '', a: '' }, /names the file \/workspace\/agent\/a, which/],
  ['the same file twice', { a: '', '/workspace/agent/a': '' }, /same file/],
  ['too many', Object.fromEntries(Array.from({ length: 201 }, (_, n) => [`f${n}`, ''])), /at most 200 files/],
]
for (const [why, skills, message] of badSkills) {
  test(`skills are refused for ${why}`, () => {
    assert.throws(() => check({ skills }), refused(message))
  })
}

test('skills may hold 10 MiB together and no byte more', () => {
  const half = 'x'.repeat(5 * 1024 * 1024)
  check({ skills: { a: half, b: half } })
  assert.throws(() => check({ skills: { a: half, b: half, c: 'x' } }), refused(/skills must be at most/, 'too_large'))
})

test('a prompt may be 256 KiB, measured in bytes', () => {
  check({}, { prompt: 'é'.repeat(128 * 1024) })
  assert.throws(
    () => check({}, { prompt: 'é'.repeat(128 * 1024 + 1) }),
    refused(/^prompt must be at most/, 'too_large'),
  )
})

const badFields: [why: string, agentConfig: CreateAgentConfig, rest: Partial<CreateSession>, message: RegExp][] = [
  ['a blank prompt', {}, { prompt: ' \n\t' }, /^prompt must not be blank/],
  ['a harness that does not exist', { harness: 'nope' }, {}, /^agent_config\.harness/],
  ['a harness without its command', { harness: 'acp:' }, {}, /^agent_config\.harness/],
  ['a harness with a blank command', { harness: 'acp:  ' }, {}, /^agent_config\.harness/],
  ['a harness with an empty word for a command', { harness: 'acp: "" x' }, {}, /^agent_config\.harness/],
  ['a model without a provider', { model: 'gpt-5' }, {}, /^agent_config\.model/],
  ['a model without a name', { model: 'openai/' }, {}, /^agent_config\.model/],
  ['a model that is not offered', { model: 'anthropic/claude-opus-4-5' }, {}, /^agent_config\.model names a model/],
  [
    'a limit in money for a model without a price',
    { maxCostUsd: 1, model: 'anthropic/claude-haiku-4-5' },
    {},
    /^agent_config\.max_cost_usd needs a price/,
  ],
  ['a relative cwd', { cwd: 'app' }, {}, /^agent_config\.cwd must be an absolute path/],
  ['a cwd with ..', { cwd: '/workspace/../etc' }, {}, /^agent_config\.cwd must not contain/],
  ['a bad variable', { envs: { 'A=B': '1' } }, {}, /^agent_config\.envs has a name/],
]
for (const [why, agentConfig, rest, message] of badFields) {
  test(`a session is refused for ${why}`, () => {
    assert.throws(() => check(agentConfig, rest), refused(message))
  })
}

test('a system prompt that fits as text but not as a line is refused', () => {
  check({ systemPrompt: 'x'.repeat(1024 * 1024) })
  assert.throws(() => check({ systemPrompt: '\u0001'.repeat(600 * 1024) }), refused(/system_prompt/, 'too_large'))
})

test('a title is the first line, cut at 60 code points', () => {
  assert.equal(sessionTitle('\n\n  Build a page \r\nwith buttons'), 'Build a page')
  assert.equal(sessionTitle('😀'.repeat(80)), '😀'.repeat(60))
  assert.equal(sessionTitle(`${'x'.repeat(59)} y`), 'x'.repeat(59))
})

test('a model name may hold slashes behind its provider', () => {
  assert.deepEqual(splitModel('openai/org/model'), { provider: 'openai', id: 'org/model' })
  assert.deepEqual(splitModel('demo'), { provider: 'demo', id: 'demo' })
})

test('a model of the list and a limit in money for a model with a price are accepted, and the agent hears of the price', () => {
  assert.equal(check({ model: 'anthropic/claude-haiku-4-5' }).agentConfig.model, 'anthropic/claude-haiku-4-5')
  const { agentConfig } = check({ model: 'demo', maxCostUsd: 0.5 })
  assert.equal(agentConfig.maxCostUsd, 0.5)
  const session = { id: 'session_a', agentConfig } as Session
  assert.deepEqual(configureCommand(session, { skillPaths: [] }, config).price, price)
})

test('secret variables are names of those that are given, each once', () => {
  const envs = { TOKEN: '1', OTHER: '2' }
  assert.deepEqual(check({ envs, secretEnvs: ['TOKEN', 'TOKEN'] }).agentConfig.secretEnvs, ['TOKEN'])
  assert.deepEqual(check({ envs, secretEnvs: [] }).agentConfig.secretEnvs, [])
  const wrong = /^agent_config\.secret_envs must hold names of `envs`/
  assert.throws(() => check({ envs, secretEnvs: ['toString'] }), refused(wrong))
  assert.throws(() => check({ secretEnvs: ['TOKEN'] }), refused(wrong))
})

test('what is kept after a turn, and of one that fails, is stored as it is given', () => {
  const { checkpoints, capsuleOnError } = check({ checkpoints: 'none', capsuleOnError: false }).agentConfig
  assert.deepEqual([checkpoints, capsuleOnError], ['none', false])
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

const used = { inputTokens: 1000, cacheReadTokens: 500, cacheWriteTokens: 100, outputTokens: 10 }

test('a session has cost what its calls cost when they were made, whatever a call costs now', () => {
  assert.equal(sessionCostUsd({ ...used, costNanoUsd: 1_500_000_000 }, price), 1.5)
  assert.equal(sessionCostUsd({ ...used, costNanoUsd: 1_500_000_000 }, undefined), 1.5)
})

test('where that is not known, it is what the tokens cost now, and nothing is told without a price', () => {
  assert.equal(sessionCostUsd(used, price), (400 * 1 + 500 * 0.1 + 100 * 2 + 10 * 10) / 1e6)
  assert.equal(sessionCostUsd(used, undefined), undefined)
})
