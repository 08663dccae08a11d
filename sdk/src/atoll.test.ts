import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { test } from 'node:test'
import * as sdk from './index.ts'
import { Atoll, AtollError, Sandbox } from './index.ts'
import { errorOf } from './errors.ts'
import { cut, fakeServer, json, refusal } from './testing/fake-server.ts'

const started = { sandboxID: 'sb-1', sandboxDomain: 'preview.localhost', status: 'running' }

test('create: a connection that breaks is made again with the same idempotency key', async (t) => {
  const { client, asked } = await fakeServer(t, [cut, refusal(503, 'unavailable'), json(201, started)])
  const sandbox = await Sandbox.create({ client, ttlSeconds: 60, memoryMB: 512 })
  assert.equal(sandbox.id, 'sb-1')
  assert.deepEqual(JSON.parse(asked[0]?.body ?? ''), { timeout: 60, memoryMB: 512 })
  assert.equal(asked[0]?.headers['x-api-key'], 'key')
  const keys = new Set(asked.map(({ headers }) => headers['idempotency-key']))
  assert.equal(asked.length, 3)
  assert.equal(keys.size, 1)
  assert.ok(!keys.has(undefined))
})

test('create: a repeat waits while the first request still runs under its key; a first conflict is an error', async (t) => {
  const repeated = await fakeServer(t, [cut, refusal(409, 'conflict'), json(201, started)])
  assert.equal((await Sandbox.create({ client: repeated.client })).id, 'sb-1')
  const { client, asked } = await fakeServer(t, [refusal(409, 'conflict')])
  await assert.rejects(Sandbox.create({ client }), sdk.ConflictError)
  assert.equal(asked.length, 1)
})

test('run: a command is not sent again unless the server has said that it did nothing', async (t) => {
  const lost = await fakeServer(t, [cut])
  const path = { sandboxID: 'sb-1', sandboxDomain: 'x' } as never
  await assert.rejects(new Sandbox(lost.client, path).run('make'), sdk.ConnectionError)
  assert.equal(lost.asked.length, 1)
  const result = { exitCode: 0, stdout: '', stderr: '' }
  const limited = await fakeServer(t, [refusal(429, 'rate_limited'), refusal(503, 'no_capacity'), json(200, result)])
  assert.deepEqual(await new Sandbox(limited.client, path).run('make'), result)
  const failed = await fakeServer(t, [refusal(503, 'unavailable')])
  await assert.rejects(new Sandbox(failed.client, path).run('make'), sdk.UnavailableError)
  assert.equal(failed.asked.length, 1)
})

test('retries: as many as were asked for, not before Retry-After, and not when that is long', async (t) => {
  const busy = refusal(429, 'rate_limited', { 'retry-after': '1' })
  const { client, asked } = await fakeServer(t, [busy], { retries: 1 })
  const startedAt = performance.now()
  await assert.rejects(client.json('GET', '/api/sandboxes'), (error: AtollError) => error.retryAfterSeconds === 1)
  assert.ok(performance.now() - startedAt >= 1000)
  assert.equal(asked.length, 2)
  const long = await fakeServer(t, [refusal(429, 'rate_limited', { 'retry-after': '3600' })])
  await assert.rejects(long.client.json('GET', '/'), sdk.RateLimitedError)
  assert.equal(long.asked.length, 1)
})

test('errors: each code of the service has a class of its own, in both halves of the API', () => {
  const text = readFileSync(new URL('../../src/errors.ts', import.meta.url), 'utf8')
  const codes = [...text.slice(0, text.indexOf('] as const')).matchAll(/^ {2}'(\w+)',$/gm)].map(
    ([, code]) => code ?? '',
  )
  assert.ok(codes.length > 15)
  const classes = new Set<unknown>()
  for (const code of codes) {
    const ours = errorOf(418, new Headers(), JSON.stringify({ error: 'why', code, field: 'x' }))
    const theirs = errorOf(418, new Headers(), JSON.stringify({ error: { type: 'conflict', message: 'why', code } }))
    assert.deepEqual([ours.code, ours.message, ours.details, ours.status], [code, 'why', { field: 'x' }, 418])
    assert.equal(ours.constructor, theirs.constructor)
    assert.equal(ours.name, ours.constructor.name)
    assert.ok(Object.values(sdk).includes(ours.constructor as never))
    classes.add(ours.constructor)
  }
  assert.equal(classes.size, codes.length)
})

test('errors: what is no answer of Atoll, an unknown code and a server that is not there are told apart', async (t) => {
  const page = errorOf(502, new Headers(), '<html>Bad Gateway</html>')
  assert.ok(page instanceof sdk.UnexpectedAnswerError)
  // An answer to HEAD has no body; one of a proxy has no code either.
  const head = errorOf(401, new Headers({ 'x-error-code': 'unauthorized' }), '')
  assert.deepEqual([head.constructor, head.message], [sdk.UnauthorizedError, 'the server answered 401 (unauthorized)'])
  assert.ok(errorOf(401, new Headers({ 'x-error-code': 'teapot' }), '') instanceof sdk.UnexpectedAnswerError)
  const newer = errorOf(418, new Headers(), '{"error":"no tea","code":"teapot"}')
  assert.deepEqual([newer.constructor, newer.message, newer.code], [AtollError, 'no tea', undefined])
  const { client } = await fakeServer(t, [(_asked, response) => response.end('<html>')])
  await assert.rejects(client.json('GET', '/'), sdk.UnexpectedAnswerError)
  const nobody = new Atoll({ url: 'http://127.0.0.1:9', retries: 0 })
  await assert.rejects(
    nobody.json('GET', '/'),
    /^ConnectionError: http:\/\/127\.0\.0\.1:9 cannot be reached: no server may have that port$/,
  )
  const nameless = new Atoll({ url: 'http://nobody.invalid', retries: 0 })
  await assert.rejects(
    nameless.json('GET', '/'),
    /there is no machine of that name|cannot be looked up now|took too long/,
  )
  const { client: plain } = await fakeServer(t, [(_asked, response) => response.end()])
  const asTls = new Atoll({ url: plain.url.replace('http:', 'https:'), retries: 0 })
  await assert.rejects(asTls.json('GET', '/'), /speaks no TLS/)
  const closed = createServer().listen(0, '127.0.0.1')
  await once(closed, 'listening')
  const { port } = closed.address() as AddressInfo
  await new Promise((resolve) => closed.close(resolve))
  const refused = new Atoll({ url: `http://127.0.0.1:${port}`, retries: 0 })
  await assert.rejects(refused.json('GET', '/'), /cannot be reached: nothing listens there$/)
  await assert.rejects(new sdk.Files(refused, '/api/sandboxes/sb-x').upload('/none', '/x'), {
    name: 'AtollError',
    message: 'the upload was not begun: /none on this machine: there is no such file or folder',
  })
  assert.throws(() => new Atoll({ url: 'ftp://x' }), TypeError)
  assert.throws(() => new Atoll({ url: 'no url' }), /url must begin with http:.*"no url"/)
  assert.throws(() => new Atoll({ apiKey: 'a\nb' }), /^TypeError: apiKey holds characters that no key has$/)
})

test('timeouts: requestTimeoutMs ends an attempt, a signal ends all of them with its reason', async (t) => {
  const { client, asked } = await fakeServer(t, [() => undefined], { requestTimeoutMs: 1000, retries: 1 })
  await assert.rejects(
    client.json('GET', '/'),
    (error) => error instanceof sdk.RequestTimeoutError && /1000 ms/.test(error.message),
  )
  assert.equal(asked.length, 2)
  const mine = new Error('enough')
  const controller = new AbortController()
  const waiting = client.json('GET', '/', { signal: controller.signal, requestTimeoutMs: 60_000 })
  controller.abort(mine)
  await assert.rejects(waiting, mine)
  await assert.rejects(client.json('GET', '/', { signal: AbortSignal.abort(mine) }), mine)
})

test('connect: a longer life is set, a shorter one is not', async (t) => {
  for (const [has, wanted, isSet] of [
    [300, 600, true],
    [300, 60, false],
    [300, 0, true],
    [0, 600, false],
  ] as const) {
    const info = { ...started, timeout: has }
    const { client, asked } = await fakeServer(t, [json(200, info), json(200, {})])
    await Sandbox.connect('sb-1', { client, ttlSeconds: wanted })
    assert.deepEqual(
      asked.map(({ path, body }) => [path, body]),
      [['/api/sandboxes/sb-1', ''], ...(isSet ? [['/api/sandboxes/sb-1/timeout', `{"timeout":${wanted}}`]] : [])],
    )
  }
})

test('list: all pages, as they are needed', async (t) => {
  const page = (ids: string[], next?: string) =>
    json(
      200,
      ids.map((sandboxID) => ({ sandboxID })),
      next === undefined ? {} : { 'x-next-cursor': next },
    )
  const { client, asked } = await fakeServer(t, [page(['a', 'b'], 'two'), page(['c'])])
  const ids: string[] = []
  for await (const { sandboxID } of Sandbox.list({ client })) {
    ids.push(sandboxID)
    assert.equal(asked.length, ids.length > 2 ? 2 : 1)
  }
  assert.deepEqual(ids, ['a', 'b', 'c'])
  assert.equal(asked[1]?.path, '/api/sandboxes?cursor=two')
})

test('list: filters are repeated parameters', async (t) => {
  const { client, asked } = await fakeServer(t, [json(200, [])])
  const filters = { name: 'web', metadata: { a: 'b=c', d: '' }, tags: { e: '&', f: true } } as const
  assert.deepEqual(await Array.fromAsync(Sandbox.list({ client, ...filters })), [])
  const { searchParams } = new URL(asked[0]?.path ?? '', client.url)
  assert.deepEqual(
    [...searchParams],
    [
      ['name', 'web'],
      ['metadata', 'a=b=c'],
      ['metadata', 'd='],
      ['tag', 'e=&'],
      ['tag', 'f'],
    ],
  )
})

test('ids of the caller stay within their part of a path', async (t) => {
  const { client, asked } = await fakeServer(t, [refusal(404, 'not_found')])
  await assert.rejects(Sandbox.connect('../v1/sessions?x=#', { client }), sdk.NotFoundError)
  assert.equal(asked[0]?.path, '/api/sandboxes/..%2Fv1%2Fsessions%3Fx%3D%23')
})

test('await using deletes the sandbox', async (t) => {
  const { client, asked } = await fakeServer(t, [
    json(201, started),
    (_asked, response) => response.writeHead(204).end(),
  ])
  {
    await using sandbox = await Sandbox.create({ client })
    assert.equal(sandbox.url(3000), `${new URL(client.url).protocol}//sb-1-p3000.preview.localhost`)
  }
  assert.deepEqual([asked[1]?.method, asked[1]?.path], ['DELETE', '/api/sandboxes/sb-1'])
})

test('ignored: options that the SDK does not know, and names that the server has left out, are told', async (t) => {
  const told: [names: string[], request: string][] = []
  const ignoring = json(201, started, { 'x-atoll-ignored': 'memory, a%0Ab' })
  const onIgnored = (...facts: [string[], string]) => void told.push(facts)
  const { client } = await fakeServer(t, [ignoring, json(200, started)], { onIgnored })
  const options = { client, memory: 5, nothing: undefined }
  await Sandbox.create(options)
  const request = 'POST /api/sandboxes'
  assert.deepEqual(told.splice(0), [
    [['memory'], request],
    [['memory', 'a%0Ab'], request],
  ])
  await Sandbox.create({ client, memoryMB: 5 })
  assert.deepEqual(told, [])
})

test('ignored: without a listener the console warns once of each name', async (t) => {
  const warn = t.mock.method(console, 'warn', () => undefined)
  const { client } = await fakeServer(t, [json(200, {}, { 'x-atoll-ignored': 'a, b' })])
  for (let count = 0; count < 3; count++) await client.json('GET', '/api/host')
  assert.deepEqual(
    warn.mock.calls.map(({ arguments: [text] }) => text as unknown),
    ['atoll: GET /api/host does not know a, b, which was left out'],
  )
})

test('sign-in: a page sends its key once, is told whose it is, and may sign out', async (t) => {
  const whoami = { org_id: 'org_1', isOperator: false }
  const { client, asked } = await fakeServer(t, [
    json(200, whoami),
    (_asked, response) => void response.writeHead(204).end(),
  ])
  assert.deepEqual(await client.signIn('atoll_key'), whoami)
  await client.signOut()
  assert.deepEqual(
    asked.map(({ method, path, body }) => [method, path, body]),
    [
      ['POST', '/api/dashboard/sign-in', '{"key":"atoll_key"}'],
      ['POST', '/api/dashboard/sign-out', ''],
    ],
  )
})
