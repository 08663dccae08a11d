/** Visits of previews with a token by who has an API key: the URL of a minute, its cookie, and frames. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { IncomingHttpHeaders } from 'node:http'
import { beforeEach, test } from 'node:test'
import { WebSocket } from 'ws'
import { Visits } from '../../src/preview/visits.ts'
import { sha256 } from '../../src/lib/secret.ts'
import type { ApiAnswer } from '../support/api-client.ts'
import { hostOf, usePreview } from '../support/preview-world.ts'
import { signingSecret } from '../support/world.ts'

const preview = usePreview({}, { trustProxy: true })
const asPage = { accept: 'text/html,application/xhtml+xml' }
/** The navigation of a frame, by a page of another site. */
const asFrame = { ...asPage, 'sec-fetch-dest': 'iframe', 'sec-fetch-mode': 'navigate', 'sec-fetch-site': 'cross-site' }
const tls = { 'x-forwarded-proto': 'https' }
let id = ''
let host = ''
let token = ''

beforeEach(async () => {
  if (token !== '') return
  id = await preview.world.sandbox()
  host = hostOf(id, preview.port)
  const { body } = await preview.world.api.post(`/api/sandboxes/${id}/preview`, {
    port: preview.port,
    authConfig: { token: 'auto' },
  })
  token = body.previewAuthToken as string
})

const visit = async (port: number | string = preview.port, sandboxId = id, api = preview.world.api) =>
  await api.post(`/api/sandboxes/${sandboxId}/preview/${port}/visit`)

async function visitToken(): Promise<string> {
  const { body } = await visit()
  return new URL(body.url as string).searchParams.get('token') ?? ''
}

const ask = async (path: string, headers: Record<string, string> = {}, at = host) =>
  await preview.ask(path, { headers }, at)

function cookieIn({ headers }: ApiAnswer): string {
  return headers['set-cookie']?.[0] ?? ''
}

function pairIn(answer: ApiAnswer): string {
  return cookieIn(answer).split(';', 1)[0] ?? ''
}

test('visit: a key gets a URL of a guarded preview, for a minute and this host', async () => {
  const { status, body } = await visit()
  assert.equal(status, 200)
  assert.match(body.url, new RegExp(`^http://${host}/\\?token=pvt_visit_[0-9a-z]+_[\\w-]{43}$`))
  const leftMs = Date.parse(body.expiresAt) - Date.now()
  assert.ok(leftMs > 50_000 && leftMs <= 60_000, String(leftMs))
  assert.ok(!body.url.includes(token))
})

test('visit: a preview without a token has its plain URL', async () => {
  const open = await preview.world.sandbox()
  const { body } = await visit(3000, open)
  assert.deepEqual(body, { url: `http://${hostOf(open, 3000)}/`, expiresAt: null })
})

test('visit: strangers, keys without the scope, stopped sandboxes and what is no port get none; nothing is woken', async () => {
  const { api, stranger } = preview.world
  assert.equal((await visit(3000, id, stranger)).status, 404)
  assert.equal((await visit(3000, 'sb-0000000000000000')).status, 404)
  const { body: reader } = await api.post('/api/keys', { scopes: ['sandbox:read', 'sandbox:exec'] })
  const refused = await api.post(`/api/sandboxes/${id}/preview/3000/visit`, undefined, { key: reader.key })
  assert.deepEqual([refused.status, refused.body.scope], [403, 'preview'])
  for (const port of ['0', '65536', 'x', '-1', '3000.0'])
    assert.ok([400, 404].includes((await visit(port)).status), port)
  const asleep = await preview.world.sandbox({ previewAuth: { scheme: 'bearer' } })
  await api.post(`/api/sandboxes/${asleep}/hibernate`)
  const { body } = await visit(3000, asleep)
  assert.match(body.url, /\?token=pvt_visit_/)
  assert.equal((await api.get(`/api/sandboxes/${asleep}`)).body.status, 'hibernated')
  await api.delete(`/api/sandboxes/${asleep}`)
  assert.equal((await visit(3000, asleep)).status, 410)
})

test('visit: a person who opens the URL is led to it without the token, with a cookie of some hours', async () => {
  const answer = await ask(`/a?x=1&token=${await visitToken()}&y`, asPage)
  assert.deepEqual(
    [answer.status, answer.headers.location, answer.headers['cache-control']],
    [303, '/a?x=1&y', 'no-store'],
  )
  assert.match(cookieIn(answer), /^atoll-preview=[0-9a-z]+\.[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Lax$/)
  const { text } = await ask('/headers', { cookie: `${pairIn(answer)}; a=1` })
  assert.equal((JSON.parse(text) as { headers: IncomingHttpHeaders }).headers.cookie, 'a=1')
  const secure = await ask(`/?token=${await visitToken()}`, { ...asPage, ...tls })
  assert.match(cookieIn(secure), /^__Host-atoll-preview=.*; SameSite=Lax; Secure$/)
  // A program shows a token in a header, and never this one.
  const visiting = await visitToken()
  assert.equal((await ask('/', { authorization: `Bearer ${visiting}` })).status, 401)
  assert.equal((await ask('/', { 'x-oc-preview-token': visiting })).status, 401)
  assert.equal((await ask(`/?token=${visiting}`)).status, 401)
})

test('visit: the token enters no sandbox, also when it is over or of another host', async () => {
  const other = hostOf(await preview.world.sandbox(), preview.port)
  for (const sent of [await visitToken(), new Visits('another').begin({ hostname: other, tokenHash: 'x' }).token]) {
    const { text } = await preview.ask(
      `/headers?a=1&token=${sent}`,
      { headers: { host: other, referer: `http://${other}/?token=${sent}` } },
      other,
    )
    const { url, headers } = JSON.parse(text) as { url: string; headers: IncomingHttpHeaders }
    assert.equal(url, '/headers?a=1')
    assert.ok(!JSON.stringify(headers).includes(sent))
  }
})

test('visit: a frame gets a page that goes on by itself, with a cookie for frames of that one site', async () => {
  const visiting = await visitToken()
  const answer = await ask(`/a?x=1&token=${visiting}&y`, { ...asFrame, ...tls })
  assert.deepEqual([answer.status, answer.headers['content-type']], [200, 'text/html; charset=utf-8'])
  assert.match(
    cookieIn(answer),
    /^__Host-atoll-preview=[0-9a-z]+\.[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=None; Secure; Partitioned$/,
  )
  assert.deepEqual([answer.headers['referrer-policy'], answer.headers['cache-control']], ['no-referrer', 'no-store'])
  assert.match(answer.text, /<meta http-equiv="refresh" content="0;url=\/a\?x=1&amp;y">/)
  assert.ok(!answer.text.includes(visiting))
  const policy = String(answer.headers['content-security-policy'])
  assert.ok(
    policy.startsWith("default-src 'none'") && !policy.includes('frame-ancestors') && !policy.includes('script'),
  )
  // What the page of the preview asks for is its own.
  const own = { cookie: pairIn(answer), 'sec-fetch-site': 'same-origin' }
  assert.equal((await ask('/', { ...asFrame, ...own })).status, 200)
  assert.equal((await ask('/x', own)).status, 200)
  const socket = new WebSocket(`${preview.world.origin.replace('http', 'ws')}/socket`, {
    headers: { host, cookie: pairIn(answer), origin: `http://${host}` },
  })
  await once(socket, 'open')
  socket.terminate()
})

test('visit: without TLS a browser keeps no such cookie, but for names of this machine', async () => {
  const plain = await ask(`/?token=${await visitToken()}`, asFrame)
  assert.match(cookieIn(plain), /^atoll-preview=.*; HttpOnly; SameSite=Lax$/)
})

test('visit: no other page frames a guarded preview with a cookie of its visitor', async () => {
  const ordinary = pairIn(await ask(`/?token=${token}`, asPage))
  const visited = pairIn(await ask(`/?token=${await visitToken()}`, asPage))
  const framed = pairIn(await ask(`/?token=${await visitToken()}`, { ...asFrame, ...tls }))
  for (const cookie of [ordinary, visited, framed]) {
    assert.equal((await ask('/', { ...asPage, cookie })).status, 200)
    for (const site of ['cross-site', 'same-site']) {
      const frame = await ask('/', { ...asFrame, 'sec-fetch-site': site, cookie })
      assert.equal(frame.status, 401, `${site} ${cookie}`)
      assert.match(String(frame.headers['content-security-policy']), /frame-ancestors 'none'/)
      const picture = { 'sec-fetch-dest': 'image', 'sec-fetch-mode': 'no-cors', 'sec-fetch-site': site }
      assert.equal((await ask('/', { ...picture, cookie })).status, 401)
    }
    assert.equal((await ask('/', { cookie, origin: 'http://evil.example' })).status, 401)
  }
  // The token of the preview itself opens no frame, as before.
  const byToken = await ask(`/?token=${token}`, asFrame)
  assert.deepEqual([byToken.status, /SameSite=Lax/.test(cookieIn(byToken))], [303, true])
})

test('visit: tokens and cookies of another host, another preview or another server, and those that are over, open nothing', async () => {
  const visiting = await visitToken()
  const framed = pairIn(await ask(`/?token=${visiting}`, { ...asFrame, ...tls }))
  const other = hostOf(id, 9)
  await preview.world.api.post(`/api/sandboxes/${id}/preview`, { port: 9, authConfig: { token: 'auto' } })
  assert.equal((await ask(`/?token=${visiting}`, asPage, other)).status, 401)
  assert.equal((await ask('/', { cookie: framed }, other)).status, 401)
  const forged = new Visits('another secret').begin({ hostname: host, tokenHash: sha256(token) }).token
  const right = new Visits(signingSecret).begin({ hostname: host, tokenHash: sha256(token) }).token
  assert.equal((await ask(`/?token=${forged}`, asPage)).status, 401)
  assert.equal((await ask(`/?token=${right}`, asPage)).status, 303)
  const [name = '', value = ''] = framed.split('=')
  assert.equal((await ask('/', { cookie: `${name}=${visiting}` })).status, 401)
  assert.equal((await ask(`/?token=${value}`, asPage)).status, 401)
  // Another token of the preview ends all of them.
  await preview.world.api.post(`/api/sandboxes/${id}/preview`, { port: preview.port, authConfig: { token: 'auto' } })
  assert.equal((await ask(`/?token=${visiting}`, asPage)).status, 401)
  assert.equal((await ask('/', { cookie: framed })).status, 401)
})

test('visit: what a preview says of its frames is its own, and its errors are seen where it may be framed', async () => {
  const open = hostOf(await preview.world.sandbox(), preview.port)
  preview.answers['/framed'] = (_request, response) => {
    response.setHeader('X-Frame-Options', 'DENY')
    response.setHeader('Content-Security-Policy', "frame-ancestors 'self'")
    response.end('x')
  }
  const own = await preview.ask('/framed', {}, open)
  assert.deepEqual(
    [own.headers['x-frame-options'], own.headers['content-security-policy']],
    ['DENY', "frame-ancestors 'self'"],
  )
  const plain = await preview.ask('/', {}, open)
  assert.deepEqual([plain.headers['x-frame-options'], plain.headers['content-security-policy']], [undefined, undefined])
  const nothing = await preview.ask('/', { headers: asFrame }, hostOf(open.slice(0, open.indexOf('-p')), 9))
  assert.equal(nothing.status, 502)
  assert.doesNotMatch(String(nothing.headers['content-security-policy']), /frame-ancestors/)
})
