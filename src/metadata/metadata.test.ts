import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { after, test } from 'node:test'
import { ServiceError } from '../errors.ts'
import type { Log } from '../lib/log.ts'
import { type Sandbox, newSandbox } from '../sandbox/index.ts'
import { type MetadataOptions, MetadataServer } from './index.ts'

const host = '169.254.169.254'

interface World {
  port: number
  sandbox: Sandbox
  /** The sandbox of all peers. */
  at: string | undefined
  wanted: object[]
  fails: Error | undefined
  logged: string[]
}

async function make(limits: MetadataOptions['limits'] = {}): Promise<World> {
  const sizes = { cpuCount: 2, memoryMb: 1024, diskMb: 10_240, timeoutSeconds: undefined }
  const sandbox = newSandbox('org', { id: 'sb-1', image: 'base', envs: undefined, metadata: undefined, ...sizes })
  const logged: string[] = []
  const write = (_facts: object, message: string) => void logged.push(message)
  const log: Log = { debug: write, info: write, warn: write, error: write }
  const world: World = { port: 0, sandbox, at: 'sb-1', wanted: [], fails: undefined, logged }
  const usage = {
    ...{ cpuPercent: 12.5, memoryBytes: 1, memoryLimitBytes: 2, diskBytes: 3, diskLimitBytes: 4 },
    ...{ processCount: 5, networkReceivedBytes: 6, networkSentBytes: 7 },
  }
  const server = new MetadataServer({
    sandboxes: {
      readOfCaller: async (id) => {
        if (world.fails) throw world.fails
        return { ...world.sandbox, id }
      },
      usage: { measure: async () => usage } as never,
      scaling: {
        limitFromInside: async (_id: string, wanted: { memoryMb?: number; cpuPercent?: number }) => {
          world.wanted.push(wanted)
          return { ...world.sandbox, memoryMb: wanted.memoryMb ?? 1024 }
        },
      } as never,
    },
    region: 'here',
    sandboxAt: () => world.at,
    log,
    limits,
  })
  world.port = await server.listen({ host: '127.0.0.1', port: 0 })
  after(() => server.close())
  return world
}

/** Sends text and returns all that comes until the other side ends. */
async function sent({ port }: World, text: string): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.setEncoding('utf8').on('error', () => {})
  socket.write(text)
  let answer = ''
  for await (const chunk of socket) answer += String(chunk)
  return answer
}

async function ask(world: World, line: string, more: { headers?: string[]; body?: string } = {}) {
  const { headers = [`host: ${host}`], body = '' } = more
  const length = body === '' ? [] : [`content-length: ${Buffer.byteLength(body)}`]
  const request = [`${line} HTTP/1.1`, ...headers, ...length, 'connection: close', '', body].join('\r\n')
  const answer = await sent(world, request)
  const [head = '', text = ''] = answer.split('\r\n\r\n', 2)
  return { status: Number(/^HTTP\/1.1 (\d+)/.exec(head)?.[1]), head: head.toLowerCase(), text }
}

test('metadata: its answers have the shapes of the API, compactly', async () => {
  const world = await make()
  const root = await ask(world, 'GET /')
  assert.equal(root.text, '{"endpoints":["/v1/status","/v1/limits","/v1/scale","/v1/metadata"]}')
  assert.match(root.head, /\r\ncontent-type: application\/json\r\n/)
  const status = JSON.parse((await ask(world, 'GET /v1/status?x=1')).text) as Record<string, unknown>
  assert.equal(status['sandboxId'], 'sb-1')
  assert.ok(Number(status['uptime']) >= 0 && Number(status['uptime']) < 60)
  assert.equal(
    (await ask(world, 'GET /v1/limits')).text,
    '{"cpuPercent":12.5,"memUsage":1,"memLimit":2,"pids":5,"netInput":6,"netOutput":7,"diskLimit":4,"diskUsed":3}',
  )
  assert.equal((await ask(world, 'GET /v1/metadata')).text, '{"region":"here","template":"base"}')
  world.sandbox.image = 'team/tools/base'
  const { text } = await ask(world, 'GET /v1/metadata')
  assert.equal(text, '{"region":"here","template":"team/tools/base","templateBase":"base"}')
})

test('metadata: a scale takes JSON of any content type', async () => {
  const world = await make()
  const headers = [`Host: ${host}:80`, 'content-type: application/x-www-form-urlencoded']
  const scaled = await ask(world, 'POST /v1/scale', { headers, body: '{"memoryMB":2048}' })
  assert.deepEqual([scaled.status, scaled.text], [200, '{"ok":true,"memoryMB":2048,"cpuPercent":200}'])
  assert.deepEqual(world.wanted, [{ memoryMb: 2048, cpuPercent: undefined }])
  for (const body of ['', '{', '[]', '1', 'null', '{}', '{"memoryMB":"1"}', '{"memoryMB":-1}', '{"cpuPercent":1.5}']) {
    const refused = await ask(world, 'POST /v1/scale', { body })
    assert.equal(refused.status, 400, body)
    assert.match(refused.head, /\r\ncontent-type: text\/plain; charset=utf-8\r\n/)
  }
  assert.equal((await ask(world, 'POST /v1/scale', { body: `{"a":"${'x'.repeat(5000)}"}` })).status, 400)
  assert.equal(world.wanted.length, 1)
})

test('metadata: errors are plain text', async () => {
  const world = await make()
  for (const path of ['/v1', '/v1/', '/v1/status/', '//v1/status', '/latest/meta-data', 'http://elsewhere/v1/status']) {
    assert.deepEqual([(await ask(world, `GET ${path}`)).status, path], [404, path])
  }
  for (const [line, allow] of [
    ['POST /v1/status', 'get'],
    ['HEAD /', 'get'],
    ['GET /v1/scale', 'post'],
    ['DELETE /v1/scale', 'post'],
  ]) {
    const { status, head } = await ask(world, line ?? '')
    assert.equal(status, 405)
    assert.match(head, new RegExp(`\r\nallow: ${allow}\r\n`))
  }
  for (const [error, status] of [
    [new ServiceError('not_found', 'no such'), 404],
    [new ServiceError('scaling_locked', 'it is locked'), 403],
    [new ServiceError('oom_floor', 'too small'), 409],
    [new ServiceError('no_capacity', 'the host is full'), 503],
    [new ServiceError('disk_full', 'the disk is full'), 507],
  ] as const) {
    world.fails = error
    const answer = await ask(world, 'GET /v1/status')
    assert.deepEqual([answer.status, answer.text], [status, `${error.message}\n`])
  }
  world.fails = new Error('secret')
  const { status, text } = await ask(world, 'GET /v1/status')
  assert.deepEqual([status, text], [500, 'internal error\n'])
  assert.equal(world.logged.length, 1)
})

test('metadata: pages of other hosts, proxies and strangers get nothing', async () => {
  const world = await make()
  for (const headers of [
    ['host: evil.example'],
    [`host: ${host}:81`],
    [`host: ${host}`, 'origin: http://evil.example'],
    [`host: ${host}`, 'origin: null'],
    [`host: ${host}`, 'x-forwarded-for: 192.0.2.1'],
    [`host: ${host}`, 'forwarded: for=192.0.2.1'],
    [],
  ]) {
    assert.equal((await ask(world, 'GET /v1/status', { headers })).status, 400, headers.join())
  }
  world.at = undefined
  assert.equal((await ask(world, 'GET /v1/status')).status, 404)
})

test('metadata: a connection is that of the sandbox that has made it, also when its address has another owner', async () => {
  const world = await make()
  const socket = connect(world.port, '127.0.0.1')
  socket.setEncoding('utf8')
  const request = `GET /v1/status HTTP/1.1\r\nhost: ${host}\r\n\r\n`
  const answers: string[] = []
  for (const at of ['sb-2', 'sb-3']) {
    socket.write(request)
    const [answer] = (await once(socket, 'data')) as [string]
    answers.push(/"sandboxId":"([^"]*)"/.exec(answer)?.[1] ?? answer)
    world.at = at
  }
  socket.destroy()
  assert.deepEqual(answers, ['sb-1', 'sb-1'])
})

test('metadata: one that asks too often gets 429 and loses its connection, and the others go on', async () => {
  const world = await make({ requestsPerSecond: 0.001, requestBurst: 3 })
  const request = `GET /v1/status HTTP/1.1\r\nhost: ${host}\r\n\r\n`
  const answer = await sent(world, request.repeat(500))
  assert.equal(answer.match(/HTTP\/1.1 200/g)?.length, 3)
  assert.equal(answer.match(/HTTP\/1.1 429/g)?.length, 1)
  assert.match(answer, /retry-after: \d+/)
  assert.equal((await ask(world, 'GET /v1/status')).status, 429)
  world.at = 'sb-2'
  assert.equal((await ask(world, 'GET /v1/status')).status, 200)
})

test('metadata: a request that does not end, or that takes too long, is over in time', async () => {
  const world = await make({ answerMs: 1000 })
  const begun = `POST /v1/scale HTTP/1.1\r\nhost: ${host}\r\ncontent-length: 10\r\n\r\n{`
  assert.match(await sent(world, begun), /^HTTP\/1.1 (408|500)/)
  assert.match(await sent(world, 'GET /v1/sta'), /^(HTTP\/1.1 408|$)/)
  assert.equal(world.wanted.length, 0)
  const client = connect(world.port, '127.0.0.1')
  client.write(begun)
  await new Promise((resolve) => setTimeout(resolve, 20))
  client.destroy()
  await ask(world, 'GET /v1/status')
  assert.deepEqual(world.logged, [], 'a client that leaves is no fault')
})

test('metadata: a sandbox that holds all connections keeps no other out', async () => {
  const world = await make({ connectionsMax: 4 })
  const held = Array.from({ length: 4 }, () => connect(world.port, '127.0.0.1').on('error', () => {}))
  await Promise.all(held.map((socket) => once(socket, 'connect')))
  assert.equal(
    await sent(world, `GET /v1/status HTTP/1.1\r\nhost: ${host}\r\n\r\n`).catch(() => ''),
    '',
    'there is no place',
  )
  world.at = 'sb-2'
  assert.equal((await ask(world, 'GET /v1/status')).status, 200)
  for (const socket of held) socket.destroy()
})
