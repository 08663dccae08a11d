/** Bodies in memory: how many, whose, and for how long; those of files and previews never. */
import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http'
import { connect, type AddressInfo, type Socket } from 'node:net'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import type { ApiAnswer, ApiClient } from '../support/api-client.ts'
import { previewHost, restoring, useWorld } from '../support/world.ts'

const mebibyte = 1024 * 1024

const world = useWorld()

async function create(client: ApiClient, bytes: number): Promise<ApiAnswer> {
  return await client.post('/v1/sessions', {
    prompt: 'x',
    user_id: 'u',
    agent_config: { skills: { a: 'x'.repeat(bytes) } },
  })
}

test('body: large bodies that drip stop the large ones of their own organisation, no small ones, and nobody else', async () => {
  const { api, stranger, port } = world
  const arriving: Socket[] = []
  const started = (message: unknown) => void arriving.push((message as { socket: Socket }).socket)
  subscribe('http.server.request.start', started)
  const drips = [1, 2, 3].map(() => {
    const socket = connect(port, '127.0.0.1')
    const head = `POST /v1/sessions HTTP/1.1\r\nHost: a\r\nX-API-Key: ${api.key}\r\nContent-Length: ${10 * mebibyte + 1}`
    socket.write(`${head}\r\n\r\n`)
    socket.write(Buffer.alloc(10 * mebibyte, ' '))
    return socket
  })
  await eventually(() => arriving.length >= 3 && !arriving.some(({ bytesRead }) => bytesRead < 10 * mebibyte))
  unsubscribe('http.server.request.start', started)
  const refused = await create(api, 4 * mebibyte)
  assert.deepEqual([refused.status, refused.body.error.type], [503, 'unavailable'])
  assert.equal((await create(api, 10_000)).status, 201)
  assert.equal((await create(stranger, 4 * mebibyte)).status, 201)
  for (const socket of drips) {
    socket.destroy()
    await once(socket, 'close')
  }
  while ((await create(api, 4 * mebibyte)).status !== 201);
})

test('body: a body counts until it is parsed, not until its request is answered', async (t) => {
  const { api, sessions } = world
  const { create: start } = sessions
  const goOn = Promise.withResolvers<void>()
  let parsed = Promise.withResolvers<void>()
  restoring(t, sessions, 'create')
  sessions.create = async (...query) => {
    parsed.resolve()
    await goOn.promise
    return await start.apply(sessions, query)
  }
  const slow: Promise<ApiAnswer>[] = []
  for (let count = 0; count < 4; count++) {
    parsed = Promise.withResolvers()
    slow.push(create(api, 15 * mebibyte))
    await parsed.promise
  }
  goOn.resolve()
  for (const { status } of await Promise.all(slow)) assert.equal(status, 201)
})

test('body: a body of very many values, or nested very deep, is refused before they are made, and names the limit', async () => {
  const { api } = world
  const many = (count: number, value: string) => `[${Array.from({ length: count }, () => value).join(',')}]`
  const tiny = `{"unknown":${many(300_000, '[]')}}`
  const { status, body } = await api.post('/api/sandboxes/sb-unknown00000/wake', tiny)
  assert.deepEqual([status, body.code], [413, 'too_large'])
  assert.equal(body.error, 'the body has more than 10000 values')
  const manifest = await api.post('/api/sandboxes', tiny)
  assert.deepEqual([manifest.status, manifest.body.error], [413, 'the body has more than 100000 values'])
  const session = await api.post('/v1/sessions', `{"prompt":"x","user_id":"u","unknown":${many(5_000_000, '0')}}`)
  assert.deepEqual([session.status, session.body.error.type], [413, 'invalid_request'])
  assert.equal(session.body.error.message, 'the body has more than 10000 values')
  const fields = Array.from({ length: 20_000 }, (_, index) => `"${index}":1`).join(',')
  assert.equal((await api.put('/api/sandboxes/sb-unknown00000/tags', `{${fields}}`)).status, 413)
  const deep = await api.post('/api/sandboxes', `{"unknown":${'['.repeat(150)}${']'.repeat(150)}}`)
  assert.deepEqual([deep.status, deep.body.code], [413, 'too_large'])
  assert.equal(deep.body.error, 'the body is nested deeper than 100 levels')
})

test('body: a body of as many values as any request has is taken', async () => {
  const { api } = world
  const unknown = Array.from({ length: 9990 }, () => 0)
  let nested: unknown = 0
  for (let depth = 0; depth < 98; depth++) nested = [nested]
  const files = Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`file-${index}.md`, 'text']))
  const wake = `/api/sandboxes/${await world.sandbox()}/wake`
  assert.equal((await api.post(wake, { unknown })).status, 200)
  assert.equal((await api.post(wake, { unknown: nested })).status, 200)
  const config = { agent_config: { skills: { one: files } } }
  assert.notEqual((await api.post('/v1/sessions', { prompt: 'x', user_id: 'u', ...config })).status, 413)
  const marked = Buffer.from('\ufeff{"prompt":"x","user_id":"u"}')
  assert.equal((await api.post('/v1/sessions', marked)).status, 201, 'a byte order mark is no fault')
})

test('body: an error repeats little of what the client sent', async () => {
  const { api } = world
  const key = 'K'.repeat(100_000)
  const { status, text } = await api.put('/api/sandboxes/sb-unknown00000/tags', { [key]: 1 })
  assert.equal(status, 400)
  assert.ok(text.length < 2000, `${text.length} characters`)
})

const bodyBytes = 256 * 1024 * 1024
/** Of the server, the client and the test together, which share this process; garbage that waits to be collected included. */
const growthBytesMax = bodyBytes / 2
const chunk = Buffer.alloc(64 * 1024, 'x')

function* chunks(): Generator<Buffer> {
  for (let sent = 0; sent < bodyBytes; sent += chunk.length) yield chunk
}

async function send(method: string, path: string, headers: Record<string, string>, hasBody: boolean): Promise<number> {
  const outgoing = httpRequest(world.origin + path, { method, headers, agent: false })
  const answered = once(outgoing, 'response') as Promise<[IncomingMessage]>
  if (hasBody) await pipeline(Readable.from(chunks()), outgoing)
  else outgoing.end()
  const [incoming] = await answered
  assert.ok((incoming.statusCode ?? 0) < 300)
  let bytes = 0
  for await (const part of incoming) bytes += (part as Buffer).length
  return bytes
}

/** The greatest resident memory while it runs, above that at its start. */
async function growth(run: () => Promise<void>): Promise<number> {
  const start = process.memoryUsage.rss()
  let most = start
  const timer = setInterval(() => {
    most = Math.max(most, process.memoryUsage.rss())
  }, 20)
  await run()
  clearInterval(timer)
  return most - start
}

test('body: files and previews stream: a body of 256 MiB leaves the memory flat in both directions', async () => {
  const inside = createServer((request, response) => {
    let bytes = 0
    request.on('data', (part: Buffer) => {
      bytes += part.length
    })
    request.on('end', () => {
      if (bytes > 0) response.end(String(bytes))
      else Readable.from(chunks()).pipe(response)
    })
  })
  inside.listen(0, '127.0.0.1')
  await once(inside, 'listening')
  const id = await world.sandbox()
  const host = `${id}-p${(inside.address() as AddressInfo).port}.${previewHost}`
  const key = { 'x-api-key': world.api.key }
  const path = `/api/sandboxes/${id}/files?path=${join(world.machines.folder(id), 'large')}`
  const run = async () => {
    await send('PUT', path, { ...key, 'content-length': String(bodyBytes) }, true)
    assert.equal(await send('GET', path, key, false), bodyBytes)
    await send('POST', '/', { host, 'transfer-encoding': 'chunked' }, true)
    assert.equal(await send('GET', '/', { host }, false), bodyBytes)
  }
  // The first gigabyte makes room that a later one uses again.
  let grown = Infinity
  for (let round = 0; round < 3 && grown >= growthBytesMax; round++) grown = await growth(run)
  assert.ok(grown < growthBytesMax, `grew by ${Math.round(grown / 1024 / 1024)} MiB`)
  inside.closeAllConnections()
  inside.close()
})

test('body: of many faults the first is told, whatever the body is about', async () => {
  const { api } = world
  const cases: [path: string, body: object, field: string][] = [
    ['/api/sandboxes', { volumes: Array.from({ length: 9000 }, () => ({})) }, 'volumes.0.name'],
    ['/api/sandboxes', { image: { steps: Array.from({ length: 33_000 }, () => ({})) } }, 'image.steps.0.type'],
    [
      '/api/snapshots',
      {
        name: 'a',
        image: {
          steps: [{ type: 'add_dir', args: { path: '/a', files: Array.from({ length: 99_000 }, () => ({})) } }],
        },
      },
      'image.steps.0.args.files.0.relativePath',
    ],
    ['/v1/sessions', { prompt: 'a', user_id: 'u', volumes: Array(9000).fill(0) }, 'volumes.0'],
    ['/api/sandboxes', { metadata: { a: '\u0001'.repeat(100_000) } }, 'metadata'],
    ['/api/sandboxes', { envs: { A: 'x'.repeat(200_000) } }, 'envs'],
  ]
  for (const [path, body, field] of cases) {
    const answer = await api.post(path, body)
    assert.equal(answer.status, 400, answer.text.slice(0, 300))
    assert.ok(answer.text.includes(field), `${field}: ${answer.text.slice(0, 300)}`)
  }
})

test('body: an object with more fields than any request needs is refused before it is made', async () => {
  const fields = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`A${index}`, '']))
  const refused = await world.api.post('/api/sandboxes', { envs: fields(1001) })
  assert.deepEqual([refused.status, refused.body.code], [413, 'too_large'])
  assert.match(refused.body.error, /more than 1000 fields/)
  const made = await world.api.post('/api/sandboxes', { envs: fields(1000) })
  assert.equal(made.status, 201, made.text)
  await world.api.delete(`/api/sandboxes/${made.body.sandboxID}`)
})
