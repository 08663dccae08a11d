import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { channel } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../lib/testing/eventually.ts'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { dialSocket, waitForGuest, type GuestRelay } from './dial.ts'

/** Far beyond what the calls below may take. */
const hangMs = 60_000
const timeoutMs = 50

/** Connects without a relay between. */
const direct: GuestRelay = {
  async connect(path) {
    const socket = connect({ path })
    socket.on('error', () => undefined)
    await once(socket, 'connect')
    return socket
  },
}

async function listen(t: TestContext, serve: (socket: Socket) => void): Promise<string> {
  const folder = await temporaryFolder(t)
  const sockets = new Set<Socket>()
  const server: Server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    serve(socket)
  })
  const path = `${folder}/guest.sock`
  server.listen(path)
  await once(server, 'listening')
  t.after(async () => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return path
}

const assertTimesOut = (wait: Promise<void>) => assert.rejects(wait, { code: 'unavailable' })

test('waitForGuest: a guest whose answer drips runs into the timeout', { timeout: hangMs }, async (t) => {
  const path = await listen(t, (socket) => {
    socket.write('{"ok":')
    const timer = setInterval(() => socket.write(' '), 10)
    socket.once('close', () => clearInterval(timer))
  })
  await assertTimesOut(waitForGuest(direct, path, timeoutMs, () => true))
})

test(
  'waitForGuest: a guest that never answers, or answers nonsense, runs into the timeout',
  { timeout: hangMs },
  async (t) => {
    const silent = await listen(t, () => undefined)
    const nonsense = await listen(t, (socket) => socket.end('{"ok":"perhaps"}\n'))
    await Promise.all(
      [silent, nonsense].map((path) => assertTimesOut(waitForGuest(direct, path, timeoutMs, () => true))),
    )
  },
)

test('waitForGuest: returns when the guest answers', async (t) => {
  let calls = 0
  const path = await listen(t, (socket) => {
    calls += 1
    socket.end(calls < 3 ? '' : '{"ok":true,"version":"1.0.0","protocol":1,"connections":1}\n')
  })
  await waitForGuest(direct, path, hangMs, () => true)
  assert.equal(calls, 3)
})

/** Listens, and accepts a connection for each line of its input. */
const sleeper = `
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(0)
print("up", flush=True)
for _ in sys.stdin: server.accept()
`

test('dial: backs off while a guest takes no connection, and reaches it once it does', async (t) => {
  const folder = await temporaryFolder(t)
  const path = `${folder}/guest.sock`
  const guest = spawn('python3', ['-c', sleeper, path], { stdio: ['pipe', 'pipe', 'inherit'] })
  const waiting = new Set<Socket>()
  let dials = 0
  const count = () => {
    dials += 1
  }
  t.after(async () => {
    channel('net.client.socket').unsubscribe(count)
    for (const socket of waiting) socket.destroy()
    guest.kill('SIGKILL')
  })
  await once(guest.stdout, 'data')
  waiting.add(await dialSocket(direct, path))
  channel('net.client.socket').subscribe(count)
  const reached = dialSocket(direct, path)
  await eventually(() => dials > 1)
  await sleep(1_000)
  // Every 3 ms they would be hundreds.
  assert.ok(dials < 30, `${dials} dials`)
  guest.stdin.write('\n')
  waiting.add(await reached)
})
