import assert from 'node:assert/strict'
import { test } from 'node:test'
import { programEnvironment } from './environment.ts'

const proxy = { url: 'http://127.0.0.1:40000', credential: 'secret' }

test('a program gets the address of the proxy, its credential and the model, and the environment of the session', () => {
  assert.deepEqual(programEnvironment({ PATH: '/bin', OPENAI_MODEL: 'other' }, 'm', proxy), {
    PATH: '/bin',
    IS_SANDBOX: '1',
    OPENAI_BASE_URL: 'http://127.0.0.1:40000/openai/v1',
    OPENAI_API_KEY: 'secret',
    OPENAI_MODEL: 'other',
    ANTHROPIC_BASE_URL: 'http://127.0.0.1:40000/anthropic',
    ANTHROPIC_API_KEY: 'secret',
    ANTHROPIC_MODEL: 'm',
  })
})

test('keys of the session go with addresses of the session: the proxy gets its own, others never that one', () => {
  const keys = { OPENAI_API_KEY: 'theirs', ANTHROPIC_API_KEY: 'theirs', ANTHROPIC_AUTH_TOKEN: 'theirs' }
  const withoutAddress = programEnvironment(keys, 'm', proxy)
  assert.equal(withoutAddress['OPENAI_API_KEY'], 'secret')
  assert.equal(withoutAddress['ANTHROPIC_API_KEY'], 'secret')
  assert.equal('ANTHROPIC_AUTH_TOKEN' in withoutAddress, false)
  const addresses = { OPENAI_BASE_URL: 'https://a.test', ANTHROPIC_BASE_URL: 'https://b.test' }
  const own = { ...addresses, ...keys }
  assert.deepEqual(programEnvironment(own, 'm', proxy), {
    ...own,
    IS_SANDBOX: '1',
    OPENAI_MODEL: 'm',
    ANTHROPIC_MODEL: 'm',
  })
  assert.doesNotMatch(JSON.stringify(programEnvironment(addresses, 'm', proxy)), /secret/)
})
