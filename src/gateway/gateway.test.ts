import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { ServiceError } from '../errors.ts'
import { createGateway, type GatewayIdentity, type GatewayOptions, type RecordedUsage } from './index.ts'
import type { GatewayLimits } from './ports.ts'

const token = 'atoll-token-7d21'
const key = 'sk-real-key-93aa'

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void | Promise<void>

/** A gateway in front of a fake model API. */
class Setup implements AsyncDisposable {
  readonly requests: { url: string; headers: IncomingMessage['headers']; body: string }[] = []
  readonly usage: RecordedUsage[] = []
  readonly logged: unknown[] = []
  identity: GatewayIdentity = { sessionId: 'session_a', sandboxId: 'sb-a' }
  /** The sandbox that requests come from. */
  peer: string | undefined = 'sb-a'
  budget: () => Promise<void> = () => Promise.resolve()
  /** How long it takes to find out whose token it is. */
  lookup: () => Promise<void> = () => Promise.resolve()
  url = ''
  #closers: (() => Promise<void>)[] = []

  static async create(handler: Handler, limits: Partial<GatewayLimits> = {}): Promise<Setup> {
    const setup = new Setup()
    const upstream = createServer((request, response) => {
      void (async () => {
        const body = Buffer.concat(await request.toArray()).toString()
        setup.requests.push({ url: request.url ?? '', headers: request.headers, body })
        await handler(request, response, body)
      })()
    })
    upstream.listen(0, '127.0.0.1')
    await once(upstream, 'listening')
    const upstreamUrl = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`
    const log = (fields: object, message: string) => setup.logged.push([fields, message])
    const options: GatewayOptions = {
      tokens: {
        resolve: async (hash) => {
          await setup.lookup()
          return hash === createHash('sha256').update(token).digest('hex') ? setup.identity : undefined
        },
      },
      usage: {
        checkBudget: () => setup.budget(),
        record: (_sessionId, usage) => Promise.resolve(void setup.usage.push(usage)),
      },
      upstreams: {
        anthropic: { baseUrl: upstreamUrl, apiKey: key },
        openai: { baseUrl: `${upstreamUrl}/v1/`, apiKey: key },
      },
      sandboxAt: () => setup.peer,
      log: { info: log, warn: log, error: log },
      limits: { retryPauseFirstMs: 1, retryPauseMaxMs: 5, ...limits },
    }
    const gateway = createGateway(options)
    setup.url = `http://127.0.0.1:${await gateway.listen({ host: '127.0.0.1', port: 0 })}`
    setup.#closers = [
      () => gateway.close(),
      async () => {
        upstream.closeAllConnections()
        upstream.close()
        await once(upstream, 'close')
      },
    ]
    return setup
  }

  post(path: string, body: object | string, headers: Record<string, string> = {}): Promise<Response> {
    return fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': token, ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })
  }

  /** Usage is recorded after the last byte; the client may see that byte before. */
  async recorded(): Promise<RecordedUsage> {
    while (this.usage.length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
    return this.usage[0]!
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const close of this.#closers) await close()
  }
}

function answer(value: object): Handler {
  return (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'x-request-id': 'req_1', 'set-cookie': 'a=b' })
    response.end(JSON.stringify(value))
  }
}

const messages = '/anthropic/v1/messages'
const completions = '/openai/v1/chat/completions'
const responses = '/openai/v1/responses'
const hello = { model: 'm-1', messages: [{ role: 'user', content: 'secret prompt' }] }

test('the token is exchanged for the key and no other header of the client passes', async () => {
  await using setup = await Setup.create(answer({ usage: { input_tokens: 3, output_tokens: 4 } }))
  const response = await setup.post(messages, hello, {
    authorization: `Bearer ${token}`,
    cookie: 'c=1',
    'anthropic-version': '2023-06-01',
    'anthropic-beta': 'b',
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
  assert.equal(request.headers['anthropic-beta'], 'b')
  assert.deepEqual(JSON.parse(request.body), hello)
  assert.ok(!JSON.stringify(request).includes(token))
  for (const name of ['cookie', 'x-other', 'authorization']) assert.equal(request.headers[name], undefined)
})

test('both OpenAI paths get a bearer key below the base URL, and streams are asked for their usage', async () => {
  await using setup = await Setup.create(answer({}))
  await setup.post(
    completions,
    { ...hello, stream: true, stream_options: { other: 1 } },
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
  assert.deepEqual(first?.['stream_options'], { other: 1, include_usage: true })
  assert.equal(second?.['stream_options'], undefined)
})

test('requests that may not pass are refused in the shape of their wire, and none reaches the model API', async () => {
  await using setup = await Setup.create(answer({}), { bodyBytesMax: 1000 })
  setup.identity = { ...setup.identity, allowedModels: ['anthropic/m-1'] }
  const cases: [string, object | string, Record<string, string>, number, string][] = [
    [messages, hello, { 'x-api-key': 'wrong' }, 401, 'unauthorized'],
    [messages, hello, { 'x-api-key': '' }, 401, 'unauthorized'],
    [completions, { ...hello, model: 'm-2' }, {}, 403, 'model_not_allowed'],
    [completions, { ...hello, model: 'm-1' }, {}, 403, 'model_not_allowed'],
    [messages, '{"model":"m-2","model":"m-2"}', {}, 403, 'model_not_allowed'],
    [messages, 'not json', {}, 400, 'invalid_request'],
    [messages, '[]', {}, 400, 'invalid_request'],
    [messages, '{"model":7}', {}, 400, 'invalid_request'],
    [completions, { ...hello, pad: 'x'.repeat(1000) }, {}, 413, 'too_large'],
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

test('a token opens nothing from another sandbox than its own', async () => {
  await using setup = await Setup.create(answer({}))
  for (const peer of ['sb-other', undefined]) {
    setup.peer = peer
    assert.equal((await setup.post(messages, hello)).status, 401)
  }
  assert.equal(setup.requests.length, 0)
})

test('a model named twice is the one that was checked', async () => {
  await using setup = await Setup.create(answer({}))
  setup.identity = { ...setup.identity, allowedModels: ['anthropic/m-1'] }
  await setup.post(messages, '{"model":"expensive","model":"m-1"}')
  assert.equal(setup.requests[0]?.body, '{"model":"m-1"}')
})

test('a spent budget ends in 402 and budget_exceeded, a budget that cannot be read in 503', async () => {
  await using setup = await Setup.create(answer({}))
  setup.budget = () => Promise.reject(new ServiceError('rate_limited', 'spent'))
  const spent = await setup.post(completions, hello)
  assert.equal(spent.status, 402)
  assert.equal(((await spent.json()) as { error: { code: string } }).error.code, 'budget_exceeded')
  assert.match(await (await setup.post(messages, hello)).text(), /budget_exceeded/)
  setup.budget = () => Promise.reject(new ServiceError('unavailable', 'database'))
  assert.equal((await setup.post(messages, hello)).status, 503)
  assert.deepEqual(setup.requests, [])
})

test('an answer is streamed as it comes, byte for byte, and its usage is counted', async () => {
  const proceed = Promise.withResolvers<void>()
  const first =
    'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":1,"output_tokens":1}}}\n\n'
  const rest = 'event: message_delta\r\ndata: {"type":"message_delta","usage":{"output_tokens":42}}\r\n\r\n'
  await using setup = await Setup.create(async (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
    response.write(first)
    await proceed.promise
    for (const byte of Buffer.from(rest)) response.write(Buffer.of(byte))
    response.end()
  })
  const response = await setup.post(messages, { ...hello, stream: true })
  const reader = response.body!.getReader()
  let text = ''
  const read = async () => {
    const { done, value } = await reader.read()
    if (value) text += Buffer.from(value).toString()
    return done
  }
  // The upstream goes on only when the first event has arrived here.
  while (text.length < first.length) await read()
  assert.equal(text, first)
  proceed.resolve()
  while (!(await read()));
  assert.equal(text, first + rest)
  assert.deepEqual(await setup.recorded(), { model: 'm-1', inputTokens: 16, outputTokens: 42, estimated: false })
})

test('usage is read from the JSON and the event streams of every wire', async () => {
  const chat = { usage: { prompt_tokens: 7, completion_tokens: 8 } }
  const response = { usage: { input_tokens: 7, output_tokens: 8 } }
  const stream = (...events: object[]) => events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('')
  const cases: [string, string, string][] = [
    [messages, 'application/json', JSON.stringify(response)],
    [completions, 'application/json', JSON.stringify(chat)],
    [responses, 'application/json', JSON.stringify(response)],
    [
      completions,
      'text/event-stream',
      `${stream({ choices: [], usage: null }, { choices: [], ...chat })}data: [DONE]\n\n`,
    ],
    [responses, 'text/event-stream', stream({ type: 'x' }, { type: 'response.completed', response })],
    // Without the last newline.
    [responses, 'text/event-stream', stream({ type: 'response.incomplete', response }).trimEnd()],
  ]
  for (const [path, type, body] of cases) {
    await using setup = await Setup.create((_request, answering) => {
      answering.writeHead(200, { 'content-type': type })
      answering.end(body)
    })
    assert.equal(await (await setup.post(path, hello)).text(), body)
    assert.deepEqual(await setup.recorded(), { model: 'm-1', inputTokens: 7, outputTokens: 8, estimated: false })
  }
})

test('an answer that says nothing of its cost is counted by its size', async () => {
  await using setup = await Setup.create((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(`data: {"usage": broken\n\ndata: ${'x'.repeat(4000)}\n\n`)
  })
  await (await setup.post(messages, { ...hello, stream: true })).text()
  const usage = await setup.recorded()
  assert.equal(usage.estimated, true)
  assert.ok(usage.outputTokens > 1000 && usage.inputTokens > 10)
})

test('a client that goes takes its upstream request along, and what came until then is recorded', async () => {
  const gone = Promise.withResolvers<void>()
  await using setup = await Setup.create((_request, response) => {
    response.on('close', () => gone.resolve())
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write('data: {"message":{"usage":{"input_tokens":9,"output_tokens":0}}}\n\n')
  })
  const abort = new AbortController()
  const response = await fetch(setup.url + messages, {
    method: 'POST',
    headers: { 'x-api-key': token },
    body: JSON.stringify(hello),
    signal: abort.signal,
  })
  await response.body!.getReader().read()
  abort.abort()
  await gone.promise
  const usage = await setup.recorded()
  assert.equal(usage.inputTokens, 9)
  assert.equal(usage.estimated, true)
})

test('a client that reads slowly slows the upstream instead of filling memory', async () => {
  let sentBytes = 0
  const chunk = Buffer.alloc(64 * 1024, 'x')
  const total = 512 * chunk.length
  const stalled = Promise.withResolvers<void>()
  await using setup = await Setup.create(async (_request, response) => {
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

test('failures that may pass are tried again until one passes', async () => {
  const failures: (number | 'reset')[] = [529, 503, 'reset', 500, 502, 429]
  await using setup = await Setup.create((request, response) => {
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
  assert.equal(setup.requests.length, 7)
  assert.ok(setup.requests.every((request) => request.body === JSON.stringify(hello)))
})

test('what does not pass is passed on: other statuses at once, the others when the time is over', async () => {
  const statuses = [400, 401, 404, 504]
  for (const status of statuses) {
    await using setup = await Setup.create((_request, response) => {
      response.writeHead(status, { 'content-type': 'application/json' })
      response.end('{"error":"mine"}')
    })
    const response = await setup.post(messages, hello)
    assert.deepEqual([response.status, await response.text()], [status, '{"error":"mine"}'])
    assert.equal(setup.requests.length, 1)
    assert.deepEqual(setup.usage, [])
  }
  await using talkative = await Setup.create((request, response) => {
    response.writeHead(401).end(`bad key ${String(request.headers['x-api-key'])}`)
  })
  assert.equal(await (await talkative.post(messages, hello)).text(), 'bad key [key]')
  await using late = await Setup.create((_request, response) => {
    response.writeHead(429, { 'retry-after': '3600' })
    response.end('limit')
  })
  const limited = await late.post(messages, hello)
  assert.deepEqual([limited.status, await limited.text(), limited.headers.get('retry-after')], [429, 'limit', '3600'])
  assert.equal(late.requests.length, 1)
  await using busy = await Setup.create((_request, response) => void response.writeHead(503).end(), { retryMs: 50 })
  const refused = await busy.post(messages, hello)
  assert.deepEqual([refused.status, refused.headers.get('x-should-retry')], [503, 'false'])
  assert.ok(busy.requests.length > 1)
  await using poor = await Setup.create((_request, response) => {
    response.writeHead(429).end('{"error":{"code":"insufficient_quota"}}')
  })
  assert.equal((await poor.post(completions, hello)).status, 429)
  assert.equal(poor.requests.length, 1)
})

test('an upstream that is silent ends in 504, one that breaks off in the middle breaks off the answer', async () => {
  await using silent = await Setup.create(() => {}, { upstreamFirstByteMs: 100 })
  assert.equal((await silent.post(messages, hello)).status, 504)
  await using stuck = await Setup.create((_request, response) => void response.writeHead(200).write('begin'), {
    upstreamIdleMs: 100,
  })
  await assert.rejects((await stuck.post(messages, hello)).text())
  await using broken = await Setup.create(async (request, response) => {
    response.writeHead(200)
    await new Promise((resolve) => response.write('begin', resolve))
    request.socket.destroy()
  })
  await assert.rejects((await broken.post(messages, hello)).text())
})

test('a body that is too large, whatever it says of its length, is refused in words', async () => {
  await using setup = await Setup.create(answer({}), { bodyBytesMax: 100_000 })
  for (const headers of [{ 'content-length': '8000000' }, { 'transfer-encoding': 'chunked' }]) {
    const { status, body } = await upload(setup.url, headers, 8_000_000)
    assert.equal(status, 413)
    assert.match(body, /too_large/)
  }
  await using crowded = await Setup.create(answer({}), { heldBytesMax: 100_000 })
  assert.equal((await upload(crowded.url, { 'content-length': '8000000' }, 8_000_000)).status, 503)
  assert.deepEqual([setup.requests.length, crowded.requests.length], [0, 0])
})

test('a body that is nested too deep to be written again is refused as a bad one', async () => {
  await using setup = await Setup.create(answer({}))
  const deep = `{"model":"m-1","messages":${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}}`
  const refused = await setup.post(messages, deep)
  assert.equal(refused.status, 400)
  assert.match(await refused.text(), /invalid_request/)
  assert.deepEqual(setup.logged, [])
})

test('a client that has gone before its token was looked up costs no call', async () => {
  await using setup = await Setup.create(answer({ usage: { input_tokens: 1, output_tokens: 1 } }))
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
  // By the answer to another client the gateway knows that this one has gone.
  assert.equal((await fetch(`${setup.url}/nothing`)).status, 404)
  lookup.resolve()
  setup.lookup = () => Promise.resolve()
  assert.equal((await setup.post(messages, hello)).status, 200)
  assert.deepEqual([setup.requests.length, setup.logged], [1, []])
})

test('one session cannot take all connections', async () => {
  const proceed = Promise.withResolvers<void>()
  await using setup = await Setup.create(
    async (_request, response) => {
      await proceed.promise
      response.end('{}')
    },
    { concurrentPerSession: 2 },
  )
  const waiting = [setup.post(messages, hello), setup.post(messages, hello)]
  while (setup.requests.length < 2) await new Promise((resolve) => setTimeout(resolve, 5))
  assert.equal((await setup.post(messages, hello)).status, 429)
  proceed.resolve()
  for (const response of await Promise.all(waiting)) assert.equal(response.status, 200)
  assert.equal((await setup.post(messages, hello)).status, 200)
})

test('neither token nor key nor prompt is ever logged', async () => {
  const failures = [500]
  await using setup = await Setup.create(
    (request, response) => {
      if (failures.shift()) response.writeHead(500).end(key)
      else request.socket.destroy()
    },
    { retryMs: 30 },
  )
  assert.equal((await setup.post(messages, hello)).status, 502)
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
