/** WebSockets through a preview; connections into a sandbox before a freeze, and after an upgrade was refused or its server has gone. */
import assert from 'node:assert/strict'
import { subscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { connect, createServer, type Socket } from 'node:net'
import { test } from 'node:test'
import { listen } from '../support/listen.ts'
import { hostOf, usePreview } from '../support/preview-world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const preview = usePreview()

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

test('preview freeze: idle connections close at once; requests under way finish and are not kept', async () => {
  await preview.watchingDials(async (dialled) => {
    const held: ServerResponse[] = []
    preview.answers['/slow'] = (_request, response) => void held.push(response)
    preview.inside.closeIdleConnections()
    await preview.ask('/a')
    const idle = dialled.at(-1)
    assert.ok(idle && !idle.destroyed, 'it is kept')
    idle.emit('freeze', 'checkpoint')
    assert.ok(idle.destroyed)

    const slow = preview.ask('/slow')
    await eventually(() => held.length !== 0)
    const used = dialled.at(-1)
    used?.emit('freeze', 'hibernate')
    assert.equal(used?.destroyed, false)
    held[0]?.end('slow but whole')
    assert.equal((await slow).text, 'slow but whole')
    if (used && !used.destroyed) await once(used, 'close')
  })
})

test('preview freeze: a safe request that a checkpoint cuts is repeated, one that a hibernation cuts is not', async () => {
  await preview.watchingDials(async (dialled) => {
    const hanging = { asked: 0 }
    preview.answers['/hangs'] = (_request, response) => {
      hanging.asked++
      if (hanging.asked === 2) response.end('second time')
    }
    const cut = async (method: string, reason: string) => {
      hanging.asked = 0
      // A kept one that dies under a POST is no failure of ours, and not what is meant here.
      preview.inside.closeIdleConnections()
      await eventually(() => !dialled.some((connection) => !connection.destroyed))
      const answer = preview.ask('/hangs', { method, ...(method === 'POST' ? { payload: 'x' } : {}) })
      await eventually(() => hanging.asked >= 1)
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

test('preview freeze: a WebSocket is closed with 1012 before a freeze, between two frames, so that its client comes back', async () => {
  await preview.watchingDials(async (dialled) => {
    const open = async () => {
      const socket = preview.webSocket()
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

/** The server's side of each connection of this process, by the client's port. */
const sides = new Map<number | undefined, Socket>()
subscribe('net.server.socket', (message) => {
  const { socket } = message as { socket: Socket }
  sides.set(socket.remotePort, socket)
})

/** Asks for a WebSocket, sends one more byte when the answer comes, and reads that to its end. */
async function refused(host: string, extra = ''): Promise<{ client: Socket; port: number; text: string }> {
  const client = connect({ port: preview.world.port, host: '127.0.0.1', allowHalfOpen: true })
  client.on('error', () => {})
  await once(client, 'connect')
  const port = client.localPort!
  client.write(`GET /socket HTTP/1.1\r\nHost: ${host}\r\n${extra}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`)
  client.once('data', () => client.write('x'))
  let text = ''
  client.on('data', (data) => {
    text += String(data)
  })
  await once(client, 'end')
  return { client, port, text }
}

test('preview socket: a refused upgrade leaves no connection, whether its client closes or stays', async () => {
  const locked = await preview.world.sandbox({ previewAuth: { scheme: 'bearer' } })
  const stopped = await preview.world.sandbox()
  await preview.world.api.delete(`/api/sandboxes/${stopped}`)
  const plain = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno'))
  })
  const brief = createServer((socket) => {
    socket.on('error', () => {})
    const head = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'
    socket.once('data', () => {
      socket.write(head)
      socket.destroySoon()
    })
  })
  const cases: [status: number, host: string, extra?: string][] = [
    [400, preview.host, 'Host: other\r\n'],
    [401, hostOf(locked, preview.port)],
    [404, hostOf('sb-unknown00000', 80)],
    [410, hostOf(stopped, preview.port)],
    [502, hostOf(preview.id, 1)],
    [200, hostOf(preview.id, await listen(plain))],
    [101, hostOf(preview.id, await listen(brief))],
  ]
  const outcomes = cases.flatMap(([status, host, extra]) =>
    [true, false].map(async (closes) => {
      const { client, port, text } = await refused(host, extra)
      assert.match(text, new RegExp(`^HTTP/1\\.1 ${status} `))
      if (closes) client.end()
      await eventually(async () => sides.get(port)!.destroyed)
      client.destroy()
    }),
  )
  await Promise.all(outcomes)
  plain.close()
  brief.close()
})

test('preview socket: a client that stays after its upgrade was refused keeps no sandbox awake', async () => {
  const id = await preview.world.sandbox({ timeout: 1 })
  const { client } = await refused(hostOf(id, 1))
  await eventually(async () => (await preview.world.sandboxes.get(preview.world.orgId, id)).status === 'hibernated')
  client.destroy()
})

test('preview socket: silent clients are probed', async () => {
  const client = connect(preview.world.port, '127.0.0.1')
  await once(client, 'connect')
  const address = (port: number) => `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const pair = ` ${address(preview.world.port)} ${address(client.localPort!)} `
  // proc(5): 02 is the timer of the probes.
  await eventually(async () => {
    const lines = (await readFile('/proc/net/tcp', 'utf8')).split('\n')
    return lines.some((line) => line.includes(pair) && / 02:[\dA-F]{8} /.test(line))
  })
  client.destroy()
})
