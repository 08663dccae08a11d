import assert from 'node:assert/strict'
import { connect, createServer, type Socket } from 'node:net'
import { test } from 'node:test'
import type { WebSocket } from 'ws'
import { ServiceError, type ErrorCode } from '../../src/errors.ts'
import { listen } from '../support/listen.ts'
import { hostOf, usePreview } from '../support/preview-world.ts'
import { previewHost, restoring } from '../support/world.ts'

const preview = usePreview()

/** However it ends; `once` would throw where it ends with an error. */
const closed = (socket: WebSocket | Socket) => new Promise<void>((resolve) => socket.once('close', () => resolve()))

test('preview error: an invalid answer of the server inside is 502', async () => {
  const replies = [
    'nonsense\r\n\r\n',
    'HTTP/1.1 200 OK\r\nX-Bad: a\u0001b\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 a\u0001b\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nBad Name: x\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    `HTTP/1.1 200 OK\r\nX-Long: ${'x'.repeat(100_000)}\r\n\r\n`,
    'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    '',
  ]
  let reply = ''
  const sockets = new Set<Socket>()
  const hostile = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('data', () => socket.end(reply, 'latin1'))
  })
  const host = hostOf(preview.id, await listen(hostile))
  for (const text of replies) {
    reply = text
    const { status, body } = await preview.ask('/', { headers: { accept: 'application/json' } }, host)
    assert.deepEqual([status, body.code], [502, 'nothing_listening'], text.slice(0, 60))
    await closed(preview.webSocket('/socket', host))
  }
  for (const socket of sockets) socket.destroy()
  hostile.close()
  assert.equal((await preview.world.api.get('/healthz')).status, 200)
})

test('preview error: a server that sends interim answers for ever is disconnected', async () => {
  const sockets = new Set<Socket>()
  let sent = 0
  const flooding = createServer((socket) => {
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
  const host = hostOf(preview.id, await listen(flooding))
  const { status, body } = await preview.ask('/', {}, host)
  assert.deepEqual([status, body.code], [502, 'nothing_listening'])
  await closed(preview.webSocket('/socket', host))
  assert.equal((await preview.world.api.get('/healthz')).status, 200)
  // Both connections are closed by us, not left flooding.
  for (const open of sockets) if (!open.closed) await closed(open)
  assert.equal(sockets.size, 2)
  flooding.close()
  assert.ok(sent > 0)
})

test('preview: a server inside may send hundreds of interim answers before its answer', async () => {
  const working = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => {
      const interim = ['103 Early Hints\r\nLink: </a>', '102 Processing'].map((line) => `HTTP/1.1 ${line}\r\n\r\n`)
      socket.end(`${interim.join('').repeat(200)}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone`)
    })
  })
  const host = hostOf(preview.id, await listen(working))
  const { status, text } = await preview.ask('/', {}, host)
  assert.deepEqual([status, text], [200, 'done'])
  working.close()
})

test('preview error: a request with two hosts is refused', async () => {
  for (const upgrade of ['', 'Connection: Upgrade\r\nUpgrade: websocket\r\n']) {
    const socket = connect(preview.world.port, '127.0.0.1')
    socket.write(`GET / HTTP/1.1\r\nHost: ${preview.host}\r\nHost: localhost\r\n${upgrade}\r\n`)
    const text = (await socket.toArray()).map(String).join('')
    assert.match(text, /^HTTP\/1\.1 400/)
  }
})

test('preview error: nothing listening is 502 with a page for people that reloads itself, and JSON for programs', async () => {
  const host = hostOf(preview.id, 1)
  const page = await preview.ask('/', { headers: { accept: 'text/html,*/*' } }, host)
  assert.equal(page.status, 502)
  assert.match(page.text, /Nothing listens on port 1\b/)
  assert.match(page.text, /http-equiv="refresh"/)
  const json = await preview.ask('/', {}, host)
  assert.deepEqual([json.status, json.body.code], [502, 'nothing_listening'])
  assert.equal(
    (await preview.ask('/', { method: 'POST', payload: 'x', headers: { accept: 'text/html' } }, host)).body.code,
    'nothing_listening',
  )
})

test('preview error: each refusal is a page to people, whole in itself, and JSON to programs, with the same status', async (t) => {
  const stopped = await preview.world.sandbox()
  await preview.world.api.delete(`/api/sandboxes/${stopped}`)
  const locked = await preview.world.sandbox({ previewAuth: { scheme: 'bearer' } })
  const { machines } = preview.world
  const cases: [status: number, code: string, host: string, reloads: boolean][] = [
    [401, 'unauthorized', hostOf(locked, preview.port), false],
    [404, 'not_found', hostOf('sb-unknown00000', 80), false],
    [410, 'sandbox_stopped', hostOf(stopped, preview.port), false],
    [502, 'nothing_listening', hostOf(preview.id, 1), true],
    [503, 'unavailable', hostOf(preview.id, 2), true],
  ]
  restoring(t, machines, 'dial')
  for (const [status, code, host, reloads] of cases) {
    if (status === 503) {
      machines.dial = async () => {
        throw new ServiceError('unavailable', 'it is waking')
      }
    }
    const page = await preview.ask('/', { headers: { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' } }, host)
    assert.deepEqual([page.status, page.headers['content-type']], [status, 'text/html; charset=utf-8'])
    assert.match(String(page.headers['content-security-policy']), /default-src 'none'/)
    assert.match(page.text, new RegExp(`<p class="status">${status} `))
    assert.doesNotMatch(page.text, /https?:|<script|src=/, 'nothing is loaded')
    assert.equal(page.text.includes('http-equiv="refresh"'), reloads)
    const json = await preview.ask('/', { headers: { accept: '*/*' } }, host)
    assert.deepEqual([json.status, json.body.code, typeof json.body.error], [status, code, 'string'])
    assert.equal(json.headers['cache-control'], 'no-store')
    if (status === 401) assert.equal(json.headers['www-authenticate'], 'Bearer')
    if (status === 503) assert.equal(json.headers['retry-after'], '1')
    const head = await preview.ask('/', { method: 'HEAD', headers: { accept: 'text/html' } }, host)
    assert.deepEqual([head.status, head.text], [status, ''])
  }
})

test('preview error: a port of the agent answers 403, as a page that does not reload and to a WebSocket too, declared or not', async () => {
  const { api, machines } = preview.world
  const guest = machines.machines.get(preview.id)?.guest
  assert.ok(guest)
  const program = `import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); s.accept()[0].sendall(b'HTTP/1.1 200 OK\\r\\n\\r\\nmine'); input()`
  await guest.spawn({ id: 'ag-1', argv: ['python3', '-c', program], envs: {}, stdin: true, privatePorts: true })
  let port = ''
  while (port === '') port = (await guest.output('ag-1')).stdout.toString().trim()
  const host = hostOf(preview.id, port)
  const ask = async () => {
    const page = await preview.ask('/', { headers: { accept: 'text/html' } }, host)
    assert.equal(page.status, 403)
    assert.match(page.text, new RegExp(`Port ${port} belongs to the agent`))
    assert.doesNotMatch(page.text, /http-equiv="refresh"/)
    const json = await preview.ask('/', { method: 'POST', payload: '{}' }, host)
    assert.deepEqual([json.status, json.body.code], [403, 'forbidden'])
    assert.equal(await preview.refusedWebSocket('/', host), 403)
  }
  await ask()
  assert.equal((await api.post(`/api/sandboxes/${preview.id}/preview`, { port: Number(port) })).status, 201)
  await ask()
  await guest.signal('ag-1', 9)
  assert.equal((await guest.process('ag-1', 60_000)).running, false)
  await guest.release('ag-1')
  assert.equal((await preview.ask('/', {}, host)).status, 502)
})

test('preview error: host names of no sandbox answer 404, hostile ones too, and never the API', async () => {
  const hosts = [
    hostOf('sb-unknown00000', 3000),
    hostOf(preview.id, 0),
    hostOf(preview.id, 65_536),
    hostOf(preview.id, '03000'),
    hostOf(preview.id, '3000x'),
    `${preview.id}.${previewHost}`,
    `x.${preview.host}`,
    `sb_bad!.${previewHost}`,
    `a..b.${previewHost}`,
    `${'x'.repeat(300)}.${previewHost}`,
    `<script>.${previewHost}`,
  ]
  for (const host of hosts) {
    const { status, text } = await preview.ask(
      '/api/sandboxes',
      { headers: { 'x-api-key': preview.world.api.key } },
      host,
    )
    assert.equal(status, 404, host)
    assert.doesNotMatch(text, /script/)
  }
  const escaped = await preview.ask('/', { headers: { accept: 'text/html' } }, hosts[0])
  assert.match(escaped.text, /No sandbox has this address/)
})

test('preview error: a stopped sandbox answers 410 under its host name', async () => {
  const other = await preview.world.sandbox()
  await preview.world.api.delete(`/api/sandboxes/${other}`)
  assert.equal((await preview.ask('/', {}, hostOf(other, preview.port))).status, 410)
  assert.equal(await preview.refusedWebSocket('/', hostOf(other, preview.port)), 410)
})

test('preview wake: a refused wake is answered with the status of its error, and is no fault of the server', async (t) => {
  const { previews } = preview.world.sandboxes
  const cases: [code: ErrorCode, status: number, retryAfter?: string][] = [
    ['conflict', 409],
    ['patch_failed', 422],
    ['rate_limited', 429, '13'],
    ['unavailable', 503, '1'],
    ['no_capacity', 503, '1'],
    ['full_checkpoint_unavailable', 503, '1'],
    ['memory_not_restorable', 409],
  ]
  restoring(t, previews, 'dial')
  for (const [code, status, retryAfter] of cases) {
    previews.dial = () =>
      Promise.reject(
        new ServiceError(code, 'what only the owner may know', {
          details: { retryAfterSeconds: 12.5, stderr: 'no' },
        }),
      )
    const json = await preview.ask('/')
    assert.deepEqual([json.status, json.body.code, json.headers['retry-after']], [status, code, retryAfter])
    const page = await preview.ask('/', { headers: { accept: 'text/html' } })
    assert.equal(page.status, status)
    for (const { text } of [json, page]) assert.doesNotMatch(text, /only the owner|stderr/)
  }
  const errors = preview.world.logs.filter(({ level }) => level === 'error')
  assert.deepEqual(errors, [])
})

test('preview error: while the database is away a preview is unavailable, and that is no fault of the server', async (t) => {
  const { previews } = preview.world.sandboxes
  restoring(t, previews, 'resolve')
  previews.resolve = () => Promise.reject(new ServiceError('unavailable', 'the database does not answer'))
  const json = await preview.ask('/')
  assert.deepEqual([json.status, json.body.code, json.headers['retry-after']], [503, 'unavailable', '1'])
  assert.equal(await preview.refusedWebSocket('/', hostOf(preview.id, preview.port)), 503)
  const errors = preview.world.logs.filter(({ level }) => level === 'error')
  assert.deepEqual(errors, [])
})

test('preview error: a client that sends all of a large body before it reads gets the refusal', async () => {
  const bytes = 32 * 1024 * 1024
  const socket = connect({ port: preview.world.port, host: '127.0.0.1', allowHalfOpen: true })
  socket.pause()
  const sent = Promise.withResolvers<void>()
  socket.on('error', sent.reject)
  socket.write(`POST / HTTP/1.1\r\nHost: sb-unknown00000-p80.${previewHost}\r\nContent-Length: ${bytes}\r\n\r\n`)
  socket.write(Buffer.alloc(bytes, 'x'), () => sent.resolve())
  await sent.promise
  const told = (await socket.toArray()).map(String).join('')
  assert.match(told, /^HTTP\/1\.1 404 /)
  socket.end()
})
