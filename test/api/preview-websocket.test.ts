import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { after, before, test } from 'node:test'
import { listen } from '../support/listen.ts'
import { hostOf, PreviewWorld } from '../support/preview-world.ts'

let preview: PreviewWorld

before(async () => {
  preview = await PreviewWorld.start()
})

after(() => preview[Symbol.asyncDispose]())

test('preview socket: webSockets pass both ways, and a refused upgrade is answered as the server inside refuses it', async () => {
  const socket = preview.webSocket()
  await once(socket, 'open')
  socket.send('text')
  assert.deepEqual(String((await once(socket, 'message'))[0]), 'text')
  const large = Buffer.alloc(3_000_000, 'z')
  socket.send(large)
  assert.ok(large.equals((await once(socket, 'message'))[0] as Buffer))
  socket.close(4001)
  assert.equal((await once(socket, 'close'))[0], 4001)

  assert.equal(await preview.refusedWebSocket('/nowhere'), 400)
})

test('preview socket: the head of an upgrade passes byte for byte', async () => {
  const server = createServer((socket) => {
    socket.on('error', () => {})
    const head =
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Name: caf\xe9\r\n\r\n'
    socket.once('data', () => socket.end(head, 'latin1'))
  })
  const host = hostOf(preview.id, await listen(server))
  const client = connect(preview.world.port, '127.0.0.1')
  client.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`)
  const answer = Buffer.concat(await client.toArray())
  assert.match(answer.toString('latin1'), /X-Name: caf\xe9\r\n/)
  server.close()
})
