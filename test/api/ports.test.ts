/** Ports of a sandbox by the API: requests that a server inside answers, and connections over a WebSocket. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { connect, createServer, type Socket } from 'node:net'
import { text as textOf } from 'node:stream/consumers'
import { test, type TestContext } from 'node:test'
import { WebSocket } from 'ws'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { exchange, type Exchange } from '../support/api-client.ts'
import { listen } from '../support/listen.ts'
import { usePreview } from '../support/preview-world.ts'

const preview = usePreview(
  {
    '/echo': (request, response) => void request.pipe(response),
    '/acting': (_request, response) => {
      response.setHeader('Set-Cookie', ['a=1', 'b=2'])
      response.setHeader('Clear-Site-Data', '"*"')
      response.setHeader('Service-Worker-Allowed', '/')
      response.setHeader('Strict-Transport-Security', 'max-age=1')
      response.setHeader('Alt-Svc', 'h3=":443"')
      response.setHeader('NEL', '{}')
      response.setHeader('Access-Control-Allow-Origin', 'https://a.example')
      response.setHeader('Access-Control-Allow-Credentials', 'true')
      response.setHeader('Content-Security-Policy', "script-src 'unsafe-inline'")
      response.setHeader('X-Error-Code', 'not_found')
      response.setHeader('Location', 'http://elsewhere.example/')
      response.setHeader('X-Own', 'kept')
      response.writeHead(302).end()
    },
  },
  { limits: { tunnelsPerSandboxMax: 4 } },
)

const at = (path: string, port: number | string = preview.port) =>
  `/api/sandboxes/${preview.id}/ports/${port}/proxy${path}`

async function ask(path: string, { headers = {}, ...rest }: Exchange = {}) {
  const { api, origin } = preview.world
  return await exchange(origin + path, { ...rest, headers: { 'x-api-key': api.key, ...headers } })
}

test('port: a request enters with its path and query byte for byte, and without key and cookies', async () => {
  const path = '/h%zz%E9%2f//;x?a=%zz&b=%E9&token=x&token=y'
  preview.answers['/h%zz%E9%2f//;x'] = preview.answers['/headers']!
  const { key } = preview.world.api
  const answer = await ask(at(path), {
    headers: { cookie: 'sid=1', authorization: 'Bearer own', origin: 'http://a.example' },
  })
  const seen = JSON.parse(answer.text) as { url: string; headers: IncomingHttpHeaders }
  assert.equal(seen.url, path)
  assert.deepEqual(
    [seen.headers['x-api-key'], seen.headers.cookie, seen.headers.authorization, seen.headers.origin],
    [undefined, undefined, 'Bearer own', 'http://a.example'],
  )
  assert.deepEqual(
    [seen.headers.host, seen.headers['x-forwarded-host']],
    [`localhost:${preview.port}`, new URL(preview.world.origin).host],
  )
  const bearer = await exchange(preview.world.origin + at('/headers'), { headers: { authorization: `Bearer ${key}` } })
  assert.equal((JSON.parse(bearer.text) as typeof seen).headers.authorization, undefined)
  const twice = await ask(at('/headers'), { headers: { authorization: `Bearer ${key}` } })
  assert.equal(twice.text.includes(key), false)
  for (const [path_, url] of [
    ['', '/'],
    ['?a', '/?a'],
    ['/', '/'],
    ['//x/', '//x/'],
  ] as const) {
    assert.equal((await ask(at(path_))).text, `hello from ${url}`)
  }
})

test('port: a request of HTTP/1.0 that names no host enters with one', async () => {
  const { hostname, port } = new URL(preview.world.origin)
  const socket = connect(Number(port), hostname)
  socket.write(`GET ${at('/headers')} HTTP/1.0\r\nX-API-Key: ${preview.world.api.key}\r\n\r\n`)
  assert.match(await textOf(socket), /"host":"localhost:\d+"/)
})

test('port: nothing of an answer acts in the origin of the API', async () => {
  const { status, headers } = await ask(at('/acting'))
  assert.equal(status, 302)
  for (const name of [
    'set-cookie',
    'clear-site-data',
    'service-worker-allowed',
    'strict-transport-security',
    'alt-svc',
    'nel',
  ]) {
    assert.equal(headers[name], undefined, name)
  }
  assert.deepEqual(
    [headers['access-control-allow-origin'], headers['access-control-allow-credentials'], headers['x-error-code']],
    ['*', undefined, undefined],
  )
  assert.deepEqual([headers['content-security-policy'], headers['x-content-type-options']], ['sandbox', 'nosniff'])
  assert.deepEqual([headers.location, headers['x-own']], ['http://elsewhere.example/', 'kept'])
})

test('port: every method passes, with its body both ways, and HEAD without one', async () => {
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'PROPFIND', 'OPTIONS']) {
    assert.equal((await ask(at('/echo'), { method, payload: `by ${method}` })).text, `by ${method}`)
  }
  preview.answers['/large'] = (request, response) =>
    void response.setHeader('Content-Length', '3').end(request.method === 'HEAD' ? '' : 'abc')
  const head = await ask(at('/large'), { method: 'HEAD' })
  assert.deepEqual([head.status, head.text, head.headers['content-length']], [200, '', '3'])
  const large = 'x'.repeat(8_000_000)
  assert.ok((await ask(at('/echo'), { method: 'POST', payload: large })).text === large)
})

test('port: a page of another origin may ask, and is told so without a key', async () => {
  const { status, headers } = await exchange(preview.world.origin + at('/x'), { method: 'OPTIONS' })
  assert.deepEqual(
    [status, headers['access-control-allow-headers'], headers['access-control-allow-methods']],
    [204, '*, Authorization', '*'],
  )
})

test('port: faults of the request are errors of the API, and none reaches the sandbox', async () => {
  const { origin, stranger, api } = preview.world
  const before = preview.seen.length
  const fault = async (path: string, headers: Record<string, string>) => {
    const { status, headers: shown, text } = await exchange(origin + path, { headers })
    assert.equal((JSON.parse(text) as { code: string }).code, shown['x-error-code'])
    return [status, shown['x-error-code']]
  }
  const key = { 'x-api-key': api.key }
  assert.deepEqual(await fault(at('/'), {}), [401, 'unauthorized'])
  assert.deepEqual(await fault(`${at('/')}?api_key=${api.key}`, {}), [401, 'unauthorized'])
  assert.deepEqual(await fault(at('/'), { cookie: `x-api-key=${api.key}` }), [401, 'unauthorized'])
  assert.deepEqual(await fault(at('/'), { 'x-api-key': stranger.key }), [404, 'not_found'])
  for (const port of ['0', '65536', 'x', '1e3', '-1'])
    assert.deepEqual(await fault(at('/', port), key), [400, 'invalid_request'])
  assert.deepEqual(await fault(at('/', 1), key), [502, 'nothing_listening'])
  assert.deepEqual(await fault(at('/').replace('proxy', 'pr%6fxy'), key), [404, 'not_found'])
  assert.equal(preview.seen.length, before)
})

test('port: a server that answers nonsense is 502, and one that is cut off ends the answer', async () => {
  let reply = ''
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => socket.end(reply))
  })
  const port = await listen(server)
  for (reply of ['nonsense\r\n\r\n', 'HTTP/1.1 200 a\u0001b\r\nContent-Length: 0\r\n\r\n']) {
    const { status, headers } = await ask(at('/', port))
    assert.deepEqual([status, headers['x-error-code']], [502, 'nothing_listening'], reply)
  }
  server.close()
  preview.answers['/cut'] = (_request, response) => {
    response.setHeader('Content-Length', '10').write('abc')
    setImmediate(() => response.destroy())
  }
  await assert.rejects(ask(at('/cut')))
})

test('port: a server that closes each connection after its answer, without a word, answers all requests', async () => {
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi')
      setTimeout(() => socket.destroy(), 3)
    })
  })
  const port = await listen(server)
  const statuses = new Set<number>()
  for (let round = 0; round < 20; round += 1) {
    const answers = await Promise.all(Array.from({ length: 20 }, () => ask(at('/', port))))
    for (const { status } of answers) statuses.add(status)
  }
  server.close()
  assert.deepEqual([...statuses], [200])
})

test('port: a client that leaves ends the request inside', async () => {
  let inside: ServerResponse | undefined
  preview.answers['/waits'] = (_request, response) => void (inside = response)
  const client = connect(preview.world.port, '127.0.0.1')
  client.write(`GET ${at('/waits')} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${preview.world.api.key}\r\n\r\n`)
  await eventually(() => inside !== undefined)
  client.destroy()
  await eventually(() => inside?.destroyed === true)
})

test('port: the server inside decides about Expect: 100-continue, and early hints are dropped', async () => {
  const sent: string[] = []
  const expecting = async (path: string, key: string) => {
    const client = connect(preview.world.port, '127.0.0.1')
    client.write(
      `POST ${path} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${key}\r\nExpect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n`,
    )
    let text = ''
    client.on('data', (data: Buffer) => {
      text += data.toString()
      if (text === 'HTTP/1.1 100 Continue\r\n\r\n') client.write('body')
      sent.push(text)
    })
    client.on('error', () => {})
    await once(client, 'close')
    return text
  }
  const { key } = preview.world.api
  const whole = await expecting(at('/echo'), key)
  assert.deepEqual(
    [whole.split('100 Continue').length, whole.endsWith('body\r\n0\r\n\r\n') || whole.endsWith('body')],
    [2, true],
    whole,
  )
  assert.match(await expecting(at('/echo'), 'nobody'), /^HTTP\/1.1 401 /)
  const refuse = (_request: IncomingMessage, response: ServerResponse) => void response.writeHead(413).end()
  preview.inside.once('checkContinue', refuse)
  assert.match(await expecting(at('/echo'), key), /^HTTP\/1.1 413 /)
  preview.answers['/hints'] = (_request, response) => {
    response.writeEarlyHints({ link: '</a.css>; rel=preload' })
    response.end('after hints')
  }
  assert.equal((await ask(at('/hints'))).text, 'after hints')
})

test('port: a sandbox that hibernates wakes for a request and for a tunnel, as the caller asks', async () => {
  const { api } = preview.world
  for (const use of [
    async () => assert.equal((await ask(at('/'))).status, 200),
    async () => (await tunnel(preview.port)).terminate(),
  ]) {
    await api.post(`/api/sandboxes/${preview.id}/hibernate`)
    assert.equal((await api.get(`/api/sandboxes/${preview.id}`)).body.status, 'hibernated')
    await use()
    assert.equal((await api.get(`/api/sandboxes/${preview.id}`)).body.status, 'running')
  }
  const { body } = await api.get(`/api/events?follow=false&type=sandbox.resumed`)
  const actors = (body.events as { actor: { type: string } }[]).map(({ actor }) => actor.type)
  assert.deepEqual([...new Set(actors)], ['key'])
})

const tunnelAddress = (port: number, id = preview.id) =>
  `${preview.world.origin.replace('http', 'ws')}/api/sandboxes/${id}/ports/${port}/tunnel`

async function tunnel(port: number): Promise<WebSocket> {
  const socket = new WebSocket(tunnelAddress(port), { headers: { 'x-api-key': preview.world.api.key } })
  await once(socket, 'open')
  return socket
}

/** Status and code that answer a tunnel which is not opened. */
async function refusal(port: number, key = preview.world.api.key): Promise<unknown[]> {
  const socket = new WebSocket(tunnelAddress(port), { headers: { 'x-api-key': key } })
  socket.on('error', () => {})
  const [, response] = (await once(socket, 'unexpected-response')) as [unknown, IncomingMessage]
  socket.terminate()
  return [response.statusCode, response.headers['x-error-code']]
}

/** A server that hands its next connection out. */
async function serving(t: TestContext): Promise<{ port: number; accepted: Promise<Socket> }> {
  const server = createServer({ allowHalfOpen: true })
  const accepted = once(server, 'connection').then(([socket]) => {
    t.after(() => (socket as Socket).destroy())
    return socket as Socket
  })
  t.after(() => void server.close())
  return { port: await listen(server), accepted }
}

/** Everything that a tunnel receives: its bytes, its texts, and its close. */
function receive(socket: WebSocket) {
  const bytes: Buffer[] = []
  const texts: string[] = []
  socket.on('message', (data: Buffer, isBinary) => void (isBinary ? bytes.push(data) : texts.push(data.toString())))
  const closed = once(socket, 'close').then(([code]) => code as number)
  return { bytes: () => Buffer.concat(bytes), texts, closed }
}

test('tunnel: bytes pass both ways, and each direction ends by itself', async (t) => {
  const { port, accepted } = await serving(t)
  const socket = await tunnel(port)
  const { bytes, texts, closed } = receive(socket)
  const inside = await accepted
  socket.send(Buffer.from('to the inside'))
  assert.equal(String((await once(inside, 'data'))[0]), 'to the inside')
  inside.end('from the inside')
  await eventually(() => texts.length === 1)
  assert.deepEqual([bytes().toString(), texts], ['from the inside', ['{"type":"end"}']])

  const rest = inside.toArray()
  socket.send(Buffer.from('still '))
  socket.send(Buffer.from('open'))
  socket.send('{"type":"end"}')
  assert.equal(Buffer.concat((await rest) as Buffer[]).toString(), 'still open')
  assert.equal(await closed, 1000)
})

test('tunnel: a large transfer passes whole, and a reader that is slow holds its writer up', async (t) => {
  const { port, accepted } = await serving(t)
  const socket = await tunnel(port)
  const { bytes, closed } = receive(socket)
  const inside = await accepted
  const large = Buffer.alloc(64_000_000, 'abcdefg')
  socket.pause()
  inside.end(large)
  await eventually(() => inside.bytesWritten > 0)
  assert.ok(inside.writableLength > 0, 'it waits')
  socket.resume()
  for (let from = 0; from < large.length; from += 1_000_000) socket.send(large.subarray(from, from + 1_000_000))
  socket.send('{"type":"end"}')
  const seen: Buffer[] = []
  // The end of the iteration must not destroy what is still to be written.
  for await (const part of inside.iterator({ destroyOnReturn: false })) seen.push(part as Buffer)
  assert.ok(Buffer.concat(seen).equals(large))
  assert.equal(await closed, 1000)
  assert.ok(bytes().equals(large))
})

test('tunnel: what a client has sent before it leaves enters the sandbox', async (t) => {
  const { port, accepted } = await serving(t)
  const socket = await tunnel(port)
  const inside = await accepted
  inside.pause()
  const large = Buffer.alloc(7_000_000, 'z')
  socket.send(large)
  socket.close(1000)
  assert.equal(Buffer.concat((await inside.toArray()) as Buffer[]).length, large.length)
  inside.destroy()
})

test('tunnel: a port without a server, a stranger and another text are refused', async (t) => {
  const { stranger } = preview.world
  assert.deepEqual(await refusal(1), [502, 'nothing_listening'])
  assert.deepEqual(await refusal(0), [400, 'invalid_request'])
  assert.deepEqual(await refusal(preview.port, stranger.key), [404, 'not_found'])
  const { port, accepted } = await serving(t)
  const socket = await tunnel(port)
  const inside = await accepted
  inside.on('error', () => {})
  const { closed } = receive(socket)
  socket.send('hello')
  assert.equal(await closed, 1003)
  if (!inside.destroyed) await once(inside.resume().end(), 'close')
})

test('tunnel: one ends before memory is saved, with 1012, and when its connection breaks, with 1011', async (t) => {
  await preview.watchingDials(async (dialled) => {
    for (const [code, cut] of [
      [1012, (stream: (typeof dialled)[number]) => stream.emit('freeze', 'checkpoint')],
      [1011, (stream: (typeof dialled)[number]) => stream.destroy(new Error('reset'))],
    ] as const) {
      const { port, accepted } = await serving(t)
      const socket = await tunnel(port)
      const inside = await accepted
      inside.on('error', () => {})
      const { closed } = receive(socket)
      cut(dialled.at(-1)!)
      assert.equal(await closed, code)
      inside.destroy()
    }
  })
})

test('tunnel: a sandbox has a bound of them, and one that has ended leaves its place', async (t) => {
  const openTunnels = async () =>
    Number(/^atoll_open_streams\{kind="tunnel"\} (\d+)$/m.exec((await preview.world.api.get('/metrics')).text)?.[1])
  await eventually(async () => (await openTunnels()) === 0)
  const { port } = await serving(t)
  const sockets = await Promise.all(Array.from({ length: 4 }, () => tunnel(port)))
  assert.equal(await openTunnels(), 4)
  assert.deepEqual(await refusal(port), [429, 'rate_limited'])
  for (const socket of sockets) socket.terminate()
  await eventually(async () => (await openTunnels()) === 0)
  ;(await tunnel(port)).terminate()
})

test('port: a request and a tunnel keep their sandbox awake while they last, and no longer', async (t) => {
  const { world } = preview
  const { port } = await serving(t)
  const held: ServerResponse[] = []
  preview.answers['/held'] = (_request, response) => void held.push(response)
  const [idle, asked, connected] = await Promise.all(Array.from({ length: 3 }, () => world.sandbox({ timeout: 1 })))
  const status = async (id = '') => (await world.api.get(`/api/sandboxes/${id}`)).body.status as string
  const hibernates = (id?: string) => eventually(async () => (await status(id)) === 'hibernated')
  const answer = exchange(`${world.origin}/api/sandboxes/${asked}/ports/${preview.port}/proxy/held`, {
    headers: { 'x-api-key': world.api.key },
  })
  const socket = new WebSocket(tunnelAddress(port, connected), { headers: { 'x-api-key': world.api.key } })
  await once(socket, 'open')
  await eventually(() => held.length === 1)
  await hibernates(idle)
  assert.deepEqual([await status(asked), await status(connected)], ['running', 'running'])
  held[0]?.end('done')
  assert.equal((await answer).text, 'done')
  socket.terminate()
  await hibernates(asked)
  await hibernates(connected)
})

test('port: the name of a sandbox stands for its id', async () => {
  await preview.world.api.send('PATCH', `/api/sandboxes/${preview.id}`, { body: { name: 'web' } })
  assert.equal((await ask(`/api/sandboxes/web/ports/${preview.port}/proxy/x`)).text, 'hello from /x')
  const socket = new WebSocket(tunnelAddress(preview.port, 'web'), { headers: { 'x-api-key': preview.world.api.key } })
  await once(socket, 'open')
  socket.terminate()
})
