/** What is left of an upgrade that was refused, or whose server has gone: nothing, whatever its client does. */
import assert from 'node:assert/strict'
import { subscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import type { Socket } from 'node:net'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { listen } from '../support/listen.ts'
import { hostOf, PreviewWorld } from '../support/preview-world.ts'

let preview: PreviewWorld

before(async () => {
  preview = await PreviewWorld.start()
})

after(() => preview[Symbol.asyncDispose]())

async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await sleep(20)
}

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
      await until(async () => sides.get(port)!.destroyed)
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
  await until(async () => (await preview.world.sandboxes.get(preview.world.orgId, id)).status === 'hibernated')
  client.destroy()
})

test('preview socket: clients that are silent are asked whether they are there', async () => {
  const client = connect(preview.world.port, '127.0.0.1')
  await once(client, 'connect')
  const address = (port: number) => `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const pair = ` ${address(preview.world.port)} ${address(client.localPort!)} `
  // proc(5): 02 is the timer of the probes.
  await until(async () => {
    const lines = (await readFile('/proc/net/tcp', 'utf8')).split('\n')
    return lines.some((line) => line.includes(pair) && / 02:[\dA-F]{8} /.test(line))
  })
  client.destroy()
})
