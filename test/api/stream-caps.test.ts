/** How many connections that last may be open, and that each gives its place back however it ends. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type IncomingMessage, request as httpRequest } from 'node:http'
import { connect, type Socket } from 'node:net'
import { after, before, test } from 'node:test'
import { setImmediate as yieldNow } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { makeWorld } from '../support/world.ts'
import type { World } from '../support/world.ts'

let world: World

before(async () => {
  world = await makeWorld({
    limits: {
      eventStreamsPerTokenMax: 2,
      eventStreamsPerSessionMax: 4,
      eventStreamsPerOrganisationMax: 6,
      eventStreamsMax: 7,
      socketsPerSandboxMax: 2,
      socketsPerOrganisationMax: 3,
      exportsPerOrganisationMax: 1,
    },
  })
})

after(() => world.close())

const created = async (api = world.api) =>
  (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body.id as string

/** A client that asks and reads no further than the head of the answer. */
async function open(
  path: string,
  key?: string,
): Promise<{ status: number; retryAfter: number; words: string; socket: Socket }> {
  const socket = connect(world.port, '127.0.0.1')
  socket.on('error', () => {})
  socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n${key === undefined ? '' : `X-API-Key: ${key}\r\n`}\r\n`)
  let text = ''
  while (!text.includes('\r\n\r\n')) text += String((await once(socket, 'data'))[0])
  const [, status = '0'] = /^HTTP\/1\.1 (\d{3})/.exec(text) ?? []
  if (status === '429') while (!text.includes('}}')) text += String((await once(socket, 'data'))[0])
  socket.pause()
  return { status: Number(status), retryAfter: Number(/^retry-after: (\d+)/im.exec(text)?.[1]), words: text, socket }
}

async function opened(path: string, key?: string): Promise<Socket> {
  const { status, words, socket } = await open(path, key)
  assert.equal(status, 200, words)
  return socket
}

async function refused(cap: RegExp, path: string, key?: string): Promise<void> {
  const { status, retryAfter, words, socket } = await open(path, key)
  socket.destroy()
  assert.equal(status, 429, words)
  assert.match(words, /"type":"rate_limited"/)
  assert.match(words, cap)
  assert.ok(retryAfter > 0, words)
}

/** Resolves when so many of a kind are open, as the metrics tell. */
async function openNow(kind: string, count: number): Promise<void> {
  for (;;) {
    const { text } = await world.api.get('/metrics')
    if (new RegExp(`^atoll_open_streams\\{kind="${kind}"\\} ${count}$`, 'm').test(text)) return
    await yieldNow()
  }
}

test(
  'event streams are so many of a token, a session, an organisation and a server; who leaves makes room',
  { timeout: 60_000 },
  async () => {
    const { api, stranger } = world
    const [one, other] = [await created(), await created()]
    const { token } = (await api.post(`/v1/sessions/${one}/tokens`, { user_id: 'u', scope: 'read' })).body as {
      token: string
    }
    const [byToken, byKey] = [`/v1/sessions/${one}/events?token=${token}`, `/v1/sessions/${one}/events`]
    const sockets = [await opened(byToken), await opened(byToken)]
    await refused(/this token has 2 event streams open already/, byToken)
    // A reset, not an end: as of a client that is cut off.
    sockets.shift()!.resetAndDestroy()
    await openNow('events', 1)
    sockets.push(await opened(byToken))
    for (let index = 0; index < 2; index++) sockets.push(await opened(byKey, api.key))
    await refused(/the session has 4 event streams open already/, byKey, api.key)
    for (let index = 0; index < 2; index++) sockets.push(await opened(`/v1/sessions/${other}/events`, api.key))
    await refused(/the organisation has 6 event streams open already/, `/v1/sessions/${other}/events`, api.key)
    const theirs = `/v1/sessions/${await created(stranger)}/events`
    sockets.push(await opened(theirs, stranger.key))
    await refused(/the server has 7 event streams open already/, theirs, stranger.key)

    for (const socket of sockets) socket.destroy()
    await openNow('events', 0)
    for (const socket of [await opened(byToken), await opened(byToken)]) socket.destroy()
    await openNow('events', 0)
  },
)

test(
  'stream bound: a stream that ends, that was never there, or that is refused takes no place',
  { timeout: 60_000 },
  async () => {
    const { api } = world
    const id = await created()
    const path = `/v1/sessions/${id}/events`
    const socket = await opened(path, api.key)
    socket.resume()
    await api.delete(`/v1/sessions/${id}`)
    await openNow('events', 0)
    for (let index = 0; index < 10; index++) {
      assert.equal((await api.get(path)).status, 204)
      assert.equal((await api.get('/v1/sessions/session_unknown/events')).status, 404)
    }
    await openNow('events', 0)
    socket.destroy()
  },
)

test(
  'WebSockets are so many of a sandbox and of an organisation; who leaves makes room',
  { timeout: 60_000 },
  async () => {
    const { api } = world
    const ids = [await world.sandbox(), await world.sandbox()]
    const execs = await Promise.all(
      ids.map(async (id) => {
        const { sessionID } = (await api.post(`/api/sandboxes/${id}/exec`, { cmd: 'cat' })).body as {
          sessionID: string
        }
        return `/api/sandboxes/${id}/exec/${sessionID}`
      }),
    )
    const attach = async (path: string): Promise<WebSocket | number> => {
      const socket = new WebSocket(`${world.origin.replace('http', 'ws')}${path}?api_key=${api.key}`)
      const { promise, resolve } = Promise.withResolvers<WebSocket | number>()
      socket.once('open', () => resolve(socket))
      socket.once('unexpected-response', (asked, response: IncomingMessage) => {
        resolve(response.statusCode ?? 0)
        asked.destroy()
      })
      socket.on('error', () => {})
      return await promise
    }
    const attached = async (path: string): Promise<WebSocket> => {
      const socket = await attach(path)
      assert.ok(socket instanceof WebSocket)
      return socket
    }
    const sockets = [await attached(execs[0]!), await attached(execs[0]!)]
    assert.equal(await attach(execs[0]!), 429)
    sockets.push(await attached(execs[1]!))
    assert.equal(await attach(execs[1]!), 429)
    sockets.shift()!.terminate()
    await openNow('exec', 2)
    for (let index = 0; index < 5; index++) assert.equal(await attach(`${execs[1]!}unknown`), 404)
    sockets.push(await attached(execs[1]!))
    for (const socket of sockets) socket.terminate()
    await openNow('exec', 0)
    for (const path of execs) await api.post(`${path}/kill`, {})
  },
)

test('stream bound: exports are so many of an organisation; who leaves makes room', { timeout: 60_000 }, async () => {
  const { api, sessions } = world
  const id = await created()
  // More than the kernel takes for a client.
  sessions.kept.get(id)!.messages[0]!.content = 'x'.repeat(32 * 1024 * 1024)
  const path = `/v1/sessions/${id}/export`
  const socket = await opened(path, api.key)
  await refused(/the organisation has 1 exports open already/, path, api.key)
  socket.destroy()
  await openNow('export', 0)
  const asked = httpRequest(`${world.origin}${path}`, { headers: { 'x-api-key': api.key }, agent: false }).end()
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) bytes += chunk.length
  assert.ok(bytes > 32 * 1024 * 1024)
  await openNow('export', 0)
})
