/** Clients that are gone before their request comes to its point, that read nothing, and that open more than they may. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { setImmediate as yieldNow } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { newId } from '../../src/lib/id.ts'
import { sha256 } from '../../src/lib/secret.ts'
import type { SessionService } from '../../src/session/index.ts'
import { previewHost, restoring, useWorld } from '../support/world.ts'

let sandboxId: string
const limits = {
  eventStreamsPerTokenMax: 2,
  eventStreamsPerSessionMax: 4,
  eventStreamsPerOrganisationMax: 6,
  eventStreamsMax: 7,
  socketsPerSandboxMax: 2,
  socketsPerOrganisationMax: 3,
  exportsPerOrganisationMax: 1,
}
const world = useWorld({ limits }, async () => {
  sandboxId = await world.sandbox({ timeout: 0 })
})
/** A server that soon drops a client that takes nothing. What others leave unread on purpose is in `world`. */
const hasty = useWorld({ limits: { streamStallMs: 500 } })

/** The next value that the server publishes on a channel of Node: what it holds of a client, which the client cannot see. */
async function published<Value>(channel: string): Promise<Value> {
  const { promise, resolve } = Promise.withResolvers<Value>()
  const listener = (value: unknown) => resolve(value as Value)
  subscribe(channel, listener)
  try {
    return await promise
  } finally {
    unsubscribe(channel, listener)
  }
}

/** Sends a request and hangs up; its key is looked up only when the server has seen that. */
async function hangUpDuringLookUp(method: string, path: string, body = ''): Promise<void> {
  const { organisations } = world.store
  const key = randomBytes(16).toString('hex')
  await organisations.insertApiKey({
    id: newId('key_'),
    orgId: world.orgId,
    keyHash: sha256(key),
    createdAt: new Date(),
  })
  const lookUp = organisations.apiKeyByHash.bind(organisations)
  const asked = Promise.withResolvers<void>()
  const goOn = Promise.withResolvers<void>()
  organisations.apiKeyByHash = async (hash) => {
    asked.resolve()
    await goOn.promise
    return await lookUp(hash)
  }
  try {
    const started = published<{ response: ServerResponse }>('http.server.request.start')
    const socket = connect(world.port, '127.0.0.1')
    const head = `${method} ${path} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${key}\r\nContent-Length: ${body.length}`
    socket.write(`${head}\r\n\r\n${body}`)
    const { response } = await started
    const closed = once(response, 'close')
    await asked.promise
    socket.destroy()
    await closed
    goOn.resolve()
  } finally {
    organisations.apiKeyByHash = lookUp
  }
}

test(
  'gone client: the wait for a result ends when its client is gone before its key is known',
  { timeout: 60_000 },
  async () => {
    const { api } = world
    const { execId } = (await api.post(`/api/sandboxes/${sandboxId}/exec/run-async`, { cmd: 'echo', args: ['hi'] }))
      .body
    const { exec } = world.sandboxes
    const { result } = exec
    const sent = Promise.withResolvers<unknown>()
    exec.result = async (...query) => {
      sent.resolve(query[3]?.sent?.then(() => 'released'))
      return await result.apply(exec, query)
    }
    try {
      await hangUpDuringLookUp('GET', `/api/sandboxes/${sandboxId}/exec/${execId}/result?wait=0`)
      assert.equal(await sent.promise, 'released')
    } finally {
      exec.result = result
    }
  },
)

test('gone client: an event stream whose client is gone before it opens ends at once', async (t) => {
  const { api, sessions } = world
  const session = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body.id as string
  const { stream } = sessions
  const isAborted = Promise.withResolvers<boolean>()
  restoring(t, sessions, 'stream')
  sessions.stream = async (...query) => {
    isAborted.resolve(query[2].signal.aborted)
    return await stream.apply(sessions, query)
  }
  await hangUpDuringLookUp('GET', `/v1/sessions/${session}/events`)
  assert.equal(await isAborted.promise, true)
})

test(
  'gone client: a WebSocket client that resets while it is attached leaves no attachment',
  { timeout: 60_000 },
  async () => {
    const { api } = world
    const { exec } = world.sandboxes
    const { attach } = exec
    const execId = (await api.post(`/api/sandboxes/${sandboxId}/exec`, { cmd: 'cat' })).body.sessionID as string
    const attaching = Promise.withResolvers<void>()
    const gone = Promise.withResolvers<void>()
    const left = Promise.withResolvers<void>()
    exec.attach = async (...query) => {
      const attachment = await attach.apply(exec, query)
      const close = attachment.close.bind(attachment)
      attachment.close = () => {
        close()
        left.resolve()
      }
      attaching.resolve()
      // As long as a sandbox takes to wake.
      await gone.promise
      return attachment
    }
    try {
      const accepted = published<{ socket: Socket }>('net.server.socket')
      const client = connect(world.port, '127.0.0.1')
      client.write(
        `GET /api/sandboxes/${sandboxId}/exec/${execId} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${api.key}\r\nConnection: Upgrade\r\n` +
          'Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
      )
      const { socket } = await accepted
      const closed = new Promise((resolve) => socket.once('close', resolve))
      await attaching.promise
      client.resetAndDestroy()
      await closed
      gone.resolve()
      await left.promise
    } finally {
      exec.attach = attach
    }
    await api.post(`/api/sandboxes/${sandboxId}/exec/${execId}/kill`, {})
  },
)

test('gone client: a preview whose client is gone before its name is known wakes nothing', async () => {
  const { previews } = world.sandboxes
  const { resolve: lookUp, keepAlive } = previews
  const asked = Promise.withResolvers<void>()
  const goOn = Promise.withResolvers<void>()
  const resolved = Promise.withResolvers<void>()
  let held = 0
  previews.resolve = async (hostname) => {
    asked.resolve()
    await goOn.promise
    const target = await lookUp.call(previews, hostname)
    // After whoever waits for this name.
    setImmediate(resolved.resolve)
    return target
  }
  previews.keepAlive = (id) => {
    held++
    return keepAlive.call(previews, id)
  }
  try {
    const started = published<{ response: ServerResponse }>('http.server.request.start')
    const client = connect(world.port, '127.0.0.1')
    client.write(`GET / HTTP/1.1\r\nHost: ${sandboxId}-p1.${previewHost}\r\n\r\n`)
    const { response } = await started
    const closed = once(response, 'close')
    await asked.promise
    client.destroy()
    await closed
    goOn.resolve()
    await resolved.promise
    assert.equal(held, 0)
  } finally {
    Object.assign(previews, { resolve: lookUp, keepAlive })
  }
})

test('gone client: a client that hangs up during its command is no failed request', { timeout: 60_000 }, async (t) => {
  const { api, logs } = world
  const { exec } = world.sandboxes
  const { run } = exec
  const running = Promise.withResolvers<void>()
  const failed = Promise.withResolvers<unknown>()
  restoring(t, exec, 'run')
  exec.run = async (...query) => {
    const result = run.apply(exec, query)
    result.catch(failed.resolve)
    running.resolve()
    return await result
  }
  const socket = connect(world.port, '127.0.0.1')
  const body = JSON.stringify({ cmd: 'sleep', args: ['1000'] })
  const head = `POST /api/sandboxes/${sandboxId}/exec/run HTTP/1.1\r\nHost: a\r\nX-API-Key: ${api.key}`
  socket.write(`${head}\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  await running.promise
  socket.destroy()
  assert.equal(((await failed.promise) as Error).name, 'AbortError')
  // A whole request later, the failure has gone all its way.
  await api.get('/healthz')
  const errors = logs.filter(({ level }) => level === 'error')
  assert.deepEqual(errors, [])
})

test('stalled client: a client that takes nothing of its answer is dropped, and what it was answered is released', async () => {
  const { api, sessions } = hasty
  const { id } = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body
  // More than the kernel takes for a client.
  sessions.kept.get(id)!.messages[0]!.content = 'x'.repeat(32 * 1024 * 1024)
  const sent: Promise<unknown>[] = []
  const service: SessionService = sessions
  const { get } = sessions
  service.get = async (orgId, sessionId, userId, options) => {
    assert.ok(options?.sent)
    sent.push(options.sent)
    return await get.call(sessions, orgId, sessionId, userId)
  }
  const responses: ServerResponse[] = []
  const started = (value: unknown) => void responses.push((value as { response: ServerResponse }).response)
  subscribe('http.server.request.start', started)
  const clients = Array.from({ length: 3 }, () => connect(hasty.port, '127.0.0.1'))
  try {
    for (const client of clients) {
      client.on('error', () => {})
      client.write(`GET /v1/sessions/${id} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${api.key}\r\n\r\n`)
      client.pause()
    }
    while (sent.length < clients.length) await new Promise((resolve) => setImmediate(resolve))
    await Promise.all(sent)
    for (const response of responses) if (!response.closed) await once(response, 'close')
  } finally {
    unsubscribe('http.server.request.start', started)
    sessions.get = get
    for (const client of clients) client.destroy()
  }
})

test('stalled client: a connection serves on after an answer that was taken, however long the next one takes', async (t) => {
  const { api, sessions } = hasty
  const { id } = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body
  const { get } = sessions
  let asked = 0
  restoring(t, sessions, 'get')
  sessions.get = async (...query) => {
    // Longer than a client may stall, for the second of two requests that come together.
    if (++asked === 2) await new Promise((resolve) => setTimeout(resolve, 1000))
    return await get.apply(sessions, query)
  }
  const client = connect(hasty.port, '127.0.0.1')
  const request = `GET /v1/sessions/${id} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${api.key}\r\n`
  client.write(`${request}\r\n${request}Connection: close\r\n\r\n`)
  let text = ''
  for await (const chunk of client) text += String(chunk)
  assert.equal(text.split('HTTP/1.1 200 OK').length - 1, 2)
})

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
  'stream bound: event streams are counted by token, session, organisation and server, and an ended one is not counted',
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
  'stream bound: a stream that ends, that never existed, or that is refused is not counted',
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
  'stream bound: WebSockets are counted by sandbox and organisation, and an ended one is not counted',
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

test(
  'stream bound: exports are counted by organisation, and an ended one is not counted',
  { timeout: 60_000 },
  async () => {
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
  },
)
