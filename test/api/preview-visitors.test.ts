/** Browsers before a preview with a token: its form, its link, its cookie, and who may use that. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { IncomingHttpHeaders } from 'node:http'
import { beforeEach, test } from 'node:test'
import { WebSocket } from 'ws'
import { hostOf, usePreview } from '../support/preview-world.ts'

const preview = usePreview({}, { trustProxy: true })
const asPage = { accept: 'text/html,application/xhtml+xml' }
const chosen = 'chosen by us: a+b&c=d/%41'
let host = ''
let token = ''

beforeEach(async () => {
  if (token !== '') return
  const id = await preview.world.sandbox()
  host = hostOf(id, preview.port)
  const declared = await preview.world.api.post(`/api/sandboxes/${id}/preview`, {
    port: preview.port,
    authConfig: { token: 'auto' },
  })
  token = declared.body.previewAuthToken as string
})

const ask = (path: string, headers: Record<string, string> = {}, rest: { method?: string; payload?: string } = {}) =>
  preview.ask(path, { headers, ...rest }, host)

async function sendForm(fields: Record<string, string>, headers: Record<string, string> = {}, path = '/a?b=c') {
  return await ask(
    path,
    { ...asPage, 'content-type': 'application/x-www-form-urlencoded', origin: `http://${host}`, ...headers },
    { method: 'POST', payload: new URLSearchParams(fields).toString() },
  )
}

/** The cookie of a visitor who has shown the token. */
async function enter(): Promise<string> {
  const { headers } = await ask(`/?token=${token}`, asPage)
  return (headers['set-cookie']?.[0] ?? '').split(';', 1)[0] ?? ''
}

test('visitor: the token of a preview does not look like an API key', () => {
  assert.match(token, /^pvt_[\w-]{40,}$/)
})

test('visitor: a person gets a form, and a program the error as before', async () => {
  const page = await ask('/a', asPage)
  assert.equal(page.status, 401)
  assert.match(page.text, /<form method="post">/)
  const policy = String(page.headers['content-security-policy'])
  assert.match(policy, /form-action 'self'/)
  assert.match(policy, /frame-ancestors 'none'/)
  assert.equal(page.headers['referrer-policy'], 'same-origin')
  assert.equal((await ask('/a', asPage, { method: 'HEAD' })).status, 401)
  for (const answer of [
    await ask('/a'),
    await ask('/a', asPage, { method: 'POST', payload: 'x' }),
    await ask(`/a?token=${token}`),
  ]) {
    assert.equal(answer.status, 401)
    assert.deepEqual(answer.body.code, 'unauthorized')
  }
})

test('visitor: the form leads to the page itself with a cookie, which is not the token and enters no sandbox', async () => {
  const { status, headers } = await sendForm({ 'atoll-preview-token': ` ${token} ` })
  const [set = ''] = headers['set-cookie'] ?? []
  assert.deepEqual([status, headers.location, headers['cache-control']], [303, '/a?b=c', 'no-store'])
  assert.match(set, /^atoll-preview=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax$/)
  assert.ok(!set.includes(token))
  const cookie = set.split(';', 1)[0]!
  for (const [sent, passed] of [
    [cookie, undefined],
    [`${cookie}; a=1`, 'a=1'],
    [`a=1; ${cookie};b=2`, 'a=1;b=2'],
    [`atoll-preview=false; ${cookie}; __Host-atoll-preview=x; c`, 'c'],
  ] as const) {
    const { text } = await ask('/headers', { cookie: sent })
    assert.equal((JSON.parse(text) as { headers: IncomingHttpHeaders }).headers.cookie, passed, sent)
  }
})

test('visitor: a link with ?token= is taken once and leads to itself without it', async () => {
  const { status, headers } = await ask(`/a/?x=%20&token=${token}&y`, asPage)
  assert.deepEqual([status, headers.location], [303, '/a/?x=%20&y'])
  assert.match(headers['set-cookie']?.[0] ?? '', /^atoll-preview=/)
  const wrong = await ask(`/?token=${token}x`, asPage)
  assert.deepEqual([wrong.status, wrong.headers['set-cookie'], wrong.headers.location], [401, undefined, undefined])
  const cookie = await enter()
  const again = await ask(`/headers?token=${token}`, { ...asPage, cookie })
  assert.deepEqual([again.status, again.headers.location], [303, '/headers'])
  const own = await ask('/headers?token=own', { ...asPage, cookie })
  assert.equal((JSON.parse(own.text) as { url: string }).url, '/headers?token=own')
})

test('visitor: a wrong token gets the form again, and no cookie', async () => {
  const wrong = await sendForm({ 'atoll-preview-token': 'wrong' })
  assert.deepEqual([wrong.status, wrong.headers['set-cookie']], [401, undefined])
  assert.match(wrong.text, /not the token of this preview/)
  assert.match(wrong.text, /<form/)
  for (const fields of [{}, { token }, { 'atoll-preview-token': token.repeat(500) }]) {
    const { status, headers } = await sendForm(fields)
    assert.deepEqual([status, headers['set-cookie']], [401, undefined])
  }
})

test('visitor: the form of another page lets nobody in', async () => {
  for (const origin of ['http://evil.example', 'null', `http://${hostOf(preview.id, preview.port)}`, 'x']) {
    const { status, headers } = await sendForm({ 'atoll-preview-token': token }, { origin })
    assert.deepEqual([status, headers['set-cookie']], [401, undefined], origin)
  }
  const { origin: _none, ...headers } = { ...asPage, origin: '', 'content-type': 'application/x-www-form-urlencoded' }
  const answer = await ask('/', headers, { method: 'POST', payload: `atoll-preview-token=${token}` })
  assert.deepEqual([answer.status, answer.headers['set-cookie']], [401, undefined])
})

test('visitor: no path leads to another host', async () => {
  for (const path of [
    '//evil.example/x',
    '/\\evil.example',
    '/%09/evil.example',
    '/.//evil.example',
    '///evil.example',
    '/;x',
    '/@evil',
  ]) {
    const { location = '' } = (await sendForm({ 'atoll-preview-token': token }, {}, path)).headers
    assert.equal(new URL(location, `http://${host}/`).host, host, path)
    const link = (await ask(`${path}?token=${token}`, asPage)).headers.location ?? ''
    assert.equal(new URL(link, `http://${host}/`).host, host, path)
    assert.equal(new URL(link, `http://${host}/`).search, '')
  }
})

test('visitor: over TLS the cookie is Secure and of this host by its name', async () => {
  const { headers } = await ask(`/?token=${token}`, { ...asPage, 'x-forwarded-proto': 'https' })
  const [set = ''] = headers['set-cookie'] ?? []
  assert.match(set, /^__Host-atoll-preview=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax; Secure$/)
  assert.equal((await ask('/', { cookie: set.split(';', 1)[0]! })).status, 200)
})

test('visitor: the page of another tenant cannot use the cookie, which its browser sends', async () => {
  const cookie = await enter()
  const status = async (headers: Record<string, string>) => (await ask('/', { cookie, ...headers })).status
  const other = `http://${hostOf(preview.id, preview.port)}`
  assert.equal(await status({ origin: other }), 401)
  assert.equal(await status({ origin: 'null' }), 401)
  assert.equal(
    await status({ 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'no-cors', 'sec-fetch-dest': 'script' }),
    401,
  )
  assert.equal(
    await status({ 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'iframe' }),
    401,
  )
  assert.equal(
    await status({ 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' }),
    200,
  )
  assert.equal(
    await status({ 'sec-fetch-site': 'same-origin', 'sec-fetch-mode': 'cors', origin: `http://${host}` }),
    200,
  )
  const socket = async (origin: string) => {
    const client = new WebSocket(`${preview.world.origin.replace('http', 'ws')}/socket`, {
      headers: { host, cookie, origin },
    })
    client.on('error', () => {})
    const opened = await Promise.race([
      once(client, 'open').then(() => true),
      once(client, 'unexpected-response').then(() => false),
    ])
    client.terminate()
    return opened
  }
  assert.deepEqual([await socket(other), await socket(`http://${host}`)], [false, true])
})

test('visitor: the cookie is of one host, and another token ends it', async () => {
  const id = await preview.world.sandbox({ previewAuth: { scheme: 'bearer', token: chosen } })
  const ports = [preview.port, preview.port + 1].map((port) => hostOf(id, port))
  const [first = '', second = ''] = ports
  const shown = await preview.ask(`/?token=${encodeURIComponent(chosen)}`, { headers: asPage }, first)
  assert.deepEqual([shown.status, shown.headers.location], [303, '/'])
  const cookie = (shown.headers['set-cookie']?.[0] ?? '').split(';', 1)[0]!
  const status = async (at: string) => (await preview.ask('/', { headers: { cookie } }, at)).status
  assert.deepEqual([await status(first), await status(second), await status(host)], [200, 401, 401])
  await preview.world.api.post(`/api/sandboxes/${id}/preview/rotate`)
  assert.equal(await status(first), 401)
})

test('visitor: a preview without a token takes no forms and no links', async () => {
  const answer = await preview.ask('/headers?token=abc', { headers: asPage })
  assert.equal((JSON.parse(answer.text) as { url: string }).url, '/headers?token=abc')
  const payload = 'atoll-preview-token=x'
  const headers = { 'content-type': 'application/x-www-form-urlencoded', origin: `http://${preview.host}` }
  assert.equal((await preview.ask('/x', { method: 'POST', payload, headers })).text, 'hello from /x')
})

test('preview: a page and its WebSocket show the server inside the same host, origin and client', async () => {
  const sent = {
    host: preview.host,
    origin: `https://${preview.host}`,
    'x-forwarded-for': '203.0.113.7',
    'x-forwarded-host': 'shop.example.com',
  }
  const heads: IncomingHttpHeaders[] = []
  preview.inside.once('upgrade', ({ headers }) => void heads.push(headers))
  const socket = new WebSocket(`${preview.world.origin.replace('http', 'ws')}/socket`, {
    headers: { ...sent, 'x-forwarded-proto': 'wss' },
  })
  await once(socket, 'open')
  socket.terminate()
  const { text } = await preview.ask('/headers', { headers: { ...sent, 'x-forwarded-proto': 'https' } })
  heads.push((JSON.parse(text) as { headers: IncomingHttpHeaders }).headers)
  const names = ['host', 'origin', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto']
  const [ofSocket, ofPage] = heads.map((head) => names.map((name) => head[name]))
  assert.deepEqual(ofSocket, ofPage)
  assert.deepEqual(ofPage, [sent.host, sent.origin, '203.0.113.7, 127.0.0.1', 'shop.example.com', 'https'])
})
