/** Credentials of Atoll reach no page, wherever in the head of a request they are; cookies of a preview reach no other preview. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { IncomingHttpHeaders } from 'node:http'
import { connect, createServer } from 'node:net'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { AccessTokens } from '../../src/session/access-token.ts'
import { listen } from '../support/listen.ts'
import { hostOf, usePreview } from '../support/preview-world.ts'
import { previewHost } from '../support/world.ts'

/** As operators choose them: with what must be encoded in an address. */
const chosenKey = 'chosen by us: a+b&c=d/%41'
const madeKey = `atoll_${'0123456789abcdef'.repeat(3)}`
const { token: sessionToken } = new AccessTokens('secret').issue('session_0123456789abcdef', 'steer', 60)
const encode = encodeURIComponent
let cookies: string[] = []
const preview = usePreview(
  { '/cookies': (_request, response) => void response.setHeader('Set-Cookie', cookies).end() },
  { apiKey: chosenKey },
)

async function seen(path: string, headers: Record<string, string> = {}, host = preview.host) {
  const { text } = await preview.ask(path, { headers }, host)
  return JSON.parse(text) as { url: string; headers: IncomingHttpHeaders }
}

test('credential: a key or session token in the address does not enter the sandbox, and all else of the address does', async () => {
  const hidden = [
    `api_key=${madeKey}`,
    `token=${madeKey}`,
    `api_key=${encode(chosenKey)}`,
    `api_key=${encode(chosenKey).replaceAll('%20', '+')}`,
    `token=${encode(chosenKey)}`,
    `token=${sessionToken}`,
    `api_key=${sessionToken}`,
    `key=${madeKey}`,
    `%61pi%5Fkey=%61toll_${madeKey.slice(6)}`,
    `api_key=atoll_cut`,
    `api_key=ATOLL_0123`,
    `api_key=${madeKey}&token=${sessionToken}`,
  ]
  for (const query of hidden) {
    assert.equal((await seen(`/headers?${query}`)).url, '/headers', query)
    assert.equal((await seen(`/headers?a=%20&${query}&&b=c=d&e`)).url, '/headers?a=%20&&b=c=d&e', query)
  }
})

test('credential: the parameters of a page stay byte for byte, whatever their names', async () => {
  const own = [
    'token=abc',
    'api_key=mine',
    `token=${'x'.repeat(43)}`,
    'api_key=%zz%41+a',
    'token',
    'token=',
    '&',
    '?a=b',
  ]
  own.push(
    'token=st.read.of.mine',
    'q=atoll_reef',
    `q=${encode(chosenKey).slice(0, -1)}`,
    `api_key=${'c'.repeat(chosenKey.length)}`,
  )
  for (const query of own) assert.equal((await seen(`/headers?${query}`)).url, `/headers?${query}`)
  assert.equal((await seen(`/headers`)).url, '/headers')
})

test('credential: one in a header does not enter the sandbox', async () => {
  for (const key of [madeKey, sessionToken, chosenKey]) {
    for (const sent of [
      { 'x-api-key': key },
      { authorization: `Bearer ${key}` },
      { authorization: `bearer   ${key}` },
    ]) {
      const { headers } = await seen('/headers', sent)
      assert.deepEqual([headers['x-api-key'], headers.authorization], [undefined, undefined], JSON.stringify(sent))
    }
  }
  for (const key of [madeKey, sessionToken]) {
    assert.equal(
      (await seen('/headers', { 'x-forwarded-access-token': key })).headers['x-forwarded-access-token'],
      undefined,
    )
    assert.equal(
      (await seen('/headers', { 'sec-websocket-protocol': key })).headers['sec-websocket-protocol'],
      undefined,
    )
    assert.equal((await seen('/headers', { cookie: `key=${key}` })).headers.cookie, undefined)
  }
})

test('credential: one is taken out of a list, and out of the address that a page came from', async () => {
  const { headers } = await seen('/headers', {
    cookie: `a=1; key="${madeKey}"; b=${sessionToken}; c=d=e`,
    'sec-websocket-protocol': `${sessionToken}, vite-hmr`,
    referer: `https://api.example.com/v1/sessions/x?a=b&api_key=${encode(chosenKey)}&token=${sessionToken}#top`,
  })
  assert.deepEqual(
    [headers.cookie, headers['sec-websocket-protocol'], headers.referer],
    ['a=1; c=d=e', 'vite-hmr', 'https://api.example.com/v1/sessions/x?a=b#top'],
  )
})

test('credential: headers of a page’s own pass as they are', async () => {
  const own = {
    'x-api-key': 'mine',
    authorization: 'Bearer mine',
    cookie: 'sid=abc; theme=atoll_dark ;x',
    referer: 'https://shop.example.com/?token=abc',
    'sec-websocket-protocol': 'a , b',
    'x-token': 'st.read',
  }
  const { headers } = await seen('/headers', own)
  for (const [name, value] of Object.entries(own)) assert.equal(headers[name], value, name)
  assert.equal((await seen('/headers', { authorization: 'Basic dTpw' })).headers.authorization, 'Basic dTpw')
})

test('credential: a WebSocket brings none along', async () => {
  const url = `${preview.world.origin.replace('http', 'ws')}/socket?api_key=${madeKey}&token=${sessionToken}&room=1`
  const headers = { host: preview.host, 'x-api-key': chosenKey, authorization: `Bearer ${madeKey}` }
  const heads: [string | undefined, IncomingHttpHeaders][] = []
  preview.inside.once('upgrade', (request) => heads.push([request.url, request.headers]))
  const socket = new WebSocket(url, { headers })
  // The server inside serves this path alone, without a query.
  socket.on('error', () => {})
  await Promise.race([once(socket, 'open'), once(socket, 'unexpected-response')])
  socket.terminate()
  const [[seenUrl, seenHeaders] = []] = heads
  assert.equal(seenUrl, '/socket?room=1')
  assert.deepEqual([seenHeaders?.['x-api-key'], seenHeaders?.authorization], [undefined, undefined])
})

test('credential: a preview token enters no sandbox, neither that of the preview nor one of another', async () => {
  const { api } = preview.world
  const id = await preview.world.sandbox({ previewAuth: { scheme: 'bearer' } })
  const { previewAuthToken: ofSandbox } = (await api.post(`/api/sandboxes/${id}/preview/rotate`)).body
  const declared = await api.post(`/api/sandboxes/${id}/preview`, { port: preview.port, authConfig: { token: 'auto' } })
  const ofPort = declared.body.previewAuthToken as string
  const host = hostOf(id, preview.port)
  const both = { 'x-oc-preview-token': ofPort, authorization: `Bearer ${ofSandbox}` }
  const guarded = await seen('/headers', both, host)
  assert.deepEqual([guarded.headers['x-oc-preview-token'], guarded.headers.authorization], [undefined, undefined])
  const bearer = await seen('/headers', { authorization: `Bearer ${ofPort}` }, host)
  assert.equal(bearer.headers.authorization, undefined)

  for (const token of [ofPort, ofSandbox]) {
    const sent = { 'x-oc-preview-token': 'whatever', authorization: `Bearer ${token}` }
    const other = await seen(`/headers?token=${token}`, sent)
    assert.deepEqual(
      [other.headers['x-oc-preview-token'], other.headers.authorization, other.url],
      [undefined, undefined, '/headers'],
    )
  }
})

async function received(sent: string[], host = preview.host): Promise<string[]> {
  cookies = sent
  return (await preview.ask('/cookies', {}, host)).headers['set-cookie'] ?? []
}

test('preview cookie: a cookie loses a Domain that covers other previews, in whatever spelling, and nothing else', async () => {
  const above = [
    previewHost,
    `.${previewHost}`,
    `${previewHost.toUpperCase()}.`,
    ` ${previewHost} `,
    previewHost.slice(previewHost.indexOf('.') + 1),
    `"${previewHost}"`,
    `%70${previewHost.slice(1)}`,
    `\u00e9.${previewHost}`,
    '',
  ]
  const sent = above.map((domain) => `sid=a=b; Path=/;DOMAIN =${domain}; Secure`)
  assert.deepEqual(
    await received(sent),
    sent.map(() => 'sid=a=b; Path=/; Secure'),
  )
  assert.deepEqual(
    await received([`a=1; Domain=${preview.host}; domain=${previewHost}`, `b=2;domain=${previewHost}`]),
    [`a=1; Domain=${preview.host}`, 'b=2'],
  )
})

test('preview cookie: all other cookies pass as they are', async () => {
  const plain = [
    `a=1; Domain=${preview.host}; HttpOnly`,
    `b=2; Domain=.${preview.host.toUpperCase()}`,
    `domain=${previewHost}; Path=/domain=x`,
    'c="x y";  SameSite=Lax ;Max-Age=5',
    '',
  ]
  assert.deepEqual(await received(plain), plain)
})

test('preview cookie: a custom domain shares its cookies with its own names, and not with previews', async () => {
  const domain = 'app.example.com'
  const path = `/api/sandboxes/${preview.id}/preview`
  preview.world.prove(domain)
  assert.equal((await preview.world.api.post(path, { port: preview.port, domain })).status, 201)
  assert.deepEqual(await received(['a=1; Domain=example.com', `b=2; Domain=${previewHost}`], domain), [
    'a=1; Domain=example.com',
    'b=2',
  ])
})

test('preview cookie: the cookies of an upgrade are held to the same', async () => {
  for (const status of ['101 Switching Protocols', '403 Forbidden']) {
    const server = createServer((socket) => {
      socket.on('error', () => {})
      const own = 'Connection: Upgrade\r\nUpgrade: websocket\r\n'
      socket.once('data', () =>
        socket.end(`HTTP/1.1 ${status}\r\n${own}Set-Cookie: a=1; Domain=${previewHost}; Path=/\r\n\r\n`),
      )
    })
    const host = hostOf(preview.id, await listen(server))
    const client = connect(preview.world.port, '127.0.0.1')
    client.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`)
    const answer = (await client.toArray()).map(String).join('')
    assert.match(answer, /\r\nSet-Cookie: a=1; Path=\/\r\n/, status)
    server.close()
  }
})
