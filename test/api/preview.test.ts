import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect, createServer } from 'node:net'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { exchange } from '../support/api-client.ts'
import { listen } from '../support/listen.ts'
import { hostOf, usePreview } from '../support/preview-world.ts'
import { makeWorld, previewHost, restoring } from '../support/world.ts'

const arrived: { method: unknown; url: unknown; host: unknown; framing: (string | undefined)[]; body: string }[] = []
const preview = usePreview({
  '/echo': (request, response) => void request.pipe(response),
  '/events': (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write('data: 1\n\n')
  },
  '/teapot': (_request, response) => void response.writeHead(418, 'Short And Stout').end('tea'),
  '/break': (_request, response) => {
    response.writeHead(200, { 'content-length': '100' })
    response.write('half', () => response.destroy())
  },
  '/none': (_request, response) => void response.writeHead(204).end(),
  '/first': (request, response) => {
    const { method, url, headers } = request
    void request.toArray().then((chunks) => {
      const framing = [headers['content-length'], headers['transfer-encoding']]
      arrived.push({ method, url, host: headers.host, framing, body: chunks.map(String).join('') })
      response.end('first')
    })
  },
})

test('preview: every port answers under its host name, whatever its letters and port suffix', async () => {
  for (const host of [preview.host, preview.host.toUpperCase(), `${preview.host}:4100`, `${preview.host}.`]) {
    const { status, text } = await preview.ask('/a/b?c=d', {}, host)
    assert.deepEqual([status, text], [200, 'hello from /a/b?c=d'], host)
  }
})

test('preview: methods, bodies, statuses and repeated headers pass; those of one connection do not', async () => {
  const posted = await preview.ask('/echo', { method: 'POST', payload: 'some text' })
  assert.equal(posted.text, 'some text')
  const chunked = await preview.ask('/echo', {
    method: 'PUT',
    payload: 'chunked text',
    headers: { 'transfer-encoding': 'chunked' },
  })
  assert.equal(chunked.text, 'chunked text')
  const teapot = await preview.ask('/teapot')
  assert.deepEqual([teapot.status, teapot.text], [418, 'tea'])
  assert.equal((await preview.ask('/none')).status, 204)
  assert.equal((await preview.ask('/headers', { method: 'HEAD' })).text, '')
  const { headers, body, text } = await preview.ask('/headers', {
    method: 'DELETE',
    headers: {
      'x-mine': 'a',
      connection: 'close, x-hop',
      'x-hop': 'b',
      te: 'trailers',
      'proxy-authorization': 'secret',
    },
  })
  assert.equal(body, undefined)
  assert.deepEqual(headers['set-cookie'], ['a=1', 'b=2'])
  assert.equal(headers['x-private'], undefined)
  assert.equal(headers['proxy-authenticate'], undefined)
  const got = JSON.parse(text)
  assert.equal(got.method, 'DELETE')
  assert.equal(got.headers['x-mine'], 'a')
  for (const name of ['x-hop', 'te', 'proxy-authorization']) assert.equal(got.headers[name], undefined, name)
  assert.equal(got.headers.host, preview.host)
})

test('preview: the server sets X-Forwarded-*, and clients cannot', async () => {
  const claimed = {
    'x-forwarded-for': '6.6.6.6',
    'x-forwarded-host': 'evil',
    'x-forwarded-proto': 'https',
    forwarded: 'for=6.6.6.6',
  }
  const { headers } = JSON.parse((await preview.ask('/headers', { headers: claimed })).text)
  assert.equal(headers['x-forwarded-for'], '127.0.0.1')
  assert.equal(headers['x-forwarded-host'], preview.host)
  assert.equal(headers['x-forwarded-proto'], 'http')
  assert.equal(headers.forwarded, undefined)
})

test('preview: answers stream: the first event arrives while the answer is open, and the keep-alive ends with the client', async (t) => {
  const held = new Set<symbol>()
  const { previews } = preview.world.sandboxes
  const { keepAlive } = previews
  restoring(t, previews, 'keepAlive')
  previews.keepAlive = (sandboxId) => {
    const one = Symbol('lease')
    held.add(one)
    const release = keepAlive.call(previews, sandboxId)
    return () => {
      held.delete(one)
      release()
    }
  }
  const request = httpRequest(`${preview.world.origin}/events`, { headers: { host: preview.host } })
  request.end()
  const [response] = (await once(request, 'response')) as [IncomingMessage]
  const [chunk] = (await once(response, 'data')) as [Buffer]
  assert.equal(String(chunk), 'data: 1\n\n')
  assert.equal(held.size, 1)
  const upstream = preview.seen.at(-1)?.socket
  assert.ok(upstream)
  const closed = once(upstream, 'close')
  request.on('error', () => {})
  request.destroy()
  await closed
  await eventually(() => held.size === 0)
})

test('preview: a body streams into the sandbox while it is sent, and comes back meanwhile', async () => {
  const request = httpRequest(`${preview.world.origin}/echo`, { method: 'POST', headers: { host: preview.host } })
  request.write('first')
  const [response] = (await once(request, 'response')) as [IncomingMessage]
  assert.equal(String((await once(response, 'data'))[0]), 'first')
  const ended = once(response, 'end')
  request.end('second')
  assert.equal(String((await once(response, 'data'))[0]), 'second')
  await ended
})

test('preview: big bodies pass whole in both directions', async () => {
  const payload = Buffer.alloc(40_000_000, 'abcdefghij')
  const { bytes } = await preview.ask('/echo', { method: 'POST', payload })
  assert.ok(bytes.equals(payload))
})

test('preview: connections into the sandbox are kept for the next request, and a kept one that died costs nothing', async () => {
  await preview.watchingDials(async (dialled) => {
    await preview.ask('/a')
    const made = dialled.length
    for (let index = 0; index < 5; index++) assert.equal((await preview.ask('/a')).status, 200)
    assert.equal(dialled.length, made)
    preview.inside.closeIdleConnections()
    assert.equal((await preview.ask('/a')).status, 200)
  })
})

test('preview: 256 concurrent requests have a connection, and further ones wait', async () => {
  const held: ServerResponse[] = []
  preview.answers['/hold'] = (_request, response) => void held.push(response)
  const crowd = Array.from({ length: 300 }, () => preview.ask('/hold'))
  await eventually(() => held.length >= 256)
  await sleep(500)
  assert.equal(held.length, 256)
  for (let answered = 0; answered < crowd.length;) {
    const some = held.splice(0)
    for (const response of some) response.end('come in')
    answered += some.length
    await sleep(5)
  }
  for (const { status, text } of await Promise.all(crowd)) assert.deepEqual([status, text], [200, 'come in'])
})

test('preview: an answer that breaks off inside breaks off outside', async () => {
  await assert.rejects(preview.ask('/break'), /aborted|hang up|ECONNRESET/)
  assert.equal((await preview.ask('/a')).status, 200)
})

test('preview: an API key does not enter the sandbox; a header of the app does', async () => {
  const key = 'atoll_0123456789abcdef'
  for (const sent of [{ 'x-api-key': key }, { authorization: `Bearer ${key}` }, { authorization: `bearer  ${key}` }]) {
    assert.doesNotMatch((await preview.ask('/headers', { headers: sent })).text, /atoll_/)
  }
  const own = JSON.parse(
    (await preview.ask('/headers', { headers: { 'x-api-key': 'mine', authorization: 'Bearer mine' } })).text,
  )
  assert.deepEqual([own.headers['x-api-key'], own.headers.authorization], ['mine', 'Bearer mine'])
})

test('preview: other hosts are the API: addresses, names of the machine, unknown names', async () => {
  for (const host of ['127.0.0.1', 'localhost:80', '[::1]:4100', 'atoll', 'other.example', previewHost]) {
    assert.equal((await preview.ask('/healthz', {}, host)).status, 200, host)
  }
  const socket = connect(preview.world.port, '127.0.0.1')
  socket.end('GET /healthz HTTP/1.0\r\n\r\n')
  let text = ''
  socket.on('data', (chunk) => {
    text += String(chunk)
  })
  await once(socket, 'close')
  assert.match(text, /^HTTP\/1\.1 200/)
})

test('preview: a declared port has a domain of its own and a token, which is asked for, stripped, and wakes nothing when wrong', async () => {
  const { api } = preview.world
  const id = await preview.world.sandbox()
  const host = hostOf(id, preview.port)
  const path = `/api/sandboxes/${id}/preview`
  const token = 'token-of-sixteen-characters'
  preview.world.prove('app.example.com')
  const declared = await api.post(path, {
    port: preview.port,
    domain: 'App.Example.com',
    authConfig: { scheme: 'bearer', token },
  })
  assert.equal(declared.status, 201)
  assert.deepEqual(
    [declared.body.hostname, declared.body.customHostname, declared.body.sslStatus, declared.body.authConfig],
    [host, 'app.example.com', 'disabled', { scheme: 'bearer' }],
  )
  assert.equal(declared.body.previewAuthToken, token)
  const [listed] = (await api.get(path)).body
  assert.equal(listed.previewAuthToken, undefined)
  assert.doesNotMatch(JSON.stringify(listed), /token-of/)

  await api.post(`/api/sandboxes/${id}/hibernate`)
  for (const headers of [
    {},
    { authorization: 'Bearer wrong' },
    { 'x-oc-preview-token': 'wrong' },
    { authorization: `Basic ${token}` },
  ]) {
    const refused = await preview.ask('/headers', { headers }, host)
    assert.deepEqual([refused.status, refused.body.code], [401, 'unauthorized'])
  }
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.status, 'hibernated', 'a wrong token wakes nothing')

  const byBearer = JSON.parse(
    (await preview.ask('/headers', { headers: { authorization: `Bearer ${token}` } }, host)).text,
  )
  assert.equal(byBearer.headers.authorization, undefined)
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.status, 'running', 'traffic wakes')
  const own = { 'x-oc-preview-token': token, authorization: 'Bearer of-the-app' }
  const byHeader = JSON.parse((await preview.ask('/headers', { headers: own }, 'app.example.com')).text)
  assert.equal(byHeader.headers['x-oc-preview-token'], undefined)
  assert.equal(byHeader.headers.authorization, 'Bearer of-the-app', 'what is not ours belongs to the app')

  assert.equal(await preview.refusedWebSocket('/socket', host), 401)

  const again = await api.post(path, { port: preview.port, authConfig: null })
  assert.deepEqual([again.status, again.body.id, again.body.authConfig], [200, declared.body.id, {}])
  assert.equal((await preview.ask('/a', {}, host)).status, 200)
  const rotated = await api.post(`${path}/rotate`)
  assert.equal(rotated.body.scheme, 'bearer')
  assert.equal((await preview.ask('/a', {}, host)).status, 401)
  assert.equal(
    (await preview.ask('/a', { headers: { authorization: `Bearer ${rotated.body.previewAuthToken}` } }, host)).status,
    200,
  )
  assert.equal((await api.delete(`${path}/${preview.port}`)).status, 204)
  assert.equal((await api.delete(`${path}/${preview.port}`)).status, 404)
})

test('preview: preview requests are counted by status', async () => {
  const counted = async (status: number) => {
    const { text } = await preview.world.api.get('/metrics')
    return Number(new RegExp(`atoll_preview_requests_total\\{status="${status}"\\} (\\d+)`).exec(text)?.[1] ?? 0)
  }
  const id = await preview.world.sandbox()
  const host = hostOf(id, preview.port)
  const calls: [status: number, call: () => Promise<unknown>][] = [
    [200, () => preview.ask('/a', {}, host)],
    [404, () => preview.ask('/', {}, hostOf('sb-unknown00000', 80))],
    [418, () => preview.ask('/teapot', {}, host)],
    [502, () => preview.ask('/', {}, hostOf(id, 1))],
    [
      101,
      async () => {
        const socket = preview.webSocket('/socket', host)
        await once(socket, 'open')
        socket.terminate()
      },
    ],
  ]
  for (const [status, call] of calls) {
    const count = await counted(status)
    await call()
    await eventually(async () => (await counted(status)) !== count)
    assert.equal(await counted(status), count + 1)
  }
})

test('preview: the forwarded headers of a trusted proxy are kept', async () => {
  await using behind = await makeWorld({ trustProxy: ['127.0.0.0/8'] })
  const sandboxId = await behind.sandbox()
  const { text } = await exchange(`${behind.origin}/headers`, {
    headers: { host: hostOf(sandboxId, preview.port), 'x-forwarded-for': '9.9.9.9', 'x-forwarded-proto': 'https' },
  })
  const { headers } = JSON.parse(text)
  assert.deepEqual([headers['x-forwarded-for'], headers['x-forwarded-proto']], ['9.9.9.9, 127.0.0.1', 'https'])
  const signed = await behind.api.post(
    `/api/sandboxes/${sandboxId}/files/download-url`,
    { path: '/etc/hostname' },
    { headers: { 'x-forwarded-proto': 'https', 'x-forwarded-host': 'api.example.com' } },
  )
  assert.match(signed.body.url, /^https:\/\/api\.example\.com\/api\//)
})

/** All that comes back for these bytes. */
async function raw(text: string): Promise<string> {
  const socket = connect(preview.world.port, '127.0.0.1')
  socket.write(text)
  return (await socket.toArray()).map(String).join('')
}

test('preview framing: a body is framed for the server inside as it was for us, so that it is never taken for the next request', async () => {
  const hidden = 'GET /hidden HTTP/1.1\r\nHost: evil\r\n\r\n'
  const size = String(hidden.length)
  const bodies = [
    [`Content-Length: ${size}\r\n\r\n${hidden}`, [size, undefined]],
    [
      `Transfer-Encoding: chunked\r\n\r\n${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`,
      [undefined, 'chunked'],
    ],
  ] as const
  const options = [
    'close',
    'Content-Length, close',
    'close, host ,transfer-encoding',
    'content-length\r\nConnection: close',
  ]
  let sent = 0
  preview.seen.length = 0
  for (const method of ['GET', 'HEAD', 'DELETE', 'OPTIONS', 'POST', 'PROPFIND']) {
    for (const connection of options) {
      for (const [body, framing] of bodies) {
        const what = `${method} ${connection} ${framing.join(' ')}`
        // Leaves a connection into the sandbox behind, on which the next request goes.
        assert.equal((await preview.ask('/before')).text, 'hello from /before', what)
        const answer = await raw(
          `${method} /first HTTP/1.1\r\nHost: ${preview.host}\r\nConnection: ${connection}\r\n${body}`,
        )
        assert.match(answer, /^HTTP\/1\.1 200 /, what)
        assert.deepEqual(arrived.pop(), { method, url: '/first', host: preview.host, framing, body: hidden }, what)
        assert.equal((await preview.ask('/after')).text, 'hello from /after', what)
        sent += 3
      }
    }
  }
  assert.deepEqual(
    preview.seen.filter(({ url }) => url === '/hidden'),
    [],
  )
  assert.equal(preview.seen.length, sent)
  assert.ok(new Set(preview.seen.map(({ socket }) => socket)).size < sent, 'connections were kept')
})

test('preview framing: a body of no length is still said to be none, and none is made up', async () => {
  const asked = async (head: string) => {
    await raw(`${head.replace(' ', ' /first ')}\r\nHost: ${preview.host}\r\nConnection: close, content-length\r\n\r\n`)
    return arrived.pop()?.framing
  }
  assert.deepEqual(await asked('GET HTTP/1.1'), [undefined, undefined])
  assert.deepEqual(await asked('GET HTTP/1.1\r\nContent-Length: 0'), ['0', undefined])
  assert.deepEqual(await asked('DELETE HTTP/1.1'), ['0', undefined])
  assert.deepEqual(await asked('POST HTTP/1.1'), ['0', undefined])
})

test('preview framing: requests of unclear length are refused before they reach anybody', async () => {
  const unclear = [
    'Content-Length: 5\r\nContent-Length: 6',
    'Content-Length: 5\r\nTransfer-Encoding: chunked',
    'Content-Length:',
    'Content-Length: +5',
    'Content-Length: 5, 5',
    'Transfer-Encoding:',
    'Transfer-Encoding: xchunked',
    'Transfer-Encoding: chunked, identity',
    'Transfer-Encoding: gzip, chunked',
  ]
  for (const header of unclear) {
    const from = preview.seen.length
    // Leaves a connection into the sandbox behind, on which a request that is forwarded arrives at once.
    await preview.ask('/before')
    const answer = await raw(
      `POST /unclear HTTP/1.1\r\nHost: ${preview.host}\r\nConnection: close\r\n${header}\r\n\r\nhello`,
    )
    assert.match(answer, /^HTTP\/1\.1 400 /, header)
    assert.equal(answer.split('HTTP/1.1').length, 2, `${header}: one answer`)
    await preview.ask('/after')
    assert.deepEqual(
      preview.seen.slice(from).map(({ url }) => url),
      ['/before', '/after'],
      header,
    )
  }
})

test('preview framing: the head of an upgrade announces no body', async () => {
  let head = ''
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', (chunk) => {
      head = String(chunk)
      socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n')
    })
  })
  const host = hostOf(preview.id, await listen(server))
  const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\nhello'
  assert.match(await raw(`GET / HTTP/1.1\r\nHost: ${host}\r\n${upgrade}`), /^HTTP\/1\.1 403 /)
  assert.match(head, /^GET \/ /)
  assert.doesNotMatch(head, /content-length/i)
  server.close()
})
