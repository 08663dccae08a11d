/** Bodies whose server inside answers early, late, twice or never, and clients that send and do not read. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Agent, createServer as createHttpServer, request as httpRequest, type IncomingMessage } from 'node:http'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { listen } from '../support/listen.ts'
import { hostOf, usePreview } from '../support/preview-world.ts'

const preview = usePreview({
  '/echo': (request, response) => void request.pipe(response),
  '/early': (_request, response) => void response.end('early'),
  '/late': (request, response) => {
    request.resume().once('end', () => setImmediate(() => response.end('late')))
  },
  '/refused': (_request, response) => void response.writeHead(401).end('no'),
})
const body = Buffer.alloc(8_000_000, 'x')

/** A server of bytes inside, and the host of its port. */
async function bytesInside(serve: (socket: Socket) => void): Promise<{ server: Server; host: string }> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    socket.on('error', () => {})
    sockets.add(socket)
    serve(socket)
  })
  const host = hostOf(preview.id, await listen(server))
  after(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return { server, host }
}

/** A client of bytes, and the end of the text that it has received. */
function client(): { socket: Socket; receives: (text: RegExp) => Promise<void> } {
  const socket = connect({ port: preview.world.port, host: '127.0.0.1' })
  socket.on('error', () => {})
  let received = ''
  const changed = () => Promise.race([once(socket, 'data'), once(socket, 'close')])
  socket.on('data', (chunk) => {
    received += String(chunk)
  })
  const receives = async (text: RegExp) => {
    while (!text.test(received)) {
      assert.ok(!socket.destroyed, `the connection ended after ${received}`)
      await changed()
    }
  }
  after(() => socket.destroy())
  return { socket, receives }
}

test('early: a server that answers without reading takes uploads, on a connection that serves on', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const ports = new Set<number | undefined>()
  for (const path of ['/early', '/late', '/early', '/refused', '/early']) {
    const options = { agent, method: 'POST', headers: { host: preview.host, 'content-length': body.length } }
    const request = httpRequest(preview.world.origin + path, options)
    request.end(body)
    const [response] = (await once(request, 'response')) as [IncomingMessage]
    ports.add(request.socket?.localPort)
    const text = (await response.toArray()).map(String).join('')
    assert.equal(text, path === '/refused' ? 'no' : path.slice(1))
    if (!request.writableFinished) await once(request, 'finish')
  }
  assert.equal(ports.size, 1)
  agent.destroy()
})

test('early: a client that sends all and reads then gets the answer of a server that does not read', async () => {
  const { socket, receives } = client()
  socket.pause()
  socket.write(`POST /early HTTP/1.1\r\nHost: ${preview.host}\r\nContent-Length: ${body.length}\r\n\r\n`)
  await new Promise((resolve) => socket.write(body, resolve))
  socket.resume()
  await receives(/^HTTP\/1\.1 200 [^]*early/)
})

test('early: what follows an answer still reaches a server that reads it later', async () => {
  const arrived = Promise.withResolvers<number>()
  preview.answers['/afterwards'] = (request, response) => {
    response.end('accepted', () => {
      void request.toArray().then((chunks: Buffer[]) => arrived.resolve(Buffer.concat(chunks).length))
    })
    // Or Node reads it away.
    request.on('readable', () => {})
  }
  const { socket, receives } = client()
  socket.write(`POST /afterwards HTTP/1.1\r\nHost: ${preview.host}\r\nContent-Length: ${body.length}\r\n\r\nx`)
  await receives(/accepted/)
  socket.write(body.subarray(1))
  assert.equal(await arrived.promise, body.length)
  socket.write(`GET /next HTTP/1.1\r\nHost: ${preview.host}\r\n\r\n`)
  await receives(/hello from \/next/)
})

test('early: the answer of a server that closes without reading arrives', async () => {
  const { host } = await bytesInside((socket) => {
    socket.once('data', () => {
      // The rest of the body is unread: the kernel resets the connection.
      socket.end('HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 5\r\n\r\nlarge', () =>
        socket.destroy(),
      )
      socket.pause()
    })
  })
  for (let round = 0; round < 20; round++) {
    const answer = await preview.ask('/', { method: 'POST', payload: body }, host)
    assert.deepEqual([answer.status, answer.text], [413, 'large'])
  }
})

test('early: the head enters the sandbox before the first byte of the body', async () => {
  const { socket, receives } = client()
  socket.write(`POST /refused HTTP/1.1\r\nHost: ${preview.host}\r\nContent-Length: 5\r\n\r\n`)
  await receives(/^HTTP\/1\.1 401 [^]*no/)
  socket.write(`helloGET /next HTTP/1.1\r\nHost: ${preview.host}\r\n\r\n`)
  await receives(/hello from \/next/)
})

test('early: a server that answers and never reads is let go, and so is the client that still sends', async () => {
  const { host } = await bytesInside((socket) => {
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
      socket.pause()
    })
  })
  const { socket, receives } = client()
  const closed = new Promise((resolve) => socket.once('close', resolve))
  socket.write(`POST / HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\n\r\n`)
  const chunk = Buffer.concat([Buffer.from('100000\r\n'), Buffer.alloc(0x10_00_00), Buffer.from('\r\n')])
  const send = () => {
    while (socket.write(chunk));
  }
  socket.on('drain', send)
  send()
  await receives(/ok$/)
  await closed
})

test('expect: the server inside says whether it wants the body', async () => {
  const seen: string[] = []
  const inside = createHttpServer()
  inside.on('checkContinue', (request: IncomingMessage, response) => {
    seen.push(String(request.headers.expect))
    if (request.url === '/no') {
      response.writeHead(403).end('no')
      return
    }
    response.writeContinue()
    request.pipe(response)
  })
  const host = hostOf(preview.id, await listen(inside))
  const head = (path: string) =>
    `PUT ${path} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n`
  const wanted = client()
  wanted.socket.write(head('/yes'))
  await wanted.receives(/^HTTP\/1\.1 100 Continue\r\n\r\n$/)
  wanted.socket.write('hello')
  await wanted.receives(/200 OK[^]*hello/)
  const unwanted = client()
  const closed = once(unwanted.socket, 'close')
  unwanted.socket.write(head('/no'))
  await unwanted.receives(/^HTTP\/1\.1 403 [^]*no/)
  unwanted.socket.end()
  await closed
  assert.deepEqual(seen, ['100-continue', '100-continue'])
  inside.closeAllConnections()
  inside.close()
})

test('expect: the API takes each body, a name without a sandbox none', async () => {
  const expecting = (path: string, host: string, key = '') =>
    `POST ${path} HTTP/1.1\r\nHost: ${host}\r\n${key}Content-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n`
  const api = client()
  api.socket.write(expecting('/api/sandboxes', '127.0.0.1', `X-API-Key: ${preview.world.api.key}\r\n`))
  await api.receives(/^HTTP\/1\.1 100 Continue\r\n\r\n$/)
  api.socket.write('{}')
  await api.receives(/201 Created/)
  const unknown = client()
  unknown.socket.write(expecting('/', hostOf('sb-unknown00000', 80)))
  await unknown.receives(/^HTTP\/1\.1 404 /)
})

for (const when of ['at once', 'later'] as const) {
  test(`twice: a second answer ${when} is never that of another request`, async () => {
    const answer = (text: string) => `HTTP/1.1 200 OK\r\nContent-Length: ${text.length}\r\n\r\n${text}`
    let follow = () => {}
    const { host } = await bytesInside((socket) => {
      socket.on('data', (chunk) => {
        const [, path = ''] = String(chunk).split(' ')
        socket.write(when === 'at once' ? answer(path) + answer('second') : answer(path))
        follow = () => socket.write(answer('second'))
      })
    })
    await preview.watchingDials(async (dialled) => {
      for (let round = 0; round < 10; round++) {
        assert.equal((await preview.ask(`/${round}`, {}, host)).text, `/${round}`)
        assert.equal(dialled.length, round + 1)
        const connection = dialled.at(-1)
        assert.ok(connection)
        const closed = connection.closed ? undefined : once(connection, 'close')
        if (when === 'later') follow()
        await closed
      }
    })
  })
}

test('never: a client that sends and never reads is held back, others are not, and its leaving ends both sides', async () => {
  const { socket } = client()
  socket.pause()
  socket.write(`POST /echo HTTP/1.1\r\nHost: ${preview.host}\r\nTransfer-Encoding: chunked\r\n\r\n`)
  const chunk = Buffer.concat([Buffer.from('100000\r\n'), Buffer.alloc(0x10_00_00), Buffer.from('\r\n')])
  let sent = 0
  for (;;) {
    const hasRoom = await Promise.race([
      new Promise((resolve) => socket.write(chunk, () => resolve(true))),
      sleep(2000, false),
    ])
    if (!hasRoom) break
    sent += chunk.length
    assert.ok(sent < 200_000_000, 'the client is held back')
  }
  assert.equal((await preview.ask('/a')).status, 200)
  const held = () => preview.seen.find(({ url }) => url === '/echo')?.socket
  await eventually(() => held() !== undefined)
  const inside = held()
  assert.ok(inside && !inside.destroyed)
  const closed = new Promise((resolve) => inside.once('close', resolve))
  socket.destroy()
  await closed
})

test('never: an upload that is neither read nor answered ends with its client', async () => {
  const opened = Promise.withResolvers<Socket>()
  const { host } = await bytesInside((socket) => {
    socket.pause()
    opened.resolve(socket)
  })
  const { socket } = client()
  socket.write(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${body.length}\r\n\r\n`)
  socket.write(body)
  const inside = await opened.promise
  const closed = new Promise((resolve) => inside.once('close', resolve))
  socket.destroy()
  inside.resume()
  await closed
})
