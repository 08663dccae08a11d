/** Clients that are gone before their request comes to its point. */
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import { useWorld } from '../support/use-world.ts'
import { previewHost } from '../support/world.ts'

let id: string
const world = useWorld({}, async () => {
  id = await world.sandbox({ timeout: 0 })
})

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
  const keyHash = createHash('sha256').update(key).digest('hex')
  await organisations.insertApiKey({ id: newId('key_'), orgId: world.orgId, keyHash, createdAt: new Date() })
  const lookUp = organisations.organisationByKey.bind(organisations)
  const asked = Promise.withResolvers<void>()
  const goOn = Promise.withResolvers<void>()
  organisations.organisationByKey = async (hash) => {
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
    organisations.organisationByKey = lookUp
  }
}

test(
  'a result asked for by a client that is gone before its key is known is let go of',
  { timeout: 60_000 },
  async () => {
    const { api } = world
    const { execId } = (await api.post(`/api/sandboxes/${id}/exec/run-async`, { cmd: 'echo', args: ['hi'] })).body
    const { exec } = world.sandboxes
    const { result } = exec
    const sent = Promise.withResolvers<unknown>()
    exec.result = async (...query) => {
      sent.resolve(query[3]?.sent?.then(() => 'let go of'))
      return await result.apply(exec, query)
    }
    try {
      await hangUpDuringLookUp('GET', `/api/sandboxes/${id}/exec/${execId}/result?wait=0`)
      assert.equal(await sent.promise, 'let go of')
    } finally {
      exec.result = result
    }
  },
)

test('gone client: an event stream whose client is gone before it opens ends at once', async () => {
  const { api, sessions } = world
  const session = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body.id as string
  const { stream } = sessions
  const opened = Promise.withResolvers<boolean>()
  sessions.stream = async (...query) => {
    opened.resolve(query[2].signal.aborted)
    return await stream.apply(sessions, query)
  }
  try {
    await hangUpDuringLookUp('GET', `/v1/sessions/${session}/events`)
    assert.equal(await opened.promise, true)
  } finally {
    sessions.stream = stream
  }
})

test(
  'gone client: a WebSocket client that resets while it is attached leaves no attachment',
  { timeout: 60_000 },
  async () => {
    const { api } = world
    const { exec } = world.sandboxes
    const { attach } = exec
    const execId = (await api.post(`/api/sandboxes/${id}/exec`, { cmd: 'cat' })).body.sessionID as string
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
        `GET /api/sandboxes/${id}/exec/${execId} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${api.key}\r\nConnection: Upgrade\r\n` +
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
    await api.post(`/api/sandboxes/${id}/exec/${execId}/kill`, {})
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
  previews.keepAlive = (sandboxId) => {
    held++
    return keepAlive.call(previews, sandboxId)
  }
  try {
    const started = published<{ response: ServerResponse }>('http.server.request.start')
    const client = connect(world.port, '127.0.0.1')
    client.write(`GET / HTTP/1.1\r\nHost: ${id}-p1.${previewHost}\r\n\r\n`)
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

test('gone client: a client that hangs up during its command is no failed request', { timeout: 60_000 }, async () => {
  const { api, logs } = world
  const { exec } = world.sandboxes
  const { run } = exec
  const running = Promise.withResolvers<void>()
  const failed = Promise.withResolvers<unknown>()
  exec.run = async (...query) => {
    const result = run.apply(exec, query)
    result.catch(failed.resolve)
    running.resolve()
    return await result
  }
  try {
    const socket = connect(world.port, '127.0.0.1')
    const body = JSON.stringify({ cmd: 'sleep', args: ['1000'] })
    const head = `POST /api/sandboxes/${id}/exec/run HTTP/1.1\r\nHost: a\r\nX-API-Key: ${api.key}`
    socket.write(`${head}\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
    await running.promise
    socket.destroy()
    assert.equal(((await failed.promise) as Error).name, 'AbortError')
  } finally {
    exec.run = run
  }
  // A whole request later, the failure has gone all its way.
  await api.get('/healthz')
  const errors = logs.filter(({ level }) => level === 'error')
  assert.deepEqual(errors, [])
})
