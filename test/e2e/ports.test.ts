/** Ports and watches of a real sandbox: what is left of them in the server, in hostd and in the guest. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { exchange } from '../support/api-client.ts'
import { sh, startSandbox } from './sandbox-calls.ts'
import { processesOf } from './sandbox-insides.ts'
import { AtollServer } from './server.ts'

const server = await AtollServer.startForFile()
const headers = { 'x-api-key': server.key }
const sandboxId = await startSandbox(server)
const port = `/api/sandboxes/${sandboxId}/ports/3000`
/** 3000 answers HTTP, echoes everything else, and keeps its connections; on 3001 connections wait for ever to be accepted. */
const program = `import socket, threading
def serve(c):
    try:
        while d := c.recv(65536): c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n' if d.startswith(b'GET') else d)
    except OSError: pass
    c.close()
s = socket.create_server(('127.0.0.1', 3000), backlog=100)
deaf = socket.create_server(('127.0.0.1', 3001), backlog=100)
open('/root/ready', 'w').close()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`
await exchange(`${server.url}/api/sandboxes/${sandboxId}/files?path=/root/serve.py`, {
  ...{ method: 'PUT', headers, payload: program },
})
await sh(
  server,
  sandboxId,
  'cd /root; setsid python3 serve.py >/dev/null 2>&1 & until [ -e /root/ready ]; do sleep 0.05; done',
)

const commandOf = async (pid: number) => await readFile(`/proc/${pid}/cmdline`, 'utf8')
const descriptorsOf = async (pid: number) => (await readdir(`/proc/${pid}/fd`)).length

async function hostdOf(parent: number): Promise<number> {
  const children = await readFile(`/proc/${parent}/task/${parent}/children`, 'utf8')
  const pids = children.trim().split(' ').map(Number)
  const commands = await Promise.all(pids.map(commandOf))
  const hostd = pids[commands.findIndex((command) => command.includes('/hostd'))]
  assert.ok(hostd, 'hostd is a child of the server')
  return hostd
}

async function guestOf(sandbox: string): Promise<number> {
  for (const pid of await processesOf(sandbox)) if ((await commandOf(pid)).startsWith('/.atoll/guest')) return pid
  throw new Error('the guest does not run')
}

async function tunnel(to = 3000): Promise<WebSocket> {
  const socket = new WebSocket(`${server.url.replace('http', 'ws')}/api/sandboxes/${sandboxId}/ports/${to}/tunnel`, {
    headers,
  })
  await once(socket, 'open')
  return socket
}

/** A tunnel that the program has accepted. */
async function answeredTunnel(): Promise<WebSocket> {
  const socket = await tunnel()
  socket.send(Buffer.from('bytes'))
  await once(socket, 'message')
  return socket
}

/** The ways in which a tunnel ends. */
const endings: ((socket: WebSocket) => unknown)[] = [
  (socket) => socket.terminate(),
  (socket) => socket.close(),
  (socket) => socket.send('{"type":"end"}'),
  (socket) => socket.send('nonsense'),
]

test('ports: requests, tunnels and watches leave nothing open, however they end', async () => {
  const pids = [server.pid, await hostdOf(server.pid), await guestOf(sandboxId)]
  const descriptors = async () => await Promise.all(pids.map(descriptorsOf))
  const before = await descriptors()
  for (let round = 0; round < 10; round += 1) {
    const requests = Array.from({ length: 5 }, () => exchange(`${server.url}${port}/proxy/`, { headers }))
    assert.ok((await Promise.all(requests)).every(({ status }) => status === 200))
    const ended = Array.from({ length: 8 }, async (_, index) => {
      const socket = await tunnel()
      socket.send(Buffer.from('bytes'))
      if (round % 2 === 0) await once(socket, 'message')
      endings[index % endings.length]!(socket)
      if (socket.readyState !== socket.CLOSED) await once(socket, 'close')
    })
    await Promise.all(ended)
    const watch = new AbortController()
    const query = 'path=/root&recursive=true'
    const watches = Array.from({ length: 8 }, () =>
      fetch(`${server.url}/api/sandboxes/${sandboxId}/files/watch?${query}`, { headers, signal: watch.signal }),
    )
    assert.ok((await Promise.all(watches)).every(({ status }) => status === 200))
    watch.abort()
  }
  await eventually(async () => {
    const after = await descriptors()
    assert.ok(
      after.every((count, index) => count <= before[index]!),
      `${after.join()} after ${before.join()}`,
    )
  })
})

test('ports: a tunnel whose client waits ends with its sandbox, as broken where the program never accepted it', async () => {
  const before = await descriptorsOf(server.pid)
  const open = await Promise.all(
    Array.from({ length: 16 }, (_, index) => (index < 8 ? answeredTunnel() : tunnel(3001))),
  )
  const closed = open.map((socket) => once(socket, 'close'))
  await exchange(`${server.url}/api/sandboxes/${sandboxId}`, { method: 'DELETE', headers })
  const codes = (await Promise.all(closed)).map(([code]) => code as number)
  assert.deepEqual(
    codes,
    // The kernel resets connections that wait to be accepted.
    Array.from({ length: 16 }, (_, index) => (index < 8 ? 1000 : 1011)),
  )
  await eventually(async () => (await descriptorsOf(server.pid)) <= before)
})
