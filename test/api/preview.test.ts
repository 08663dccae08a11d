import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, request as httpRequest } from 'node:http'
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http'
import { connect, createServer as createTcpServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket, WebSocketServer } from 'ws'
import { ServiceError } from '../../src/errors.ts'
import { exchange } from '../support/api-client.ts'
import type { Exchange } from '../support/api-client.ts'
import { makeWorld, previewHost } from '../support/world.ts'
import type { World } from '../support/world.ts'

let world: World
let id: string
/** A server "inside": the guest dials the loopback that it shares with this test. */
let inside: Server
let port: number
let connections = 0
const upgraded = new Set<Duplex>()
const seen: IncomingMessage[] = []

const answers: Record<string, RequestListener> = {
  '/echo': (request, response) => void request.pipe(response),
  '/headers': (request, response) => {
    response.setHeader('Set-Cookie', ['a=1', 'b=2'])
    response.setHeader('Connection', 'X-Private')
    response.setHeader('X-Private', 'mine')
    response.setHeader('Proxy-Authenticate', 'Basic')
    response.end(
      JSON.stringify({ headers: request.headers, raw: request.rawHeaders, url: request.url, method: request.method }),
    )
  },
  '/events': (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write('data: 1\n\n')
  },
  '/teapot': (_request, response) => void response.writeHead(418, 'Short And Stout').end('tea'),
  '/break': (_request, response) => {
    response.writeHead(200, { 'content-length': '100' })
    response.write('half')
    setTimeout(() => response.destroy(), 20)
  },
  '/none': (_request, response) => void response.writeHead(204).end(),
}

before(async () => {
  world = await makeWorld()
  id = await world.sandbox()
  inside = createServer((request, response) => {
    seen.push(request)
    const [path = ''] = (request.url ?? '').split('?')
    const answer = answers[path]
    if (answer) answer(request, response)
    else response.end(`hello from ${request.url}`)
  })
  inside.on('connection', () => connections++)
  inside.on('upgrade', (_request, socket) => upgraded.add(socket))
  const sockets = new WebSocketServer({ server: inside, path: '/socket' })
  sockets.on('connection', (socket) =>
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })),
  )
  inside.listen(0, '127.0.0.1')
  await once(inside, 'listening')
  port = (inside.address() as AddressInfo).port
})

after(async () => {
  await world.close()
  inside.closeAllConnections()
  inside.close()
  for (const socket of upgraded) socket.destroy()
})

const hostOf = (sandboxId: string, number: number | string) => `${sandboxId}-p${number}.${previewHost}`

async function ask(path: string, { headers = {}, ...rest }: Exchange = {}, host = hostOf(id, port)) {
  return await exchange(world.origin + path, { ...rest, headers: { host, ...headers } })
}

test('every port answers under its host name, whatever its letters and port suffix', async () => {
  for (const host of [
    hostOf(id, port),
    hostOf(id, port).toUpperCase(),
    `${hostOf(id, port)}:4100`,
    `${hostOf(id, port)}.`,
  ]) {
    const { status, text } = await ask('/a/b?c=d', {}, host)
    assert.deepEqual([status, text], [200, 'hello from /a/b?c=d'], host)
  }
})

test('methods, bodies, statuses and repeated headers pass; those of one connection do not', async () => {
  const posted = await ask('/echo', { method: 'POST', payload: 'some text' })
  assert.equal(posted.text, 'some text')
  const chunked = await ask('/echo', {
    method: 'PUT',
    payload: 'chunked text',
    headers: { 'transfer-encoding': 'chunked' },
  })
  assert.equal(chunked.text, 'chunked text')
  const teapot = await ask('/teapot')
  assert.deepEqual([teapot.status, teapot.text], [418, 'tea'])
  assert.equal((await ask('/none')).status, 204)
  assert.equal((await ask('/headers', { method: 'HEAD' })).text, '')
  const { headers, body, text } = await ask('/headers', {
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
  assert.equal(got.headers.host, hostOf(id, port))
})

test('the sandbox learns who asked through what, and clients cannot say it for themselves', async () => {
  const claimed = {
    'x-forwarded-for': '6.6.6.6',
    'x-forwarded-host': 'evil',
    'x-forwarded-proto': 'https',
    forwarded: 'for=6.6.6.6',
  }
  const { headers } = JSON.parse((await ask('/headers', { headers: claimed })).text)
  assert.equal(headers['x-forwarded-for'], '127.0.0.1')
  assert.equal(headers['x-forwarded-host'], hostOf(id, port))
  assert.equal(headers['x-forwarded-proto'], 'http')
  assert.equal(headers.forwarded, undefined)
})

test('answers stream: the first event arrives while the answer is open, and the hold ends with the client', async () => {
  const held = new Set<symbol>()
  const { previews } = world.sandboxes
  const { hold } = previews
  previews.hold = (sandboxId) => {
    const one = Symbol('hold')
    held.add(one)
    const release = hold.call(previews, sandboxId)
    return () => {
      held.delete(one)
      release()
    }
  }
  try {
    const request = httpRequest(`${world.origin}/events`, { headers: { host: hostOf(id, port) } })
    request.end()
    const [response] = (await once(request, 'response')) as [IncomingMessage]
    const [chunk] = (await once(response, 'data')) as [Buffer]
    assert.equal(String(chunk), 'data: 1\n\n')
    assert.equal(held.size, 1)
    const upstream = seen.at(-1)?.socket
    assert.ok(upstream)
    const closed = once(upstream, 'close')
    request.on('error', () => {})
    request.destroy()
    await closed
    while (held.size > 0) await new Promise((resolve) => setTimeout(resolve, 5))
  } finally {
    previews.hold = hold
  }
})

test('a body streams into the sandbox while it is sent, and comes back meanwhile', async () => {
  const request = httpRequest(`${world.origin}/echo`, { method: 'POST', headers: { host: hostOf(id, port) } })
  request.write('first')
  const [response] = (await once(request, 'response')) as [IncomingMessage]
  assert.equal(String((await once(response, 'data'))[0]), 'first')
  const ended = once(response, 'end')
  request.end('second')
  assert.equal(String((await once(response, 'data'))[0]), 'second')
  await ended
})

test('big bodies pass whole in both directions', async () => {
  const payload = Buffer.alloc(40_000_000, 'abcdefghij')
  const { bytes } = await ask('/echo', { method: 'POST', payload })
  assert.ok(bytes.equals(payload))
})

test('WebSockets pass both ways, and a refused upgrade is answered as the server inside refuses it', async () => {
  const socket = new WebSocket(`${world.origin.replace('http', 'ws')}/socket`, { headers: { host: hostOf(id, port) } })
  await once(socket, 'open')
  socket.send('text')
  assert.deepEqual(String((await once(socket, 'message'))[0]), 'text')
  const large = Buffer.alloc(3_000_000, 'z')
  socket.send(large)
  assert.ok(large.equals((await once(socket, 'message'))[0] as Buffer))
  socket.close(4001)
  assert.equal((await once(socket, 'close'))[0], 4001)

  const refused = new WebSocket(`${world.origin.replace('http', 'ws')}/nowhere`, {
    headers: { host: hostOf(id, port) },
  })
  refused.on('error', () => {})
  const [, response] = (await once(refused, 'unexpected-response')) as [unknown, IncomingMessage]
  assert.equal(response.statusCode, 400)
  refused.terminate()
})

test('the head of an upgrade passes byte for byte', async () => {
  const server = createTcpServer((socket) => {
    socket.on('error', () => {})
    const head =
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Name: caf\xe9\r\n\r\n'
    socket.once('data', () => socket.end(head, 'latin1'))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const host = hostOf(id, (server.address() as AddressInfo).port)
  const client = connect(world.port, '127.0.0.1')
  client.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`)
  const answer = Buffer.concat(await client.toArray())
  assert.match(answer.toString('latin1'), /X-Name: caf\xe9\r\n/)
  server.close()
})

test('connections into the sandbox are kept for the next request, and a kept one that died costs nothing', async () => {
  await ask('/a')
  const made = connections
  for (let index = 0; index < 5; index++) assert.equal((await ask('/a')).status, 200)
  assert.equal(connections, made)
  inside.closeIdleConnections()
  assert.equal((await ask('/a')).status, 200)
})

test('of a crowd that comes at once 256 have a connection, and the others follow', async () => {
  const held: ServerResponse[] = []
  answers['/hold'] = (_request, response) => void held.push(response)
  const crowd = Array.from({ length: 300 }, () => ask('/hold'))
  while (held.length < 256) await sleep(10)
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

test('what breaks off inside breaks off outside', async () => {
  await assert.rejects(ask('/break'), /aborted|hang up|ECONNRESET/)
  assert.equal((await ask('/a')).status, 200)
})

test('answers that are no HTTP, or hold what may not be sent on, harm nobody', async () => {
  const replies = [
    'nonsense\r\n\r\n',
    'HTTP/1.1 200 OK\r\nX-Bad: a\u0001b\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nBad Name: x\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    `HTTP/1.1 200 OK\r\nX-Long: ${'x'.repeat(100_000)}\r\n\r\n`,
    'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    '',
  ]
  let reply = ''
  const sockets = new Set<Socket>()
  const hostile = createTcpServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('data', () => socket.end(reply, 'latin1'))
  })
  hostile.listen(0, '127.0.0.1')
  await once(hostile, 'listening')
  const host = hostOf(id, (hostile.address() as AddressInfo).port)
  for (const text of replies) {
    reply = text
    const { status, body } = await ask('/', { headers: { accept: 'application/json' } }, host)
    assert.deepEqual([status, body.code], [502, 'nothing_listening'], text.slice(0, 60))
    const socket = new WebSocket(`${world.origin.replace('http', 'ws')}/socket`, { headers: { host } })
    socket.on('error', () => {})
    await new Promise((resolve) => socket.on('close', resolve))
  }
  for (const socket of sockets) socket.destroy()
  hostile.close()
  assert.equal((await world.api.get('/healthz')).status, 200)
})

test('a server that answers with hints for ever is given up, and costs the rest nothing', async () => {
  const sockets = new Set<Socket>()
  let sent = 0
  const flooding = createTcpServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    const hints = Buffer.from('HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'.repeat(100))
    const flood = () => {
      do {
        sent += 100
      } while (sent % 100_000 !== 0 && !socket.destroyed && socket.write(hints))
      if (!socket.destroyed) setImmediate(flood)
    }
    socket.once('data', flood)
  })
  flooding.listen(0, '127.0.0.1')
  await once(flooding, 'listening')
  const host = hostOf(id, (flooding.address() as AddressInfo).port)
  const { status, body } = await ask('/', {}, host)
  assert.deepEqual([status, body.code], [502, 'nothing_listening'])
  const socket = new WebSocket(`${world.origin.replace('http', 'ws')}/socket`, { headers: { host } })
  socket.on('error', () => {})
  await new Promise((resolve) => socket.on('close', resolve))
  assert.equal((await world.api.get('/healthz')).status, 200)
  // Both connections are closed by us, not left flooding.
  for (const open of sockets) if (!open.destroyed) await once(open, 'close')
  assert.equal(sockets.size, 2)
  flooding.close()
  assert.ok(sent > 0)
})

/** The connections into sandboxes while `work` runs, as the driver hands them out. */
async function watchingDials(work: (dialled: Duplex[]) => Promise<void>): Promise<void> {
  const { machines } = world
  const dial = machines.dial.bind(machines)
  const dialled: Duplex[] = []
  machines.dial = async (sandboxId) => {
    const connection = await dial(sandboxId)
    dialled.push(connection)
    return connection
  }
  try {
    await work(dialled)
  } finally {
    machines.dial = dial
  }
}

const soon = () => new Promise((resolve) => setTimeout(resolve, 5))

test('idle connections give way to a freeze at once; requests under way finish and are not kept', async () => {
  await watchingDials(async (dialled) => {
    answers['/slow'] = (_request, response) => void setTimeout(() => response.end('slow but whole'), 300)
    inside.closeIdleConnections()
    await ask('/a')
    const idle = dialled.at(-1)
    assert.ok(idle && !idle.destroyed, 'it is kept')
    idle.emit('freeze', 'checkpoint')
    assert.ok(idle.destroyed)

    const slow = ask('/slow')
    while (seen.at(-1)?.url !== '/slow') await soon()
    const used = dialled.at(-1)
    used?.emit('freeze', 'hibernate')
    assert.equal(used?.destroyed, false)
    assert.equal((await slow).text, 'slow but whole')
    if (used && !used.destroyed) await once(used, 'close')
  })
})

test('a request that is cut for a checkpoint is asked again where that does no harm; after a hibernation it is not', async () => {
  await watchingDials(async (dialled) => {
    const hanging = { asked: 0 }
    answers['/hangs'] = (_request, response) => {
      hanging.asked++
      if (hanging.asked === 2) response.end('second time')
    }
    const cut = async (method: string, reason: string) => {
      hanging.asked = 0
      // A kept one that dies under a POST is no failure of ours, and not what is meant here.
      inside.closeIdleConnections()
      while (dialled.some((connection) => !connection.destroyed)) await soon()
      const answer = ask('/hangs', { method, ...(method === 'POST' ? { payload: 'x' } : {}) })
      while (hanging.asked < 1) await soon()
      const used = dialled.at(-1)
      used?.emit('freeze', reason)
      used?.destroy()
      return await answer
    }
    assert.deepEqual([(await cut('GET', 'checkpoint')).text, hanging.asked], ['second time', 2])
    assert.deepEqual([(await cut('POST', 'checkpoint')).status, hanging.asked], [502, 1])
    assert.deepEqual([(await cut('GET', 'hibernate')).status, hanging.asked], [502, 1])
  })
})

test('a WebSocket is closed with 1012 before a freeze, between two frames, so that its client comes back', async () => {
  await watchingDials(async (dialled) => {
    const open = async () => {
      const url = `${world.origin.replace('http', 'ws')}/socket`
      const socket = new WebSocket(url, { headers: { host: hostOf(id, port) } })
      await once(socket, 'open')
      return socket
    }
    const socket = await open()
    const large = Buffer.alloc(3_000_000, 'w')
    let isWhole = false
    socket.on('message', (data: Buffer) => {
      isWhole = large.equals(data)
    })
    const used = dialled.at(-1)
    assert.ok(used)
    socket.send(large)
    // In the middle of the frame that comes back.
    await once(used, 'data')
    used.emit('freeze', 'checkpoint')
    assert.deepEqual([(await once(socket, 'close'))[0], isWhole], [1012, true])
    assert.ok(used.destroyed)

    const quiet = await open()
    dialled.at(-1)?.emit('freeze', 'hibernate')
    assert.equal((await once(quiet, 'close'))[0], 1012)
    const again = await open()
    again.send('text')
    assert.equal(String((await once(again, 'message'))[0]), 'text')
    again.terminate()
  })
})

test('a key of ours that was meant for the API does not enter the sandbox; what is the app’s own does', async () => {
  const key = 'atoll_0123456789abcdef'
  for (const sent of [{ 'x-api-key': key }, { authorization: `Bearer ${key}` }, { authorization: `bearer  ${key}` }]) {
    assert.doesNotMatch((await ask('/headers', { headers: sent })).text, /atoll_/)
  }
  const own = JSON.parse(
    (await ask('/headers', { headers: { 'x-api-key': 'mine', authorization: 'Bearer mine' } })).text,
  )
  assert.deepEqual([own.headers['x-api-key'], own.headers.authorization], ['mine', 'Bearer mine'])
})

test('a request with two hosts is refused', async () => {
  for (const upgrade of ['', 'Connection: Upgrade\r\nUpgrade: websocket\r\n']) {
    const socket = connect(world.port, '127.0.0.1')
    socket.write(`GET / HTTP/1.1\r\nHost: ${hostOf(id, port)}\r\nHost: localhost\r\n${upgrade}\r\n`)
    const text = (await socket.toArray()).map(String).join('')
    assert.match(text, /^HTTP\/1\.1 400/)
  }
})

test('nothing listening: 502 with a page for people that reloads itself, and JSON for programs', async () => {
  const host = hostOf(id, 1)
  const page = await ask('/', { headers: { accept: 'text/html,*/*' } }, host)
  assert.equal(page.status, 502)
  assert.match(page.text, /Nothing listens on port 1\b/)
  assert.match(page.text, /http-equiv="refresh"/)
  const json = await ask('/', {}, host)
  assert.deepEqual([json.status, json.body.code], [502, 'nothing_listening'])
  assert.equal(
    (await ask('/', { method: 'POST', payload: 'x', headers: { accept: 'text/html' } }, host)).body.code,
    'nothing_listening',
  )
})

test('each refusal is a page to people, whole in itself, and JSON to programs, with the same status', async () => {
  const stopped = await world.sandbox()
  await world.api.delete(`/api/sandboxes/${stopped}`)
  const locked = await world.sandbox({ previewAuth: { scheme: 'bearer' } })
  const { machines } = world
  const dial = machines.dial.bind(machines)
  const cases: [status: number, code: string, host: string, reloads: boolean][] = [
    [401, 'unauthorized', hostOf(locked, port), false],
    [404, 'not_found', hostOf('sb-unknown00000', 80), false],
    [410, 'sandbox_stopped', hostOf(stopped, port), false],
    [502, 'nothing_listening', hostOf(id, 1), true],
    [503, 'unavailable', hostOf(id, 2), true],
  ]
  for (const [status, code, host, reloads] of cases) {
    if (status === 503) {
      machines.dial = async () => {
        throw new ServiceError('unavailable', 'it is waking')
      }
    }
    const page = await ask('/', { headers: { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' } }, host)
    assert.deepEqual([page.status, page.headers['content-type']], [status, 'text/html; charset=utf-8'])
    assert.match(String(page.headers['content-security-policy']), /default-src 'none'/)
    assert.match(page.text, new RegExp(`<p class="status">${status} `))
    assert.doesNotMatch(page.text, /https?:|<script|src=/, 'nothing is loaded')
    assert.equal(page.text.includes('http-equiv="refresh"'), reloads)
    const json = await ask('/', { headers: { accept: '*/*' } }, host)
    assert.deepEqual([json.status, json.body.code, typeof json.body.error], [status, code, 'string'])
    assert.equal(json.headers['cache-control'], 'no-store')
    if (status === 401) assert.equal(json.headers['www-authenticate'], 'Bearer')
    if (status === 503) assert.equal(json.headers['retry-after'], '1')
    const head = await ask('/', { method: 'HEAD', headers: { accept: 'text/html' } }, host)
    assert.deepEqual([head.status, head.text], [status, ''])
  }
  machines.dial = dial
})

test('host names of no sandbox answer 404, hostile ones too, and never the API', async () => {
  const hosts = [
    hostOf('sb-unknown00000', 3000),
    hostOf(id, 0),
    hostOf(id, 65_536),
    hostOf(id, '03000'),
    hostOf(id, '3000x'),
    `${id}.${previewHost}`,
    `x.${hostOf(id, port)}`,
    `sb_bad!.${previewHost}`,
    `a..b.${previewHost}`,
    `${'x'.repeat(300)}.${previewHost}`,
    `<script>.${previewHost}`,
  ]
  for (const host of hosts) {
    const { status, text } = await ask('/api/sandboxes', { headers: { 'x-api-key': world.api.key } }, host)
    assert.equal(status, 404, host)
    assert.doesNotMatch(text, /script/)
  }
  const escaped = await ask('/', { headers: { accept: 'text/html' } }, hosts[0])
  assert.match(escaped.text, /No sandbox has this address/)
})

test('other hosts are the API: addresses, names of the machine, unknown names', async () => {
  for (const host of ['127.0.0.1', 'localhost:80', '[::1]:4100', 'atoll', 'other.example', previewHost]) {
    assert.equal((await ask('/healthz', {}, host)).status, 200, host)
  }
  const socket = connect(world.port, '127.0.0.1')
  socket.end('GET /healthz HTTP/1.0\r\n\r\n')
  let text = ''
  socket.on('data', (chunk) => {
    text += String(chunk)
  })
  await once(socket, 'close')
  assert.match(text, /^HTTP\/1\.1 200/)
})

test('a declared port has a domain of its own and a token, which is asked for, stripped, and wakes nothing when wrong', async () => {
  const { api } = world
  const path = `/api/sandboxes/${id}/preview`
  const token = 'token-of-sixteen-characters'
  const declared = await api.post(path, { port, domain: 'App.Example.com', authConfig: { scheme: 'bearer', token } })
  assert.equal(declared.status, 201)
  assert.deepEqual(
    [declared.body.hostname, declared.body.customHostname, declared.body.sslStatus, declared.body.authConfig],
    [hostOf(id, port), 'app.example.com', 'disabled', { scheme: 'bearer' }],
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
    const refused = await ask('/headers', { headers })
    assert.deepEqual([refused.status, refused.body.code], [401, 'unauthorized'])
  }
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.status, 'hibernated', 'a wrong token wakes nothing')

  const byBearer = JSON.parse((await ask('/headers', { headers: { authorization: `Bearer ${token}` } })).text)
  assert.equal(byBearer.headers.authorization, undefined)
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.status, 'running', 'traffic wakes')
  const own = { 'x-oc-preview-token': token, authorization: 'Bearer of-the-app' }
  const byHeader = JSON.parse((await ask('/headers', { headers: own }, 'app.example.com')).text)
  assert.equal(byHeader.headers['x-oc-preview-token'], undefined)
  assert.equal(byHeader.headers.authorization, 'Bearer of-the-app', 'what is not ours belongs to the app')

  const socket = new WebSocket(`${world.origin.replace('http', 'ws')}/socket`, { headers: { host: hostOf(id, port) } })
  socket.on('error', () => {})
  const [, response] = (await once(socket, 'unexpected-response')) as [unknown, IncomingMessage]
  assert.equal(response.statusCode, 401)
  socket.terminate()

  const again = await api.post(path, { port, authConfig: {} })
  assert.deepEqual([again.status, again.body.id, again.body.authConfig], [200, declared.body.id, {}])
  assert.equal((await ask('/a')).status, 200)
  const rotated = await api.post(`${path}/rotate`)
  assert.equal(rotated.body.scheme, 'bearer')
  assert.equal((await ask('/a')).status, 401)
  assert.equal((await ask('/a', { headers: { authorization: `Bearer ${rotated.body.previewAuthToken}` } })).status, 200)
  assert.equal((await api.delete(`${path}/${port}`)).status, 204)
  assert.equal((await api.delete(`${path}/${port}`)).status, 404)
})

test('bad ports and domains are refused', async () => {
  const { api, stranger } = world
  const other = await world.sandbox()
  const path = `/api/sandboxes/${other}/preview`
  for (const bad of [0, 65_536, -1, 1.5, '80', null, undefined]) {
    const { status, body } = await api.post(path, { port: bad })
    assert.deepEqual([status, body.field], [400, 'port'], String(bad))
  }
  for (const domain of ['x', 'a b.example.com', '10.0.0.1', `x.${previewHost}`, 'api.test', '-a.example.com', 5]) {
    assert.equal((await api.post(path, { port: 80, domain })).status, 400, String(domain))
  }
  for (const authConfig of ['x', { scheme: 'basic' }, { token: 'short' }]) {
    assert.equal((await api.post(path, { port: 80, authConfig })).status, 400, JSON.stringify(authConfig))
  }
  assert.equal((await api.post(path, { port: 80, domain: 'taken.example.com' })).status, 201)
  const theirs = await stranger.post('/api/sandboxes', {})
  const taken = await stranger.post(`/api/sandboxes/${theirs.body.sandboxID}/preview`, {
    port: 80,
    domain: 'taken.example.com',
  })
  assert.deepEqual([taken.status, taken.body.code], [409, 'conflict'])
  assert.equal((await api.delete(`${path}/x`)).status, 400)
})

test('a stopped sandbox answers 410 under its host name', async () => {
  const other = await world.sandbox()
  await world.api.delete(`/api/sandboxes/${other}`)
  assert.equal((await ask('/', {}, hostOf(other, port))).status, 410)
  const socket = new WebSocket(`${world.origin.replace('http', 'ws')}/`, { headers: { host: hostOf(other, port) } })
  socket.on('error', () => {})
  const [, response] = (await once(socket, 'unexpected-response')) as [unknown, IncomingMessage]
  assert.equal(response.statusCode, 410)
  socket.terminate()
})

test('preview requests are counted', async () => {
  const { text } = await world.api.get('/metrics')
  for (const status of [101, 200, 401, 404, 410, 502]) {
    assert.match(text, new RegExp(`atoll_preview_requests_total\\{status="${status}"\\} [1-9]`))
  }
})

test('behind a trusted proxy the chain it tells is believed', async () => {
  await using behind = await makeWorld({ trustProxy: ['127.0.0.0/8'] })
  const sandboxId = await behind.sandbox()
  const { text } = await exchange(`${behind.origin}/headers`, {
    headers: { host: hostOf(sandboxId, port), 'x-forwarded-for': '9.9.9.9', 'x-forwarded-proto': 'https' },
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
