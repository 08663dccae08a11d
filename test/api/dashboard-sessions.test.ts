/** Sessions of browsers: the cookie that stands for a key, what it opens, and who cannot use it. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { BrowserSessions } from '../../src/http/server/browser-sessions.ts'
import { routes } from '../../src/http/routes/index.ts'
import { newId } from '../../src/lib/id.ts'
import { sha256 } from '../../src/lib/secret.ts'
import type { ApiAnswer } from '../support/api-client.ts'
import { withExpiringKey } from '../support/expiring-key.ts'
import { operatorKey, signingSecret, useWorld } from '../support/world.ts'

const world = useWorld({ trustProxy: true })
const unsigned = { key: null } as const

interface Browser {
  origin?: string
  headers?: Record<string, string>
}

async function signIn(key: string, { origin = world.origin, headers = {} }: Browser = {}): Promise<ApiAnswer> {
  return await world.api.post('/api/dashboard/sign-in', { key }, { ...unsigned, headers: { origin, ...headers } })
}

/** `name=value` of the cookie that an answer sets. */
function pairOf({ headers }: ApiAnswer): string {
  return (headers['set-cookie']?.[0] ?? '').split(';', 1)[0] ?? ''
}

async function cookieOf(key = world.api.key): Promise<string> {
  const answer = await signIn(key)
  assert.equal(answer.status, 200, answer.text)
  return pairOf(answer)
}

/** A call of a page of the server. */
async function call(
  method: string,
  path: string,
  cookie: string,
  { body, headers = {} }: { body?: unknown; headers?: Record<string, string> } = {},
) {
  return await world.api.send(method, path, {
    ...unsigned,
    ...(body === undefined ? {} : { body }),
    headers: {
      cookie,
      'sec-fetch-site': 'same-origin',
      ...(method === 'GET' ? {} : { origin: world.origin }),
      ...headers,
    },
  })
}

async function keyWith(body: object): Promise<{ key: string; id: string }> {
  const made = await world.api.post('/api/keys', body)
  assert.equal(made.status, 201, made.text)
  return made.body as { key: string; id: string }
}

test('sign-in: a key becomes a cookie that no script sees, and says whose it is', async () => {
  const answer = await signIn(world.api.key)
  const whoami = await world.api.get('/api/whoami')
  assert.deepEqual([answer.status, answer.body], [200, whoami.body])
  assert.equal(answer.body.isOperator, false)
  assert.match(
    String(answer.headers['set-cookie']),
    /^atoll_dashboard=[^;]+; Path=\/; Max-Age=4\d{4}; HttpOnly; SameSite=Strict$/,
  )
  assert.equal(answer.headers['cache-control'], 'no-store')
  assert.ok(!String(answer.headers['set-cookie']).includes(world.api.key))
  const cookie = pairOf(answer)
  assert.deepEqual((await call('GET', '/api/whoami', cookie)).body, whoami.body)
  const created = await call('POST', '/api/sandboxes', cookie, { body: {} })
  assert.equal(created.status, 201)
  assert.equal((await call('DELETE', `/api/sandboxes/${created.body.sandboxID}`, cookie)).status, 204)
})

test('sign-in: behind a proxy with TLS the cookie is of this host alone, and only that name counts', async () => {
  const tls = { 'x-forwarded-proto': 'https', 'x-forwarded-host': 'api.example.com' }
  const answer = await signIn(world.api.key, { origin: 'https://api.example.com', headers: tls })
  assert.match(String(answer.headers['set-cookie']), /^__Host-atoll=[^;]+; Path=\/; .*; Secure$/)
  assert.ok(!/domain/i.test(String(answer.headers['set-cookie'])))
  const value = pairOf(answer).slice('__Host-atoll='.length)
  const status = async (cookie: string, headers: Record<string, string>) =>
    (await world.api.get('/api/whoami', { ...unsigned, headers: { cookie, ...headers } })).status
  assert.equal(await status(`__Host-atoll=${value}`, tls), 200)
  assert.equal(await status(`atoll_dashboard=${value}`, tls), 401)
  assert.equal(await status(`__Host-atoll=${value}`, {}), 401)
})

test('sign-in: a key that is unknown, has ended or is of another form gets no cookie', async () => {
  const { key, id } = await keyWith({})
  await world.api.delete(`/api/keys/${id}`)
  // No call makes a key that has expired.
  const expired = `atoll_${'e'.repeat(48)}`
  await world.store.organisations.insertApiKey({
    ...{ id: newId('key_'), orgId: world.orgId, keyHash: sha256(expired) },
    ...{ createdAt: new Date(Date.now() - 2000), expiresAt: new Date(Date.now() - 1000) },
  })
  for (const wrong of [key, expired, 'atoll_x', `${world.api.key} `, sha256(world.api.key)]) {
    const answer = await signIn(wrong)
    assert.deepEqual([answer.status, answer.body.code, answer.headers['set-cookie']], [401, 'unauthorized', undefined])
  }
  for (const body of [{}, { key: '' }, { key: 'x'.repeat(513) }, { key: 7 }, { key: world.api.key, more: 1 }]) {
    const { status, headers } = await world.api.post('/api/dashboard/sign-in', body, {
      ...unsigned,
      headers: { origin: world.origin },
    })
    assert.deepEqual([status, headers['set-cookie']], [400, undefined], JSON.stringify(body))
  }
})

test('sign-in: the page of another origin signs nobody in or out', async () => {
  const other = `http://sb-0000000000000000-p3000.preview.test`
  const cookie = await cookieOf()
  for (const headers of [
    {},
    { origin: other },
    { origin: 'null' },
    { origin: world.origin, 'sec-fetch-site': 'same-site' },
    { origin: world.origin, 'sec-fetch-site': 'cross-site' },
  ] as Record<string, string>[]) {
    for (const [path, body] of [
      ['/api/dashboard/sign-in', { key: world.api.key }],
      ['/api/dashboard/sign-out', undefined],
    ] as const) {
      const answer = await world.api.post(path, body, { ...unsigned, headers: { cookie, ...headers } })
      assert.deepEqual([answer.status, answer.body.code, answer.headers['set-cookie']], [403, 'forbidden', undefined])
    }
  }
})

test('sign-out: it removes the cookie, also one that is not valid or not there', async () => {
  const cookie = await cookieOf()
  for (const given of [cookie, 'atoll_dashboard=x', '']) {
    const answer = await call('POST', '/api/dashboard/sign-out', given)
    assert.deepEqual([answer.status, answer.text], [204, ''])
    assert.match(
      String(answer.headers['set-cookie']),
      /^atoll_dashboard=; Path=\/; Max-Age=0; HttpOnly; SameSite=Strict$/,
    )
  }
})

test('browser session: the operator has one too, for its calls alone', async () => {
  const answer = await signIn(operatorKey)
  assert.deepEqual([answer.status, answer.body.isOperator, answer.body.org_id], [200, true, ''])
  const cookie = pairOf(answer)
  assert.equal((await call('GET', '/api/whoami', cookie)).body.isOperator, true)
  assert.equal((await call('GET', '/api/orgs', cookie)).status, 200)
  assert.equal((await call('GET', '/api/sandboxes', cookie)).status, 401)
  assert.equal((await call('GET', '/api/orgs', await cookieOf())).status, 403)
})

test('browser session: what is forged, of another key, of another server or over opens nothing', async () => {
  const mine = await cookieOf()
  const [, value = ''] = mine.split('=')
  const [hash = '', end = '', code = ''] = value.split('.')
  const asked = { method: 'POST', host: '', protocol: 'http', ws: false, headers: {} }
  const begun = (secret: string, ends?: Date) =>
    new BrowserSessions({ signingSecret: secret }).begin(asked, hash, ends).split(';', 1)[0] ?? ''
  for (const cookie of [
    `atoll_dashboard=${sha256(world.stranger.key)}.${end}.${code}`,
    `atoll_dashboard=${sha256(operatorKey)}.${end}.${code}`,
    `atoll_dashboard=${hash}.${Number(end) + 1}.${code}`,
    `atoll_dashboard=${hash}.${end}.${'A'.repeat(43)}`,
    `atoll_dashboard=${world.api.key}`,
    `__Host-atoll=${value}`,
    begun('the signing secret of another server'),
    begun(signingSecret, new Date(Date.now() - 1)),
  ]) {
    const answer = await call('GET', '/api/whoami', cookie)
    assert.deepEqual([answer.status, answer.body.code], [401, 'unauthorized'], cookie)
  }
  assert.match((await call('GET', '/api/whoami', 'atoll_dashboard=x')).body.error, /sign in again/)
  const crowd = Array.from({ length: 20 }, (_, index) => `atoll_dashboard=${index}`).join('; ')
  assert.equal((await call('GET', '/api/whoami', `${crowd}; ${mine}`)).status, 200)
})

test('browser session: it has the scopes of its key, and ends with it at once, streams included', async () => {
  const { key, id } = await keyWith({ scopes: ['sandbox:read', 'events'] })
  const cookie = await cookieOf(key)
  assert.equal((await call('GET', '/api/sandboxes', cookie)).status, 200)
  const refused = await call('POST', '/api/sandboxes', cookie, { body: {} })
  assert.deepEqual([refused.status, refused.body.scope], [403, 'sandbox:write'])
  const stream = await fetch(`${world.origin}/api/events`, { headers: { cookie } })
  assert.equal(stream.status, 200)
  const ended = stream.text().catch(() => 'cut')
  assert.equal((await world.api.delete(`/api/keys/${id}`)).status, 204)
  await ended
  const after = await call('GET', '/api/sandboxes', cookie)
  assert.equal(after.status, 401)
  assert.match(after.body.error, /sign in again/)
})

test('browser session: a stream ends with it', async () => {
  await withExpiringKey(world.api, async (key, ends) => {
    const cookie = pairOf(await signIn(key))
    // It may end before the answer has begun.
    const stream = await fetch(`${world.origin}/api/events`, { headers: { cookie } }).catch(() => undefined)
    if (stream?.status !== 200) return false
    const text = stream.text().catch(() => 'cut')
    await text
    assert.ok(Date.now() >= ends.getTime() - 100)
    return true
  })
})

test('browser session: a suspended organisation has none, and signs out all the same', async () => {
  const { body: org } = await world.operator.post('/api/orgs', { name: 'Shoal' })
  const { body: key } = await world.operator.post(`/api/orgs/${org.id}/keys`, {})
  const cookie = await cookieOf(key.key)
  assert.equal((await world.operator.post(`/api/orgs/${org.id}/suspend`, {})).status, 200)
  assert.equal((await call('GET', '/api/whoami', cookie)).body.code, 'organisation_suspended')
  const again = await signIn(key.key)
  assert.deepEqual([again.body.code, again.headers['set-cookie']], ['organisation_suspended', undefined])
  assert.equal((await call('POST', '/api/dashboard/sign-out', cookie)).status, 204)
})

test('browser session: a key or a token that is shown goes before the cookie', async () => {
  const cookie = await cookieOf()
  const status = async (path: string, headers: Record<string, string>) =>
    (await world.api.raw('GET', path, { ...unsigned, headers: { cookie, ...headers } })).status
  assert.equal(await status('/api/whoami', { 'x-api-key': 'atoll_wrong' }), 401)
  assert.equal(await status('/api/whoami', { authorization: 'Bearer atoll_wrong' }), 401)
  assert.equal(await status('/api/events?api_key=atoll_wrong&follow=false', {}), 401)
  assert.equal(await status('/api/whoami?api_key=atoll_wrong', {}), 401)
  assert.equal(await status('/v1/sessions?token=st.x', {}), 401)
  // A proxy's own password is no key.
  assert.equal(await status('/api/whoami', { authorization: 'Basic YTpi' }), 200)
  // With a key any page may call, whatever else its browser sends.
  const other = { origin: 'https://app.example.com', 'sec-fetch-site': 'cross-site' }
  const answer = await world.api.get('/api/whoami', { headers: { cookie, ...other } })
  assert.deepEqual([answer.status, answer.headers['access-control-allow-origin']], [200, '*'])
  assert.equal(answer.headers['access-control-allow-credentials'], undefined)
})

test('browser session: neither MCP nor ports by the API take it', async () => {
  const cookie = await cookieOf()
  const id = await world.sandbox()
  const body = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
  for (const [method, path] of [
    ['POST', '/mcp'],
    ['GET', '/mcp'],
    ['DELETE', '/mcp'],
    ['GET', `/api/sandboxes/${id}/ports/3000/proxy/`],
    ['GET', `/api/sandboxes/${id}/ports/3000/proxy`],
    ['GET', `/api/sandboxes/${id}/ports/3000/proxy?y`],
    ['POST', `/api/sandboxes/${id}/ports/3000/proxy/x`],
    ['PUT', `/api/sandboxes/${id}/ports/3000/proxy/..%2f..%2ffiles`],
  ] as const) {
    const headers = { cookie, origin: world.origin, accept: 'application/json, text/event-stream' }
    const given = method === 'POST' ? { body } : {}
    const { status } = await world.api.raw(method, path, { ...unsigned, ...given, headers })
    assert.equal(status, 401, `${method} ${path}`)
  }
  assert.deepEqual(
    routes.filter(({ takesCookie }) => takesCookie === false).map(({ id: operation }) => operation),
    ['fetchPort', 'callMcp', 'openMcpStream', 'endMcpSession'],
  )
})

test('browser session: the page of another origin cannot use the cookie, which its browser sends', async () => {
  const cookie = await cookieOf()
  const id = await world.sandbox()
  const preview = `http://${id}-p3000.preview.test`
  const refused: [method: string, path: string, headers: Record<string, string>][] = [
    ['GET', '/api/sandboxes', { 'sec-fetch-site': 'same-site' }],
    ['GET', '/api/sandboxes', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' }],
    ['GET', '/api/sandboxes', { origin: preview }],
    ['GET', '/api/sandboxes', { origin: 'null' }],
    ['GET', '/api/events', { origin: preview, 'sec-fetch-site': 'same-site' }],
    ['HEAD', `/api/sandboxes/${id}/files?path=/etc/hostname`, { 'sec-fetch-site': 'same-site' }],
    ['DELETE', `/api/sandboxes/${id}`, {}],
    ['DELETE', `/api/sandboxes/${id}`, { 'sec-fetch-site': 'same-origin' }],
    ['DELETE', `/api/sandboxes/${id}`, { origin: preview }],
    ['DELETE', `/api/sandboxes/${id}`, { origin: world.origin, 'sec-fetch-site': 'same-site' }],
    ['POST', '/api/sandboxes', { origin: preview, 'content-type': 'text/plain' }],
    ['POST', '/api/keys', { origin: 'null' }],
    ['PUT', `/api/sandboxes/${id}/files?path=/tmp/x`, { origin: 'http://127.0.0.1' }],
  ]
  for (const [method, path, headers] of refused) {
    const answer = await world.api.send(method, path, {
      ...unsigned,
      ...(method === 'POST' ? { body: {} } : {}),
      headers: { cookie, ...headers },
    })
    assert.equal(answer.headers['x-error-code'], 'forbidden', `${method} ${path} ${JSON.stringify(headers)}`)
    assert.equal(answer.headers['access-control-allow-credentials'], undefined)
  }
  assert.equal((await world.api.get(`/api/sandboxes/${id}`)).body.status, 'running')
  const preflight = await world.api.raw('OPTIONS', '/api/sandboxes', {
    ...unsigned,
    headers: { cookie, origin: preview },
  })
  assert.deepEqual([preflight.status, preflight.headers['access-control-allow-credentials']], [204, undefined])
})

test('browser session: a WebSocket needs the origin of the server', async () => {
  const cookie = await cookieOf()
  const id = await world.sandbox()
  const { body } = await world.api.post(`/api/sandboxes/${id}/exec`, { cmd: 'cat' })
  const url = `${world.origin.replace('http', 'ws')}/api/sandboxes/${id}/exec/${body.sessionID}`
  async function statusWith(headers: Record<string, string>): Promise<number | undefined> {
    const socket = new WebSocket(url, { headers: { cookie, ...headers } })
    socket.on('error', () => {})
    const opened = once(socket, 'upgrade').then(() => 101)
    const refused = once(socket, 'unexpected-response').then(([, response]) => (response as IncomingMessage).statusCode)
    const status = await Promise.race([opened, refused])
    socket.terminate()
    return status
  }
  assert.equal(await statusWith({ origin: world.origin }), 101)
  for (const headers of [
    {},
    { origin: `http://${id}-p3000.preview.test` },
    { origin: 'null' },
    { origin: world.origin, 'sec-fetch-site': 'same-site' },
  ] as Record<string, string>[]) {
    assert.equal(await statusWith(headers), 403, JSON.stringify(headers))
  }
})

test('browser session: an Idempotency-Key holds over sign-ins of the same key, and for no other', async () => {
  const headers = { 'idempotency-key': 'made-in-the-page' }
  const first = await call('POST', '/api/keys', await cookieOf(), { body: { name: 'once' }, headers })
  assert.equal(first.status, 201)
  const later = await signIn(world.api.key)
  const again = await call('POST', '/api/keys', pairOf(later), { body: { name: 'once' }, headers })
  assert.deepEqual([again.status, again.body, again.headers['idempotent-replayed']], [201, first.body, 'true'])
  const other = await call('POST', '/api/keys', await cookieOf((await keyWith({})).key), {
    body: { name: 'once' },
    headers,
  })
  assert.deepEqual([other.status, other.body.code], [409, 'idempotency_key_conflict'])
  // The session does not know the key, with which a program has sealed its answer.
  const byKey = await world.api.post('/api/keys', { name: 'once' }, { headers })
  assert.deepEqual([byKey.status, byKey.body.code], [409, 'idempotency_key_conflict'])
})

test('browser session: the audit has it as its key, and its beginning and end', async () => {
  const { key, id } = await keyWith({ name: 'in the browser' })
  const cookie = await cookieOf(key)
  const { body: made } = await call('POST', '/api/sandboxes', cookie, { body: {} })
  await call('POST', '/api/dashboard/sign-out', cookie)
  await call('POST', '/api/dashboard/sign-out', 'atoll_dashboard=x')
  const { body: entries } = await world.api.get(`/api/audit?actor=${id}`)
  assert.deepEqual(
    (entries as { operation: string; actorType: string; address: string; status: null; subject: object }[]).map(
      ({ operation, actorType, status, subject }) => [operation, actorType, status, Object.keys(subject)],
    ),
    [
      ['signOut', 'key', null, []],
      ['createSandbox', 'key', null, ['templateID']],
      ['signIn', 'key', null, []],
    ],
  )
  await world.api.delete(`/api/sandboxes/${made.sandboxID}`)
  await cookieOf(operatorKey)
  const { body: own } = await world.operator.get('/api/operator/audit?operation=signIn')
  assert.deepEqual([own[0].actorType, own[0].orgId], ['operator', ''])
  assert.ok(!JSON.stringify([entries, own]).includes(key))
})
