import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { connect } from 'node:net'
import { test, type TestContext } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { gunzipSync } from 'node:zlib'
import { ServiceError } from '../../src/errors.ts'
import type { ApiClient } from '../support/api-client.ts'
import { exchange } from '../support/api-client.ts'
import { restoring, useWorld } from '../support/world.ts'
import { makeWorld } from '../support/world.ts'
import type { World } from '../support/world.ts'

let ready = () => world.store.ping()
const world: World = useWorld({
  docs: { 'index.html': '<h1>Documentation</h1>', '404.html': '<h1>No such page</h1>' },
  limits: { bodyBytesMax: 20_000, sessionBodyBytesMax: 60_000 },
  ready: () => ready(),
})

test('http: without a key, or with one that is not known, both halves answer 401 in their shape', async () => {
  const { api } = world
  for (const key of [null, '', 'wrong', 'x'.repeat(600)]) {
    const sandboxes = await api.get('/api/sandboxes', { key })
    assert.deepEqual([sandboxes.status, sandboxes.body.code], [401, 'unauthorized'])
    const sessions = await api.get('/v1/sessions', { key })
    assert.deepEqual([sessions.status, sessions.body.error.type], [401, 'unauthorized'])
  }
})

test('http: a key is taken from X-API-Key and from Authorization, and not from the query of an ordinary request', async () => {
  const { api } = world
  assert.equal(
    (await api.get('/api/sandboxes', { key: null, headers: { authorization: `Bearer ${api.key}` } })).status,
    200,
  )
  assert.equal(
    (await api.get('/api/sandboxes', { key: null, headers: { authorization: `Basic ${api.key}` } })).status,
    401,
  )
  assert.equal((await api.get(`/api/sandboxes?api_key=${api.key}`, { key: null })).status, 401)
})

test('http: unknown addresses answer 404 in the shape of their half', async () => {
  const { api } = world
  for (const path of ['/api/nothing', '/nothing', '/api/sandboxes/sb-x/nothing', '/apiv1']) {
    const { status, body } = await api.raw('GET', path)
    assert.deepEqual([status, body.code], [404, 'not_found'], path)
  }
  const { status, body } = await api.raw('POST', '/v1/nothing', { body: {} })
  assert.deepEqual([status, body.error.type], [404, 'not_found'])
  assert.equal((await api.raw('PATCH', '/api/sandboxes')).status, 404)
})

test('http: a broken percent escape is refused and named, in the path and in the query, before anything is done', async () => {
  const { api } = world
  const id = await world.sandbox()
  for (const broken of ['%', '%z', '%4', '%zz', '%ff', '%E0%A4%A', 'a%u0041', '%%41']) {
    for (const path of [
      `/api/sandboxes/${broken}`,
      `/api/sandboxes?status=${broken}`,
      `/api/sandboxes/${id}/files?path=/tmp/${broken}`,
      `/v1/sessions/${broken}`,
      `/v1/sessions?user_id=${broken}`,
      `/docs?${broken}`,
    ]) {
      const answer = await api.raw('GET', path)
      const told = answer.body
      const { message, code } = path.startsWith('/v1') ? told.error : { message: told.error, code: told.code }
      assert.deepEqual([answer.status, code], [400, 'invalid_request'], path)
      assert.match(message, /percent sign that is not followed by two hexadecimal digits/, path)
    }
    const written = await api.raw('PUT', `/api/sandboxes/${id}/files?path=/tmp/${broken}`, { body: 'x' })
    assert.equal(written.status, 400)
  }
  const listed = await api.get(`/api/sandboxes/${id}/files/list?path=${encodeURIComponent('/tmp/50% of ü+')}`)
  assert.equal(listed.status, 404)
})

test('http: HEAD is answered like GET, without the body, for pages and probes', async () => {
  const { api } = world
  const paths = ['/', '/docs', '/docs/', '/docs/api', '/docs/api/scalar.js']
  for (const path of [...paths, '/openapi.json', '/healthz', '/readyz', '/metrics']) {
    const [get, head] = [await api.raw('GET', path), await api.raw('HEAD', path)]
    assert.deepEqual([head.status, head.bytes.length], [200, 0], path)
    assert.deepEqual([get.status, get.headers['content-type']], [200, head.headers['content-type']], path)
  }
  assert.equal((await api.raw('GET', '/docs/')).text, (await api.raw('GET', '/docs')).text)
  assert.equal((await api.raw('HEAD', '/docs/none')).status, 404)
})

test('http: ids that no id can be answer 404, whatever is in them', async () => {
  const { api, logs } = world
  const long = [100, 101, 150, 16_000].map((length) => 'x'.repeat(length))
  for (const id of ['sb-unknown00000', '%00', '%2e%2e', '%ff', "'; drop table sandboxes; --", '🙂', ...long]) {
    const { status } = await api.raw('GET', `/api/sandboxes/${id.startsWith('%') ? id : encodeURIComponent(id)}`)
    assert.ok(status === 404 || (status === 400 && id === '%ff'), `${id}: ${status}`)
    const session = await api.raw('GET', `/v1/sessions/${id.startsWith('%') ? id : encodeURIComponent(id)}`)
    assert.equal(session.status, status)
  }
  const errors = logs.filter(({ level }) => level === 'error')
  assert.deepEqual(errors, [])
})

test('http: a malformed body answers 400 in the shape of its half', async () => {
  const { api } = world
  for (const body of ['{', '{"timeout":', 'nonsense', '"text"', '[]', '5', 'null', Buffer.from([0x7b, 0xff, 0x7d])]) {
    const { status, body: answer } = await api.post('/api/sandboxes', body)
    assert.deepEqual([status, answer.code], [400, 'invalid_request'], String(body))
    const session = await api.post('/v1/sessions', body)
    assert.deepEqual([session.status, session.body.error.type], [400, 'invalid_request'])
  }
})

test('http: a key __proto__, which no object keeps as others, is refused and named', async () => {
  const { api } = world
  const id = await world.sandbox()
  for (const [answer, field] of [
    [await api.put(`/api/sandboxes/${id}/tags`, '{"__proto__":"x"}'), '__proto__'],
    [await api.post('/api/sandboxes', '{"envs":{"a":"b","__proto__":"x"}}'), 'envs'],
    [await api.post('/api/sandboxes', '{"metadata":{"\\u005f_proto__":"x"}}'), 'metadata'],
  ] as const) {
    assert.deepEqual([answer.status, answer.body.code, answer.body.field], [400, 'invalid_request', field])
  }
  const deep = `${'['.repeat(9000)}${']'.repeat(9000)}`
  assert.equal((await api.put(`/api/sandboxes/${id}/tags`, `{"a":${deep}}`)).status, 413)
})

test('http: the service accepts the bounds of `openapi.json`: sizes of terminals and of uploads', async () => {
  const { api } = world
  const id = await world.sandbox()
  for (const [path, field, least, most] of [
    ['pty', 'cols', 1, 4096],
    ['pty', 'rows', 1, 4096],
    ['files/upload-url', 'maxBytes', 1, Number.MAX_SAFE_INTEGER],
  ] as const) {
    const ask = (value: number) => api.post(`/api/sandboxes/${id}/${path}`, { path: '/a', [field]: value })
    for (const value of [least, most]) assert.ok((await ask(value)).status < 300, `${field}: ${value}`)
    for (const value of [least - 1, most + 1]) {
      const refused = await ask(value)
      assert.deepEqual([refused.status, refused.body.field], [400, field])
    }
  }
})

test('http: a body over the limit answers 413, said or streamed, and sessions may be larger', async () => {
  const { api, origin } = world
  const large = JSON.stringify({ metadata: { a: 'x'.repeat(30_000) } })
  const path = '/api/sandboxes/sb-unknown00000/wake'
  const said = await api.post(path, large)
  assert.deepEqual([said.status, said.body.code, said.headers.connection], [413, 'too_large', 'close'])
  const streamed = await exchange(`${origin}${path}`, {
    method: 'POST',
    headers: { 'x-api-key': api.key, 'transfer-encoding': 'chunked' },
    payload: large,
  })
  assert.equal(streamed.status, 413)
  const prompt = 'x'.repeat(30_000)
  assert.equal((await api.post('/v1/sessions', { prompt, user_id: 'u' })).status, 201)
  const session = await api.post('/v1/sessions', { prompt: prompt.repeat(3), user_id: 'u' })
  assert.deepEqual(
    [session.status, session.body.error.type, session.body.error.code],
    [413, 'invalid_request', 'too_large'],
  )
})

test('http: a client that sends all of a large body before it reads sees why it was refused, and nothing behind that body is heard', async () => {
  const bytes = 32 * 1024 * 1024
  for (const [key, status] of [
    [world.api.key, 413],
    // Its body waits while the database is asked for the key.
    ['unknown', 401],
  ] as const) {
    const socket = connect({ port: world.port, host: '127.0.0.1', allowHalfOpen: true })
    socket.pause()
    const sent = Promise.withResolvers<void>()
    socket.on('error', sent.reject)
    socket.write(`POST /v1/sessions HTTP/1.1\r\nHost: x\r\nX-API-Key: ${key}\r\nContent-Length: ${bytes}\r\n\r\n`)
    socket.write(Buffer.alloc(bytes, 'x'))
    socket.write(`GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n`, () => sent.resolve())
    await sent.promise
    const text = (await socket.toArray()).map(String).join('')
    assert.match(text, new RegExp(`^HTTP/1\\.1 ${status} `))
    assert.equal(text.split('HTTP/1.1').length, 2, 'one answer')
    socket.end()
  }
})

test('http: a client may leave in the middle of its body', async () => {
  const socket = connect(world.port, '127.0.0.1')
  socket.write(`POST /api/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: ${world.api.key}\r\nContent-Length: 100\r\n\r\n{`)
  await new Promise((resolve) => setTimeout(resolve, 50))
  socket.destroy()
  assert.equal((await world.api.get('/healthz')).status, 200)
})

test('http: browsers of any origin may send requests, with a preflight', async () => {
  const preflight = await world.api.raw('OPTIONS', '/v1/sessions', {
    key: null,
    headers: { origin: 'http://a.example' },
  })
  assert.equal(preflight.status, 204)
  assert.equal(preflight.headers['access-control-allow-origin'], '*')
  assert.match(String(preflight.headers['access-control-allow-headers']), /X-API-Key/)
  assert.match(String(preflight.headers['access-control-allow-methods']), /DELETE/)
  const failed = await world.api.get('/api/sandboxes', { key: null })
  assert.equal(failed.headers['access-control-allow-origin'], '*')
})

test('http: an unknown error is logged whole, and the answer reveals nothing of it', async (t) => {
  const { sandboxes, api } = world
  restoring(t, sandboxes, 'get')
  sandboxes.get = () => Promise.reject(new Error('the secret is 1234'))
  const { status, text, body } = await api.get('/api/sandboxes/sb-abcdefghijklmnop')
  assert.equal(status, 500)
  assert.doesNotMatch(text, /1234/)
  assert.deepEqual(body, { error: 'Internal Server Error', code: 'internal_error' })
  const line = world.logs.find(({ level }) => level === 'error')
  assert.ok(line)
  assert.match(String((line.facts as { err: Error }).err), /1234/)
})

test('http: 503 and 429 say when to come back, with the facts of the error and none of its own headers in the body', async (t) => {
  const { sandboxes, api } = world
  restoring(t, sandboxes, 'get')
  sandboxes.get = () =>
    Promise.reject(new ServiceError('no_capacity', 'full', { details: { retryAfterSeconds: 12.2, wanted: 3 } }))
  const { status, headers, body } = await api.get('/api/sandboxes/sb-abcdefghijklmnop')
  assert.deepEqual([status, headers['retry-after']], [503, '13'])
  assert.deepEqual(body, { error: 'full', code: 'no_capacity', wanted: 3 })
})

test('http: keys, signatures and tokens in a query reach no log', async () => {
  const { api } = world
  await api.get(`/v1/sessions/session_none/events?api_key=${api.key}&token=tok-secret-1`, { key: null })
  await api.get('/api/sandboxes/sb-x/files/download?path=/a&expires=1&signature=abcdef123456', { key: null })
  const all = JSON.stringify(world.logs, (_key, value: unknown) =>
    value instanceof Error ? String(value.stack) : value,
  )
  for (const secret of [api.key, 'tok-secret-1', 'abcdef123456', 'api_key']) assert.ok(!all.includes(secret), secret)
  assert.ok(all.includes('/v1/sessions/session_none/events'))
})

test('http: the server answers its health, its metrics and its reference', async () => {
  const { api } = world
  const open = { key: null }
  assert.deepEqual((await api.get('/healthz', open)).body, { status: 'ok' })
  assert.deepEqual((await api.get('/readyz', open)).body, { status: 'ok' })
  await world.sandbox()
  await api.get('/api/sandboxes/sb-unknown00000')
  const metrics = await api.get('/metrics', open)
  assert.match(
    metrics.text,
    /atoll_http_request_duration_seconds_count\{method="GET",route="\/api\/sandboxes\/:id",status="404"\} [1-9]/,
  )
  assert.match(metrics.text, /atoll_running_sandboxes [1-9]/)
  assert.match(metrics.text, /atoll_open_streams\{kind="events"\} 0/)
  assert.match(metrics.text, /process_resident_memory_bytes/)
  for (const mark of ['x-forwarded-for', 'x-forwarded-host', 'forwarded', 'via']) {
    const passedOn = await api.get('/metrics', { ...open, headers: { [mark]: 'x' } })
    assert.deepEqual([passedOn.status, passedOn.body.code], [404, 'not_found'], mark)
  }
  assert.equal((await api.get('/openapi.json', open)).body.openapi, '3.1.0')
  const page = await api.get('/docs/api', open)
  assert.match(page.headers['content-type'] ?? '', /text\/html/)
  const policy = String(page.headers['content-security-policy'])
  assert.match(policy, /default-src 'none'; script-src 'self';/)
  assert.doesNotMatch(page.text + policy, /https?:|\*/, 'the page loads from its own origin alone')
  const [, source = ''] = /<script src="(\/[^/"][^"]*)"><\/script>/.exec(page.text) ?? []
  assert.equal(page.text.split('<script').length, 2, 'no inline script')
  const script = await api.get(source, open)
  assert.match(script.headers['content-type'] ?? '', /^text\/javascript/)
  assert.match(script.text, /api-reference/)
  const packed = await api.get(source, { ...open, headers: { 'accept-encoding': 'br, gzip' } })
  assert.deepEqual([packed.headers['content-encoding'], gunzipSync(packed.bytes)], ['gzip', script.bytes])
  const unchanged = await api.get(source, { ...open, headers: { 'if-none-match': String(script.headers.etag) } })
  assert.deepEqual([unchanged.status, unchanged.bytes.length], [304, 0])
  assert.equal((await api.get('/', open)).body.docs, '/docs')
  const home = await api.raw('GET', '/', {
    ...open,
    headers: { accept: 'text/html,*/*;q=0.8' },
    host: 'atoll.example"><b>',
  })
  assert.match(home.headers['content-type'] ?? '', /^text\/html/)
  assert.match(home.text, /href="\/docs"/)
  assert.doesNotMatch(home.text, /<script|<b>"|src=|@import|url\(/, 'nothing is loaded')
})

test('http: malformed HTTP is refused in the shape of the API', async () => {
  for (const [text, status] of [
    ['nonsense\r\n\r\n', 400],
    ['GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n', 400],
    ['GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n', 400],
    [`GET / HTTP/1.1\r\nHost: a\r\nX-Long: ${'x'.repeat(40_000)}\r\n\r\n`, 431],
  ] as const) {
    const socket = connect(world.port, '127.0.0.1')
    socket.on('error', () => {})
    socket.write(text)
    const [head = '', body = ''] = (await socket.toArray()).map(String).join('').split('\r\n\r\n')
    assert.match(head, new RegExp(`^HTTP/1\\.1 ${status} `))
    assert.equal(JSON.parse(body).code, 'invalid_request')
  }
})

test('http: a plain upgrade request for something else than a WebSocket is answered as if it asked for nothing', async () => {
  const headers = { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': 'AAMAAABkAAQAAP__' }
  assert.equal((await world.api.get('/healthz', { headers })).status, 200)
})

test('http: requests at the same time whether the server is ready share one look at the database', async (t) => {
  let looks = 0
  const looking = Promise.withResolvers<void>()
  restoreReady(t)
  ready = () => {
    looks++
    return looking.promise
  }
  const arrived = Promise.withResolvers<void>()
  let requests = 0
  const count = () => {
    if (++requests === 20) arrived.resolve()
  }
  subscribe('http.server.request.start', count)
  const answers = Array.from({ length: 20 }, () => world.api.get('/readyz', { key: null }))
  await arrived.promise
  unsubscribe('http.server.request.start', count)
  // Each asks before anything else comes in.
  await setImmediate()
  looking.resolve()
  for (const { status } of await Promise.all(answers)) assert.equal(status, 200)
  assert.equal(looks, 1)
})

test('http: a server that is not ready says so', async (t) => {
  restoreReady(t)
  ready = () => Promise.reject(new ServiceError('unavailable', 'no database'))
  const { status, headers } = await world.api.get('/readyz', { key: null })
  assert.deepEqual([status, headers['retry-after']], [503, '1'])
  assert.equal((await world.api.get('/healthz')).status, 200)
})

function restoreReady(t: TestContext): void {
  const before = ready
  t.after(() => {
    ready = before
  })
}

test('http: no custom domain is taken while the server does not know under which name clients reach its API', async () => {
  const path = `/api/sandboxes/${await world.sandbox()}/preview`
  const domain = 'app.example.com'
  world.prove(domain)
  const { status, body } = await world.api.post(path, { port: 1, domain })
  assert.deepEqual([status, body.code, body.field], [400, 'invalid_request', 'domain'])
  assert.match(body.error, /^domain .*ATOLL_PUBLIC_URL/)
  assert.deepEqual((await world.api.get(path)).body, [], 'nothing is left of it')
  assert.equal((await world.api.post(path, { port: 1, domain: null })).status, 201)
  assert.deepEqual(world.records.asked, [])
})

test('http: an organisation and each of its keys are held to their rates, and others are not touched', async () => {
  // Two seconds of a rate are let through at once; so many requests take less time than the rest of them would need.
  const asked = async (api: ApiClient, count: number, keys: readonly string[]) =>
    await Promise.all(
      Array.from({ length: count }, (_, index) => api.get('/api/tags', { key: keys[index % keys.length] ?? null })),
    )
  const served = (answers: { status: number }[]) => answers.filter(({ status }) => status === 200).length
  for (const [organisationLimits, refusal] of [
    [{ requestsPerSecondPerKey: 3, requestsPerSecond: 1000 }, /"too many requests"/],
    [{ requestsPerSecondPerKey: 1000, requestsPerSecond: 5 }, /too many requests of the organisation/],
  ] as const) {
    await using limited = await makeWorld({ organisationLimits })
    const { api, stranger } = limited
    const made = await Promise.all(['one', 'two'].map((name) => api.post('/api/keys', { name })))
    const keys = made.map(({ body }) => (body as { key: string }).key)
    const answers = await asked(api, 60, organisationLimits.requestsPerSecondPerKey === 3 ? keys.slice(0, 1) : keys)
    assert.ok(served(answers) >= 6 && served(answers) < 60, `${served(answers)} of 60`)
    const refused = answers.find(({ status }) => status === 429)
    assert.match(JSON.stringify(refused?.body), refusal)
    assert.equal((await stranger.get('/api/tags')).status, 200)
  }
})

test('http: the event streams and WebSockets of an organisation are bounded by its limits', async () => {
  await using limited = await makeWorld({ organisationLimits: { eventStreamsMax: 1 } })
  const ending = new AbortController()
  const open = (key: string) =>
    fetch(`${limited.origin}/api/events?follow=true`, { headers: { 'X-API-Key': key }, signal: ending.signal })
  const first = await open(limited.api.key)
  assert.equal(first.status, 200)
  const refused = await open(limited.api.key)
  assert.equal(refused.status, 429)
  assert.match(await refused.text(), /the organisation has 1 event streams open already/)
  assert.equal((await open(limited.stranger.key)).status, 200)
  ending.abort()
})

test('http: a key or a token may burst and is then held to its rate; others are not touched', async () => {
  await using limited = await makeWorld({ limits: { requestsPerSecond: 0.001, requestBurst: 8 } })
  const { api, stranger } = limited
  const { id } = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'ann' })).body
  for (const [ttl, path, status] of [
    [60, `/v1/sessions/${id}/interrupt`, 403],
    [120, '/v1/sessions/session_another0000/interrupt', 404],
  ] as const) {
    const { token } = (await api.post(`/v1/sessions/${id}/tokens`, { user_id: 'ann', scope: 'read', ttl })).body
    const refusals: number[] = []
    for (let index = 0; index < 9; index++) {
      refusals.push((await api.post(`${path}?token=${token}`, { user_id: 'ann' }, { key: null })).status)
    }
    assert.deepEqual(refusals, [...Array.from({ length: 8 }, () => status), 429], 'a token has a rate of its own')
  }
  // One token of the address pays for looking a new key up.
  const statuses: number[] = []
  for (let index = 0; index < 7; index++) statuses.push((await api.get('/api/tags')).status)
  assert.deepEqual(statuses.slice(0, 5), [200, 200, 200, 200, 200])
  assert.ok(statuses.includes(429))
  const refused = await api.get('/v1/sessions')
  assert.deepEqual([refused.status, refused.body.error.type], [429, 'rate_limited'])
  assert.ok(Number(refused.headers['retry-after']) >= 1)
  assert.equal((await stranger.get('/api/tags')).status, 200)
  const open: number[] = []
  for (let index = 0; index < 8; index++) open.push((await api.get('/', { key: null })).status)
  assert.ok(open.includes(429), 'addresses without a key are limited too')
  assert.equal((await api.get('/healthz', { key: null })).status, 200, 'probes are not')
})

test('http: a stopping server finishes what is under way, ends streams, and takes no more connections', async () => {
  const stopping = await makeWorld()
  const { api, origin, sessions } = stopping
  const id = await stopping.sandbox()
  const session = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body.id as string
  const running = api.post(`/api/sandboxes/${id}/exec/run`, { cmd: 'sleep 1; echo done' })
  const stream = await fetch(`${origin}/v1/sessions/${session}/events?api_key=${api.key}`)
  const streamed = stream.text()
  sessions.emit(session, { type: 'ready' })
  const socket = new WebSocket(
    `${origin.replace('http', 'ws')}/api/sandboxes/${id}/exec/${await startCat(stopping, id)}?api_key=${api.key}`,
  )
  await once(socket, 'open')
  const closed = once(socket, 'close') as Promise<[CloseEvent]>
  await new Promise((resolve) => setTimeout(resolve, 100))
  // The command may take its time to start.
  const stopped = stopping.close(60_000)
  assert.match(await streamed, /id: 1\ndata: \{"type":"ready"\}/)
  assert.equal((await closed)[0].code, 1001)
  assert.equal((await running).body.stdout, 'done\n')
  await stopped
  await assert.rejects(api.get('/healthz'))
})

test('http: a stream that is asked for on a kept connection while the server stops does not hold it up', async () => {
  const stopping = await makeWorld()
  const { api, port, sessions, logs } = stopping
  const { id } = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body
  const { get, stream } = sessions
  const [asked, goOn, askedToStream] = Array.from({ length: 3 }, () => Promise.withResolvers<void>())
  sessions.get = async (...query) => {
    asked!.resolve()
    await goOn!.promise
    return await get.apply(sessions, query)
  }
  sessions.stream = async (...query) => {
    askedToStream!.resolve()
    return await stream.apply(sessions, query)
  }
  const socket = connect(port, '127.0.0.1')
  const request = (path: string) => `GET /v1/sessions/${id}${path} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${api.key}\r\n\r\n`
  socket.write(request(''))
  await asked!.promise
  const stopped = stopping.close(60_000)
  socket.write(request('/events'))
  await askedToStream!.promise
  goOn!.resolve()
  await stopped
  const text = (await socket.toArray()).map(String).join('')
  assert.match(text, /content-type: text\/event-stream/)
  assert.ok(!logs.some(({ message }) => message.includes('cut off')))
})

async function startCat({ api }: World, id: string): Promise<string> {
  return (await api.post(`/api/sandboxes/${id}/exec`, { cmd: 'cat' })).body.sessionID as string
}
