import assert from 'node:assert/strict'
import { once } from 'node:events'
import { stat } from 'node:fs/promises'
import { Agent, createServer as createHttpServer, request } from 'node:http'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { networkInterfaces } from 'node:os'
import { test } from 'node:test'
import { configureGuest } from './guest.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { createGuest } from './index.ts'
import { connectLocally, GuestProcess } from './testing/guest-process.ts'
import { eventually } from '../../lib/testing/eventually.ts'

const machine = await GuestProcess.startForFile()
const { guest } = machine

async function listen(server: Server, host: string): Promise<number> {
  server.listen(0, host)
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

async function text(stream: AsyncIterable<unknown>): Promise<string> {
  let result = ''
  for await (const chunk of stream) result += String(chunk)
  return result
}

test('ports: only those with a listener are listed', async () => {
  const server = createServer()
  const port = await listen(server, '127.0.0.1')
  const ports = await guest.ports()
  assert.ok(ports.includes(port))
  assert.deepEqual(
    ports,
    [...new Set(ports)].toSorted((a, b) => a - b),
  )
  server.close()
  await once(server, 'close')
  assert.ok(!(await guest.ports()).includes(port))
})

test('dial: a server on either loopback or on an own address is reached', async () => {
  const own = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find((address) => !address.internal && address.family === 'IPv4')
  const hosts = ['127.0.0.1', '::1', '0.0.0.0', '::', '127.0.0.7', ...(own === undefined ? [] : [own.address])]
  for (const host of hosts) {
    const server = createServer((socket) => socket.end(`hello from ${host}`))
    const port = await listen(server, host)
    const stream = await guest.dial(port)
    assert.equal(await text(stream), `hello from ${host}`)
    stream.destroy()
    server.close()
  }
})

test('dial: past the guest, or through it where it alone can connect', async () => {
  const server = createServer((socket) => socket.end('direct'))
  const port = await listen(server, '127.0.0.1')
  const opened: Socket[] = []
  const connect = async (to: number) => {
    const socket = await connectLocally(to)
    if (socket !== undefined) opened.push(socket)
    return socket
  }
  const direct = await createGuest(() => machine.dial(), { connect }).dial(port)
  assert.equal(direct, opened[0])
  assert.equal(await text(direct), 'direct')
  await createGuest(() => machine.dial(), { connect: async () => undefined }).dial(port)
  server.close()
})

test('dial: a connection that a freeze meets before the guest has answered is made again, or refused to sleep', async () => {
  const server = createServer((socket) => socket.on('error', () => undefined).end('served'))
  const port = await listen(server, '127.0.0.1')
  for (const reason of ['checkpoint', 'hibernate'] as const) {
    const opened: Socket[] = []
    const connect = async () => {
      const socket = await connectLocally(port)
      assert.ok(socket)
      opened.push(socket)
      return socket
    }
    const ask = async () => {
      if (opened.length === 1) opened[0]?.emit('freeze', reason)
      return await machine.dial()
    }
    const dial = createGuest(ask, { connect }).dial(port)
    if (reason === 'hibernate') await refuses(dial, 'unavailable')
    else assert.equal(await text(await dial), 'served')
    assert.deepEqual([opened.length, opened[0]?.destroyed], [reason === 'hibernate' ? 1 : 2, true])
  }
  server.close()
})

test('dial: a port without a listener is nothing_listening', async () => {
  const server = createServer()
  const port = await listen(server, '127.0.0.1')
  server.close()
  await once(server, 'close')
  await refuses(guest.dial(port), 'nothing_listening')
  for (const wrong of [0, -1, 65_536, 1.5]) {
    await refuses(guest.dial(wrong), 'invalid_request')
  }
})

test('dial: megabytes pass both ways at once, and the end of one direction leaves the other open', async () => {
  // Answers only when the client has ended its side.
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    let bytes = 0
    socket.write(Buffer.alloc(5 << 20, 'down'))
    socket.on('data', (chunk) => (bytes += chunk.length))
    socket.on('end', () => socket.end(`got ${bytes}`))
  })
  const port = await listen(server, '127.0.0.1')
  const stream = await guest.dial(port)
  stream.end(Buffer.alloc(7 << 20, 'up'))
  const received = await text(stream)
  assert.equal(received.length, (5 << 20) + `got ${7 << 20}`.length)
  assert.ok(received.endsWith(`got ${7 << 20}`))
  server.close()
})

test('dial: early bytes of the server behind the answer line are not lost', async () => {
  const server = createServer((socket) => socket.end('early'))
  const port = await listen(server, '127.0.0.1')
  const results = await Promise.all(
    Array.from({ length: 50 }, async () => {
      const stream = await guest.dial(port)
      return text(stream)
    }),
  )
  assert.deepEqual([...new Set(results)], ['early'])
  server.close()
})

test('dial: the end of either side closes the other', async () => {
  const accepted: Socket[] = []
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    accepted.push(socket)
  })
  const port = await listen(server, '127.0.0.1')
  const files = await machine.openFiles()
  const first = await guest.dial(port)
  await eventually(async () => accepted.length === 1, { what: 'the server has it' })
  first.destroy()
  await eventually(async () => accepted[0]?.destroyed === true, { what: 'the server side is closed' })

  const second = await guest.dial(port)
  await eventually(async () => accepted.length === 2, { what: 'the server has it' })
  accepted[1]?.resetAndDestroy()
  second.resume()
  await once(second, 'end')
  second.destroy()
  server.close()
  await eventually(async () => (await machine.openFiles()) <= files, { what: 'no file is left' })
})

test('dial: an http agent keeps dialled connections alive', async () => {
  let connections = 0
  const server = createHttpServer((incoming, response) => {
    void text(incoming).then((body) => response.end(`${incoming.method} ${incoming.url} ${body.length}`))
  })
  server.on('connection', () => connections++)
  const port = await listen(server, '127.0.0.1')
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  agent.createConnection = (_options, callback) => {
    guest.dial(port).then(
      (stream) => callback?.(null, stream),
      (error: Error) => callback?.(error, undefined as never),
    )
    return undefined
  }
  for (const size of [0, 10, 300_000]) {
    const outgoing = request({ agent, host: 'sandbox', path: `/x?${size}`, method: 'POST' })
    outgoing.end(Buffer.alloc(size))
    const [response] = (await once(outgoing, 'response')) as [AsyncIterable<Buffer>]
    assert.equal(await text(response), `POST /x?${size} ${size}`)
  }
  assert.equal(connections, 1)
  agent.destroy()
  server.close()
})

test('socket: it is for root alone and replaces a stale file', async () => {
  assert.equal((await stat(machine.socketPath)).mode & 0o7777, 0o600)
  await using other = await GuestProcess.start({ stale: true })
  assert.equal((await other.guest.hello()).version, (await guest.hello()).version)
})

test('configure: a seed is mixed in and an invalid one refused', async () => {
  const dial = (): ReturnType<GuestProcess['dial']> => machine.dial()
  assert.deepEqual(await configureGuest(dial, { seed: '00ff10' }), {})
  for (const seed of ['xyz', '0', 'é0']) await refuses(configureGuest(dial, { seed }), 'invalid_request')
})

test('connections: all can be closed at any time, and the guest listens on', async () => {
  const server = createServer((socket) => socket.on('error', () => undefined))
  const port = await listen(server, '127.0.0.1')
  await guest.spawn({ id: 'busy', argv: ['sh', '-c', 'while :; do echo x; sleep 0.01; done'], envs: {}, stdin: true })
  const raw = async (operation: object): Promise<Socket> => {
    const socket = await machine.dial()
    socket.on('error', () => undefined)
    socket.write(`${JSON.stringify(operation)}\n`)
    return socket
  }
  const files = await machine.openFiles()
  const sockets = await Promise.all([
    raw({ op: 'attach', id: 'busy' }),
    raw({ op: 'process', id: 'busy', waitMs: 100_000 }),
    raw({ op: 'dial', port }),
    raw({ op: 'write', path: `${machine.folder}/x` }),
    raw({ op: 'read', path: process.execPath }),
    machine.dial(),
  ])
  await Promise.all(
    sockets
      .slice(0, 5)
      .filter((_, index) => index !== 1)
      .map((socket) => once(socket, 'readable')),
  )
  for (const socket of sockets) socket.destroy()
  await eventually(async () => (await machine.openFiles()) <= files, { what: 'the guest has let go' })
  assert.equal((await guest.process('busy')).running, true)
  await guest.release('busy')
  server.close()
})
