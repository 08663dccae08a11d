import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GatewaySetup, hello, messages, completions } from './testing/gateway-setup.ts'

/** Until an API counts as silent: on a busy machine it has not even heard of the request in a tenth of that. */
const silenceMs = 2000

test('upstream: transient failures are retried until one call succeeds', async () => {
  const failures: (number | 'reset')[] = [529, 503, 'reset', 500, 502, 504, 520, 522, 524, 408, 429]
  await using setup = await GatewaySetup.create((request, response) => {
    const failure = failures.shift()
    if (failure === undefined) {
      response.end('{"fine":true}')
    } else if (failure === 'reset') {
      request.socket.destroy()
    } else {
      response.writeHead(failure, { 'retry-after': '0' })
      response.end('busy')
    }
  })
  const response = await setup.post(messages, hello)
  assert.deepEqual(await response.json(), { fine: true })
  assert.equal(setup.requests.length, 12)
  assert.ok(setup.requests.every((request) => request.body === JSON.stringify(hello)))
})

test('upstream: final statuses are forwarded at once, transient ones after the retry window', async () => {
  const statuses = [400, 401, 404, 409, 501, 505]
  for (const status of statuses) {
    await using setup = await GatewaySetup.create((_request, response) => {
      response.writeHead(status, { 'content-type': 'application/json' })
      response.end('{"error":"mine"}')
    })
    const response = await setup.post(messages, hello)
    assert.deepEqual([response.status, await response.text()], [status, '{"error":"mine"}'])
    assert.equal(setup.requests.length, 1)
    assert.deepEqual(setup.usage, [])
  }
  await using talkative = await GatewaySetup.create((request, response) => {
    response.writeHead(401).end(`bad key ${String(request.headers['x-api-key'])}`)
  })
  assert.equal(await (await talkative.post(messages, hello)).text(), 'bad key [key]')
  await using late = await GatewaySetup.create((_request, response) => {
    response.writeHead(429, { 'retry-after': '3600' })
    response.end('limit')
  })
  const limited = await late.post(messages, hello)
  assert.deepEqual([limited.status, await limited.text(), limited.headers.get('retry-after')], [429, 'limit', '3600'])
  assert.equal(late.requests.length, 1)
  await using busy = await GatewaySetup.create((_request, response) => void response.writeHead(503).end(), {
    retryMs: 2000,
  })
  const refused = await busy.post(messages, hello)
  assert.deepEqual([refused.status, refused.headers.get('x-should-retry')], [503, 'false'])
  assert.ok(busy.requests.length > 1)
  await using poor = await GatewaySetup.create((_request, response) => {
    response.writeHead(429).end('{"error":{"code":"insufficient_quota"}}')
  })
  assert.equal((await poor.post(completions, hello)).status, 429)
  assert.equal(poor.requests.length, 1)
})

test('upstream: a silent API is 504, one that breaks off breaks off the answer', async () => {
  await using silent = await GatewaySetup.create(() => {}, { upstreamFirstByteMs: silenceMs })
  assert.equal((await silent.post(messages, hello)).status, 504)
  // The model may have been working.
  assert.deepEqual([(await silent.recorded()).estimated, silent.requests.length, silent.logged], [true, 1, []])
  await using stuck = await GatewaySetup.create((_request, response) => void response.writeHead(200).write('begin'), {
    upstreamIdleMs: silenceMs,
  })
  await assert.rejects((await stuck.post(messages, hello)).text())
  await using broken = await GatewaySetup.create(async (request, response) => {
    response.writeHead(200)
    await new Promise((resolve) => response.write('begin', resolve))
    request.socket.destroy()
  })
  await assert.rejects((await broken.post(messages, hello)).text())
})
