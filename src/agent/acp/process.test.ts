import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { setImmediate as nextTick } from 'node:timers/promises'
import { AcpProcess, programEnvironment } from './process.ts'

const folder = mkdtempSync(join(tmpdir(), 'atoll-acp-'))
after(() => rmSync(folder, { recursive: true }))
process.env['TMPDIR'] = folder

test('acp process: lines that are no message are dropped, and output after the reader has left is harmless', async () => {
  const message = '{"jsonrpc":"2.0","method":"a"}'
  const script = `echo welcome; echo '${message}'; read line; echo '${message}'; echo '${message}'`
  const program = new AcpProcess(['sh', '-c', script], folder, process.env)
  assert.ok(program.pid)
  const reader = program.stream.readable.getReader()
  assert.deepEqual((await reader.read()).value, JSON.parse(message))
  await reader.cancel()
  const writer = program.stream.writable.getWriter()
  await writer.write({ jsonrpc: '2.0', method: 'go on' })
  assert.match(await program.ended, /status 0/)
  assert.equal(program.pid, undefined)
  await nextTick()
})

const proxy = { url: 'http://127.0.0.1:40000', credential: 'secret' }

test('acp environment: a program gets the address of the proxy, its credential, the model, and the variables of the session', () => {
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

test('acp environment: the proxy gets its own key, and another address never gets that key', () => {
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
