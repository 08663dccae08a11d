import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { configPath, writeConfig } from './config-file.ts'
import { clientOf, settingsOf } from './settings.ts'

const dir = await mkdtemp(join(tmpdir(), 'atoll-settings-'))
after(() => rm(dir, { recursive: true }))
process.env['XDG_CONFIG_HOME'] = dir
await writeConfig({
  current: 'a',
  contexts: { a: { url: 'http://a.test', apiKey: 'ka' }, b: { url: 'http://b.test', apiKey: 'kb' } },
})

test('settings: flags, then the environment, then the context, then the default', async () => {
  const env = { ATOLL_URL: 'http://env.test', ATOLL_API_KEY: 'ke' }
  assert.deepEqual(await settingsOf({ url: 'http://flag.test/', key: 'kf' }, env), {
    url: 'http://flag.test',
    apiKey: 'kf',
  })
  assert.deepEqual(await settingsOf({}, env), { url: 'http://env.test', apiKey: 'ke' })
  assert.deepEqual(await settingsOf({}, {}), { url: 'http://a.test', apiKey: 'ka' })
  assert.deepEqual(await settingsOf({ context: 'b' }, env), { url: 'http://b.test', apiKey: 'kb' })
  await assert.rejects(settingsOf({ context: 'c' }, {}), /no context "c"; there are: a, b/)
  await rm(configPath())
  assert.deepEqual(await settingsOf({}, {}), { url: 'http://127.0.0.1:4100', apiKey: undefined })
})

test('settings: a saved key goes to no other server, and no message shows a key', async () => {
  await writeConfig({ current: 'a', contexts: { a: { url: 'http://a.test', apiKey: 'ka' } } })
  assert.equal((await settingsOf({ url: 'http://other.test' }, {})).apiKey, undefined)
  await assert.rejects(settingsOf({ key: 'sec ret' }, {}), (error: Error) => !error.message.includes('sec'))
  await assert.rejects(settingsOf({ url: 'ftp://x' }, {}), /"ftp:\/\/x" is no URL/)
})

test('settings: names that the server has left out are told on standard error', async (t) => {
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'x-atoll-ignored': 'timout, a%0Ab' }).end('{}')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const said: string[] = []
  t.mock.method(process.stderr, 'write', (text: string) => said.push(text) > 0)
  const client = await clientOf({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, key: 'key' })
  await client.json('POST', '/api/sandboxes', { json: { timout: 1 } })
  t.mock.restoreAll()
  assert.match(said.join(''), /the server does not know timout, a%0Ab, which was left out/)
})

test('settings: a server that does not answer for 10 s is said on a terminal, and not elsewhere', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  let written = ''
  t.mock.method(process.stderr, 'write', (text: string) => (written += text))
  const { isTTY } = process.stderr
  t.after(() => (process.stderr.isTTY = isTTY))
  for (const isTerminal of [false, true]) {
    process.stderr.isTTY = isTerminal
    const answer = Promise.withResolvers<Response>()
    const asked = Promise.withResolvers<void>()
    const ask = t.mock.method(globalThis, 'fetch', () => {
      asked.resolve()
      return answer.promise
    })
    const call = (await clientOf({ url: 'http://a.test', key: 'k' })).json('GET', '/api/host')
    await asked.promise
    t.mock.timers.tick(9_999)
    assert.equal(written, '')
    t.mock.timers.tick(1)
    assert.equal(written.includes('no answer for 10 s from http://a.test/api/host'), isTerminal)
    answer.resolve(new Response('{}'))
    await call
    const before = written
    t.mock.timers.tick(60_000)
    assert.equal(written, before)
    ask.mock.restore()
  }
})
