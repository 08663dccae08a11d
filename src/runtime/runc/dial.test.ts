import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError } from '../../errors.ts'
import { waitForGuest } from './dial.ts'

/** Far beyond what the calls below may take. */
const hangMs = 5_000
const timeoutMs = 50

async function listen(t: TestContext, serve: (socket: Socket) => void): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'atoll-dial-'))
  const sockets = new Set<Socket>()
  const server: Server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    serve(socket)
  })
  const path = join(folder, 'guest.sock')
  server.listen(path)
  await once(server, 'listening')
  t.after(async () => {
    for (const socket of sockets) socket.destroy()
    server.close()
    await rm(folder, { recursive: true, force: true })
  })
  return path
}

async function assertGivenUp(wait: Promise<void>): Promise<void> {
  const timer = new AbortController()
  const hangs = sleep(hangMs, undefined, { signal: timer.signal }).then(() => assert.fail('it hangs'))
  try {
    await assert.rejects(Promise.race([wait, hangs]), (error) => isServiceError(error, 'unavailable'))
  } finally {
    timer.abort()
  }
}

test('a sandbox whose answer drips is given up in time', async (t) => {
  const path = await listen(t, (socket) => {
    socket.write('{"ok":')
    const timer = setInterval(() => socket.write(' '), 10)
    socket.once('close', () => clearInterval(timer))
  })
  await assertGivenUp(waitForGuest(path, timeoutMs, () => true))
})

test('a sandbox that never answers, or answers nonsense at once, is given up in time', async (t) => {
  const silent = await listen(t, () => undefined)
  const liar = await listen(t, (socket) => socket.end('{"ok":"perhaps"}\n'))
  await Promise.all([silent, liar].map((path) => assertGivenUp(waitForGuest(path, timeoutMs, () => true))))
})

test('a guest that answers is waited for until it does', async (t) => {
  let calls = 0
  const path = await listen(t, (socket) => {
    calls += 1
    socket.end(calls < 3 ? '' : '{"ok":true,"version":"1.0.0","protocol":1,"connections":1}\n')
  })
  await waitForGuest(path, hangMs, () => true)
  assert.equal(calls, 3)
})
