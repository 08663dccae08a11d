import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { test } from 'node:test'
import { ServiceError } from '../errors.ts'
import { answer, completions, GatewaySetup, hello, key, messages, responses, token } from './testing/gateway-setup.ts'
import { eventually } from '../lib/testing/eventually.ts'

test('gateway: the token is replaced by the key and no other header of the client passes', async () => {
  await using setup = await GatewaySetup.create(answer({ usage: { input_tokens: 3, output_tokens: 4 } }))
  const response = await setup.post(messages, hello, {
    authorization: `Bearer ${token}`,
    cookie: 'c=1',
    'anthropic-version': '2023-06-01',
    'anthropic-beta': 'effort-2025-11-24',
    'x-other': 'o',
  })
  assert.equal(response.status, 200)
  assert.equal(response.headers.get('x-request-id'), 'req_1')
  assert.equal(response.headers.get('set-cookie'), null)
  const [request] = setup.requests
  assert.ok(request)
  assert.equal(request.url, '/v1/messages')
  assert.equal(request.headers['x-api-key'], key)
  assert.equal(request.headers['anthropic-version'], '2023-06-01')
  assert.equal(request.headers['anthropic-beta'], 'effort-2025-11-24')
  assert.deepEqual(JSON.parse(request.body), hello)
  assert.ok(!JSON.stringify(request).includes(token))
  for (const name of ['cookie', 'x-other', 'authorization']) assert.equal(request.headers[name], undefined)
})

test('gateway: both OpenAI paths get a bearer key below the base URL, and streams request their usage', async () => {
  await using setup = await GatewaySetup.create(answer({}))
  await setup.post(
    completions,
    { ...hello, stream: true, stream_options: { include_obfuscation: false } },
    { 'x-api-key': '', authorization: `bearer ${token}` },
  )
  await setup.post(responses, { model: 'm-1', input: 'x', stream: true })
  assert.deepEqual(
    setup.requests.map((request) => [request.url, request.headers.authorization]),
    [
      ['/v1/chat/completions', `Bearer ${key}`],
      ['/v1/responses', `Bearer ${key}`],
    ],
  )
  const [first, second] = setup.requests.map((request) => JSON.parse(request.body) as Record<string, unknown>)
  assert.deepEqual(first?.['stream_options'], { include_obfuscation: false, include_usage: true })
  assert.equal(second?.['stream_options'], undefined)
})

test('gateway: forbidden requests are refused in the shape of their wire, and none reaches the model API', async () => {
  await using setup = await GatewaySetup.create(answer({}), { bodyBytesMax: 1000 })
  setup.identity = { ...setup.identity, allowedModels: ['anthropic/m-1'] }
  const cases: [string, object | string, Record<string, string>, number, string][] = [
    [messages, hello, { 'x-api-key': 'wrong' }, 401, 'unauthorized'],
    [messages, hello, { 'x-api-key': '' }, 401, 'unauthorized'],
    [completions, { ...hello, model: 'm-2' }, {}, 403, 'model_not_allowed'],
    [completions, { ...hello, model: 'm-1' }, {}, 403, 'model_not_allowed'],
    [messages, 'not json', {}, 400, 'invalid_request'],
    [messages, '[]', {}, 400, 'invalid_request'],
    [messages, '{"model":7}', {}, 400, 'invalid_request'],
    [responses, { model: 'm-1', input: 'x', background: true }, {}, 400, 'invalid_request'],
    [completions, { ...hello, user: 'x'.repeat(1000) }, {}, 413, 'too_large'],
    ['/openai/v1/models', hello, {}, 404, 'not_found'],
    ['/constructor', hello, {}, 404, 'not_found'],
    ['/anthropic/v1/messages/../../x', hello, {}, 404, 'not_found'],
  ]
  for (const [path, body, headers, status, code] of cases) {
    const response = await setup.post(path, body, headers)
    const text = await response.text()
    assert.equal(response.status, status, `${path} ${text}`)
    const { error, type } = JSON.parse(text) as { type?: string; error: { code: string; type: string } }
    assert.equal(error.code, code)
    assert.equal(type, path.startsWith('/anthropic') ? 'error' : undefined)
  }
  assert.equal((await fetch(setup.url + messages)).status, 404)
  assert.deepEqual(setup.requests, [])
})

test('gateway: a token is invalid from another sandbox than its own', async () => {
  await using setup = await GatewaySetup.create(answer({}))
  for (const peer of ['sb-other', undefined]) {
    setup.peer = peer
    assert.equal((await setup.post(messages, hello)).status, 401)
  }
  assert.equal(setup.requests.length, 0)
})

test('gateway: a suspended organisation calls no model; its calls wait until it is resumed', async () => {
  await using setup = await GatewaySetup.create(answer({}))
  const calledBefore: number[] = []
  setup.suspended.has = () => calledBefore.push(setup.requests.length) < 4
  assert.equal((await setup.post(messages, hello)).status, 200)
  assert.deepEqual(calledBefore, [0, 0, 0, 0])
  assert.equal(setup.requests.length, 1)
})

test('gateway: a call of a suspended organisation that has waited for long gets no answer that would end a turn', async () => {
  await using setup = await GatewaySetup.create(answer({}), { suspendedMs: 50 })
  setup.suspended.add('org-a')
  await assert.rejects(setup.post(messages, hello), /fetch failed/)
  assert.equal(setup.requests.length, 0)
  setup.suspended.clear()
  assert.equal((await setup.post(messages, hello)).status, 200)
})

test('gateway: a body in which another parser could read another model, or no stream, is refused', async () => {
  await using setup = await GatewaySetup.create(answer({}))
  setup.identity = { ...setup.identity, allowedModels: ['anthropic/m-1', 'openai/m-1'] }
  const bodies = [
    '{"model":"expensive","model":"m-1"}',
    '{"model":"m-1","model":"expensive"}',
    '{"model":"m-1","mod\\u0065l":"expensive"}',
    '{"model":"m-1","Model":"expensive"}',
    '{"MODEL":"expensive","model":"m-1"}',
    '{"model":"m-1","models":["expensive"]}',
    '{"model":"m-1","Fallbacks":[{"model":"expensive"}]}',
    '{"model":"m-1","fallbacks":[{"model":"expensive"}]}',
    '{"model":"m-1","stream":true,"Stream":false}',
    // In Go this is an s.
    '{"model":"m-1","stream":false,"\u017ftream":true}',
    '{"model":"m-1","stream":true,"Stream_Options":{}}',
    '{"model":"m-1","stream":true,"stream_options":{},"stream_options":{}}',
    '{"model":"m-1","Background":true}',
    '{"model":"m-1"}{"model":"expensive"}',
    // Some parsers drop these bytes, others make a character of them.
    Buffer.from('{"model":"m-1","mod\xffel":"expensive"}', 'latin1'),
  ]
  for (const body of bodies) {
    for (const path of [messages, completions, responses]) {
      const response = await setup.post(path, body)
      const { error } = (await response.json()) as { error: { code: string } }
      assert.deepEqual([response.status, error.code], [400, 'invalid_request'], String(body))
    }
  }
  for (const stream of ['1', '"true"', '{}']) {
    assert.equal((await setup.post(completions, `{"model":"m-1","stream":${stream}}`)).status, 400)
  }
  assert.deepEqual(setup.requests, [])
})

test('gateway: a body is forwarded unchanged except for the request for usage, and always as JSON', async () => {
  await using setup = await GatewaySetup.create(answer({}))
  const given = (options: string) =>
    `{ "model":"m-1",${options}\n"stream":true ,"temperature":1e20,"messages":[{"content": "\\u00e9é"}] } `
  const headers = { 'content-type': 'application/x-www-form-urlencoded' }
  await setup.post(messages, given(''), headers)
  await setup.post(completions, given(''))
  await setup.post(completions, given('"stream_options": null ,'))
  await setup.post(completions, given('"stream_options":{"include_usage":true,"include_obfuscation":true},'))
  assert.deepEqual(
    setup.requests.map((request) => request.body),
    [
      given(''),
      given('').replace(/\} $/, ',"stream_options":{"include_usage":true}} '),
      given('"stream_options": {"include_usage":true} ,'),
      given('"stream_options":{"include_obfuscation":true,"include_usage":true},'),
    ],
  )
  for (const request of setup.requests) assert.equal(request.headers['content-type'], 'application/json')
})

test('gateway: a spent budget is 402 budget_exceeded, an unreadable budget 503', async () => {
  await using setup = await GatewaySetup.create(answer({}))
  setup.budget = () => Promise.reject(new ServiceError('rate_limited', 'spent'))
  const spent = await setup.post(completions, hello)
  assert.equal(spent.status, 402)
  assert.equal(((await spent.json()) as { error: { code: string } }).error.code, 'budget_exceeded')
  assert.match(await (await setup.post(messages, hello)).text(), /budget_exceeded/)
  setup.budget = () => Promise.reject(new ServiceError('unavailable', 'database'))
  assert.equal((await setup.post(messages, hello)).status, 503)
  assert.deepEqual(setup.requests, [])
})

test('gateway: a slow client slows the upstream instead of filling memory', async () => {
  let sentBytes = 0
  const chunk = Buffer.alloc(64 * 1024, 'x')
  const total = 512 * chunk.length
  const stalled = Promise.withResolvers<void>()
  await using setup = await GatewaySetup.create(async (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    while (sentBytes < total) {
      sentBytes += chunk.length
      if (response.write(chunk)) continue
      // Nobody reads at first: the stall must come long before the end.
      const timer = setTimeout(() => stalled.resolve(), 300)
      await once(response, 'drain')
      clearTimeout(timer)
    }
    response.end()
  })
  const request = httpRequest(setup.url + messages, { method: 'POST', headers: { 'x-api-key': token } })
  request.end(JSON.stringify(hello))
  const [response] = (await once(request, 'response')) as [IncomingMessage]
  await stalled.promise
  assert.ok(sentBytes < total / 2, `${sentBytes} bytes were taken from the upstream although nobody read`)
  let received = 0
  for await (const part of response as AsyncIterable<Buffer>) received += part.length
  assert.equal(received, total)
})

test('gateway: a body that is too large, whatever its declared length, is refused with a message', async () => {
  await using setup = await GatewaySetup.create(answer({}), { bodyBytesMax: 100_000 })
  for (const headers of [{ 'content-length': '8000000' }, { 'transfer-encoding': 'chunked' }]) {
    const { status, body } = await upload(setup.url, headers, 8_000_000)
    assert.equal(status, 413)
    assert.match(body, /too_large/)
  }
  await using crowded = await GatewaySetup.create(answer({}), { heldBytesMax: 100_000 })
  assert.equal((await upload(crowded.url, { 'content-length': '8000000' }, 8_000_000)).status, 503)
  assert.deepEqual([setup.requests.length, crowded.requests.length], [0, 0])
})

test('gateway: incomplete bodies use the share of their session and organisation, not that of others', async () => {
  const bytes = 900_000
  await using setup = await GatewaySetup.create(answer({}), { heldBytesMax: 4 * 1024 * 1024, bodyBytesMax: 2 * bytes })
  const body = JSON.stringify({ model: 'm-1', system: 'x'.repeat(bytes) })
  const uploads: ClientRequest[] = []
  const statuses: number[] = []
  /** Sends all but the end. Returns when the gateway knows whose it is. */
  const begin = async (orgId: string, sessionId: string) => {
    const known = Promise.withResolvers<void>()
    setup.identity = { ...setup.identity, orgId, sessionId }
    setup.lookup = () => Promise.resolve(known.resolve())
    const headers = { 'x-api-key': token, 'content-length': String(body.length) }
    const request = httpRequest(setup.url + messages, { method: 'POST', headers })
    request.on('error', () => undefined)
    request.on('response', (response) => statuses.push(response.resume().statusCode ?? 0))
    request.write(body.slice(0, -1))
    uploads.push(request)
    await known.promise
    await new Promise(setImmediate)
  }
  await begin('org-a', 'session_a')
  await begin('org-a', 'session_a')
  await eventually(() => statuses.length === 1)
  await begin('org-a', 'session_b')
  await begin('org-a', 'session_c')
  await eventually(() => statuses.length === 2)
  await begin('org-b', 'session_d')
  for (const request of uploads) request.end(body.at(-1))
  await eventually(() => statuses.length === 5)
  assert.deepEqual(statuses, [503, 503, 200, 200, 200])
  // A refused request, and an answered one, holds nothing any more.
  await begin('org-a', 'session_a')
  uploads.at(-1)?.end(body.at(-1))
  await eventually(() => statuses.length === 6)
  assert.equal(statuses.at(-1), 200)
})

test('gateway: the demo model gets bounded bodies', async () => {
  await using setup = await GatewaySetup.create(answer({}), { demoBytesMax: 1000, demoValuesMax: 100 })
  const long = { system: 'x'.repeat(1000) }
  const wide = { stop_sequences: Array.from({ length: 100 }, () => 0) }
  const statuses: number[] = []
  for (const model of ['m-1', 'demo']) {
    for (const pad of [{}, long, wide]) statuses.push((await setup.post(messages, { ...hello, ...pad, model })).status)
  }
  assert.deepEqual(statuses, [200, 200, 200, 200, 413, 413])
})

test('gateway: a body that is nested too deep is an invalid request', async () => {
  await using setup = await GatewaySetup.create(answer({}))
  const deep = `{"model":"m-1","messages":${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}}`
  const refused = await setup.post(messages, deep)
  assert.equal(refused.status, 400)
  assert.match(await refused.text(), /invalid_request/)
  assert.deepEqual(setup.logged, [])
})

test('gateway: a client that leaves during the lookup of its token costs no call', async () => {
  await using setup = await GatewaySetup.create(answer({ usage: { input_tokens: 1, output_tokens: 1 } }))
  const lookup = Promise.withResolvers<void>()
  const asked = Promise.withResolvers<void>()
  setup.lookup = () => {
    asked.resolve()
    return lookup.promise
  }
  const body = JSON.stringify(hello)
  const headers = { 'x-api-key': token, 'content-length': String(body.length) }
  const request = httpRequest(setup.url + messages, { method: 'POST', headers })
  request.on('error', () => undefined)
  request.end(body)
  await asked.promise
  request.destroy()
  // Once another client has its answer, the gateway knows that this one has gone.
  assert.equal((await fetch(`${setup.url}/nothing`)).status, 404)
  lookup.resolve()
  setup.lookup = () => Promise.resolve()
  assert.equal((await setup.post(messages, hello)).status, 200)
  assert.deepEqual([setup.requests.length, setup.logged], [1, []])
})

test('gateway: one session cannot take all connections', async () => {
  const proceed = Promise.withResolvers<void>()
  await using setup = await GatewaySetup.create(
    async (_request, response) => {
      await proceed.promise
      response.end('{}')
    },
    { concurrentPerSession: 2 },
  )
  const waiting = [setup.post(messages, hello), setup.post(messages, hello)]
  await eventually(() => setup.requests.length === 2)
  assert.equal((await setup.post(messages, hello)).status, 429)
  proceed.resolve()
  for (const response of await Promise.all(waiting)) assert.equal(response.status, 200)
  assert.equal((await setup.post(messages, hello)).status, 200)
})

test('gateway: a sandbox that holds all connections keeps no other from its model', async () => {
  await using setup = await GatewaySetup.create(answer({}), { connectionsMax: 4 })
  setup.peer = 'sb-slow'
  const { port } = new URL(setup.url)
  const held = Array.from({ length: 4 }, () => connect(Number(port), '127.0.0.1').on('error', () => undefined))
  await Promise.all(held.map((socket) => once(socket, 'connect')))
  await assert.rejects(fetch(`${setup.url}/nothing`), 'there is no place')
  setup.peer = 'sb-a'
  assert.equal((await setup.post(messages, hello)).status, 200)
  for (const socket of held) socket.destroy()
})

test('gateway: neither token nor key nor prompt is logged', async () => {
  const failures = [500]
  await using setup = await GatewaySetup.create(
    (request, response) => {
      if (failures.shift()) response.writeHead(500).end(key)
      else request.socket.destroy()
    },
    { retryMs: 2000 },
  )
  assert.equal((await setup.post(messages, hello)).status, 502)
  assert.deepEqual(setup.usage, [])
  assert.ok(setup.logged.length > 1)
  const logged = setup.logged.map((entry) => JSON.stringify(entry, errorFields)).join('\n')
  for (const secret of [token, key, 'secret prompt']) assert.ok(!logged.includes(secret), logged)
})

/** Sends so many bytes and reads the answer, also one that comes before the end of the body. */
async function upload(url: string, headers: Record<string, string>, bytes: number) {
  const request = httpRequest(url + messages, { method: 'POST', headers: { 'x-api-key': token, ...headers } })
  const answered = once(request, 'response') as Promise<[IncomingMessage]>
  request.on('error', () => undefined)
  request.end(Buffer.alloc(bytes, ' '))
  const [response] = await answered
  return { status: response.statusCode, body: Buffer.concat(await response.toArray()).toString() }
}

/** Errors as a logger serialises them: with all that hangs on them. */
function errorFields(_key: string, value: unknown): unknown {
  if (!(value instanceof Error)) return value
  return Object.fromEntries(Object.getOwnPropertyNames(value).map((name) => [name, Reflect.get(value, name)]))
}
