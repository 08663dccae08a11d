/** Peers that read nothing, write a byte a second, or come in crowds. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import type { ApiClient } from '../support/api-client.ts'
import { refused, type Target, type Try } from './target.ts'

const flood = { cmd: 'bash', args: ['-c', 'head -c 4000000 /dev/zero | tr "\\0" x'], timeout: 300 }

export const slowTries: Try[] = [
  {
    name: 'twenty results of megabytes that nobody reads cost the neighbour no answer',
    run: async ({ attacker, sandboxId, neighbour, neighbourId, server }: Target) => {
      const body = JSON.stringify(flood)
      const sockets = Array.from({ length: 20 }, () => {
        const socket = connect(server.port, '127.0.0.1').on('error', () => undefined)
        socket.pause()
        socket.write(
          `POST /api/sandboxes/${sandboxId}/exec/run HTTP/1.1\r\nHost: a\r\nX-API-Key: ${attacker.key}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
        )
        return socket
      })
      await sleep(1_000)
      const { status, body: result } = await neighbour.post(`/api/sandboxes/${neighbourId}/exec/run`, flood)
      assert.equal(status, 200)
      assert.equal((result as { stdout: string }).stdout.length, 4_000_000)
      for (const socket of sockets) socket.destroy()
    },
  },
  {
    name: 'two uploads of a byte a second hold no other upload',
    run: async ({ attacker, sandboxId, neighbour, neighbourId, raw }: Target) => {
      const head = `PUT /api/sandboxes/${sandboxId}/files?path=/tmp/slow HTTP/1.1\r\nHost: a\r\nX-API-Key: ${attacker.key}\r\nContent-Length: 1000000\r\n\r\nx`
      const open = [raw(head, 3_000), raw(head, 3_000)]
      const path = `/api/sandboxes/${neighbourId}/files?path=/tmp/quick`
      const { status } = await neighbour.raw('PUT', path, { body: Buffer.alloc(1_000_000) })
      assert.ok([200, 201, 204].includes(status), String(status))
      await Promise.all(open)
    },
  },
  {
    name: 'archives of a byte a second hold no other import',
    run: async ({ attacker, neighbour, raw }: Target) => {
      const head = `PUT /api/images/slow/archive HTTP/1.1\r\nHost: a\r\nX-API-Key: ${attacker.key}\r\nContent-Length: 100000000\r\n\r\nx`
      const open = Array.from({ length: 3 }, () => raw(head, 4_000))
      await sleep(500)
      const answer = await neighbour.raw('PUT', '/api/images/broken/archive', { body: Buffer.from('no archive') })
      refused(answer, 400)
      await Promise.all(open)
    },
  },
  {
    name: 'sockets of terminals that send garbage, or nothing, are ended or harmless',
    run: async ({ attacker, sandboxId, server }: Target) => {
      const { body } = await attacker.post(`/api/sandboxes/${sandboxId}/pty`, { cols: 80, rows: 24 })
      const id = (body as { sessionID?: string; id?: string }).sessionID ?? (body as { id: string }).id
      const url = `ws://127.0.0.1:${server.port}/api/sandboxes/${sandboxId}/pty/${id}`
      const socket = new WebSocket(url, { headers: { 'X-API-Key': attacker.key } })
      socket.on('error', () => undefined)
      await new Promise((resolve) => socket.once('open', resolve).once('close', resolve))
      for (const data of ['{', Buffer.alloc(100_000, 0xff), Buffer.alloc(0), '\0'.repeat(1000)])
        socket.send(data, () => undefined)
      await sleep(300)
      socket.terminate()
      const deleted = await attacker.raw('DELETE', `/api/sandboxes/${sandboxId}/pty/${id}`)
      assert.ok(deleted.status < 500, deleted.text)
    },
  },
  {
    name: 'messages of megabytes that nobody ends are bounded together, and a neighbour’s arrives',
    run: async ({ attacker, sandboxId, neighbour, neighbourId, server }: Target) => {
      const open = async (api: ApiClient, id: string, cmd: string) => {
        const { body } = await api.post(`/api/sandboxes/${id}/exec`, { cmd, timeout: 60 })
        const { sessionID } = body as { sessionID: string }
        const url = `ws://127.0.0.1:${server.port}/api/sandboxes/${id}/exec/${sessionID}`
        const socket = new WebSocket(url, { headers: { 'X-API-Key': api.key } }).on('error', () => undefined)
        await once(socket, 'open')
        return socket
      }
      const slow = await Promise.all(Array.from({ length: 24 }, () => open(attacker, sandboxId, 'sleep 60')))
      const closed = slow.map((socket) => once(socket, 'close'))
      for (const socket of slow) socket.send(Buffer.alloc(7 * 2 ** 20), { fin: false })
      await Promise.race(closed)
      const quick = await open(neighbour, neighbourId, 'cat')
      const echoed = once(quick, 'message')
      quick.send(Buffer.concat([Buffer.of(0), Buffer.alloc(100_000, 'a')]))
      await echoed
      for (const socket of [...slow, quick]) socket.terminate()
    },
  },
  {
    name: 'visitors who take all sockets to a preview leave its owner the sandbox',
    slow: true,
    run: async ({ neighbour, neighbourId, raw, server }: Target) => {
      const run = `/api/sandboxes/${neighbourId}/exec/run`
      const program = `
import socket
listener = socket.create_server(("127.0.0.1", 8111), backlog=1024)
held = []
while True:
    held.append(listener.accept()[0])
    held[-1].recv(4096)
    held[-1].send(b"HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n")`
      await neighbour.post(`/api/sandboxes/${neighbourId}/exec`, {
        cmd: 'python3',
        args: ['-c', program],
        timeout: 120,
      })
      const head = `GET / HTTP/1.1\r\nHost: ${neighbourId}-p8111.preview.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`
      while (!(await raw(head, 200)).includes(' 101 ')) await sleep(100)
      const statuses = { '101': 0, '503': 0 }
      const visitors = Array.from({ length: 1_100 }, () => {
        const socket = connect(server.port, '127.0.0.1').on('error', () => undefined)
        socket.once('data', (said: Buffer) => (statuses[said.toString('latin1', 9, 12) as keyof typeof statuses] += 1))
        socket.write(head)
        return socket
      })
      while (statuses['503'] === 0) await sleep(100)
      const { text, body } = await neighbour.post(run, { cmd: 'echo', args: ['mine'] })
      assert.equal((body as { stdout?: string }).stdout, 'mine\n', text)
      assert.ok(statuses['101'] > 0)
      for (const socket of visitors) socket.destroy()
    },
  },
  {
    name: 'the 257th terminal is refused in words',
    slow: true,
    run: async ({ attacker, sandboxId }: Target) => {
      let last
      for (let count = 0; count < 270; count += 1) {
        last = await attacker.raw('POST', `/api/sandboxes/${sandboxId}/pty`, { body: { cols: 80, rows: 24 } })
        if (last.status >= 400) break
      }
      assert.ok(last !== undefined)
      refused(last, [409, 429, 503], /terminal/)
      const again = await attacker.raw('POST', `/api/sandboxes/${sandboxId}/reboot`, { body: {} })
      assert.equal(again.status, 200)
    },
  },
  {
    name: 'more streams than one key may have are refused, not kept',
    slow: true,
    run: async ({ attacker, raw, neighbour }: Target) => {
      const { body } = await attacker.post('/v1/sessions', { prompt: 'a', user_id: 'u1' })
      const { id } = body as { id: string }
      const head = `GET /v1/sessions/${id}/events HTTP/1.1\r\nHost: a\r\nX-API-Key: ${attacker.key}\r\n\r\n`
      const all = Array.from({ length: 1200 }, () => raw(head, 4_000))
      await sleep(1_000)
      assert.equal((await neighbour.get('/api/sandboxes')).status, 200)
      const statuses = (await Promise.all(all)).map((said) => said.slice(9, 12))
      assert.ok(statuses.includes('429') || statuses.includes('503'), [...new Set(statuses)].join())
      await attacker.delete(`/v1/sessions/${id}`)
    },
  },
]
