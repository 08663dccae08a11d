import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import { Checkpoint, InvalidRequestError, Sandbox, Session } from './index.ts'
import type { EgressRule } from './index.ts'
import { cut, fakeServer, json, type Asked } from './testing/fake-server.ts'

const place = { sandboxID: 'sb-1', sandboxDomain: 'x' } as never
const started = json(201, place)

const bodies = (asked: readonly Asked[]) =>
  asked.filter(({ body }) => body !== '').map(({ body }) => JSON.parse(body) as Record<string, unknown>)

test('egress: creations, forks and sessions say what may be reached, and which secrets are used', async (t) => {
  const options = {
    secretStore: 'prod',
    secrets: { TOKEN: { value: 'v', allowedHosts: ['api.example.com'] } },
    egress: { allow: ['api.example.com'] },
    egressAllowlist: ['example.com'],
    secretAllowedHosts: { TOKEN: ['api.example.com'] },
  }
  const { client, asked } = await fakeServer(t, [started])
  await Sandbox.create({ client, ...options })
  await Sandbox.fork('cp-1', { client, ...options })
  const forks = { one: (id: string, given: object) => Sandbox.fork(id, { client, ...given }), many: async () => [] }
  await new Checkpoint(client, { id: 'cp-1' } as never, forks).fork(options)
  await Session.create({ client, prompt: 'p', userId: 'u', secretStore: 'prod', egress: { mode: 'none' } })
  const [created, forked, again, session] = bodies(asked)
  for (const body of [created, forked, again]) assert.deepEqual(body, options)
  assert.deepEqual(session, { prompt: 'p', user_id: 'u', secret_store: 'prod', egress: { mode: 'none' } })
})

/** The policy that is written when the server has `policy`. */
async function written(t: TestContext, policy: object | null, act: (sandbox: Sandbox) => Promise<unknown>) {
  const { client, asked } = await fakeServer(t, [json(200, { policy })])
  await act(new Sandbox(client, place))
  assert.deepEqual(
    asked.map(({ method, path }) => `${method} ${path}`),
    ['GET /api/sandboxes/sb-1/egress', 'PUT /api/sandboxes/sb-1/egress'],
  )
  return bodies(asked)[0]
}

const allowing =
  (...rules: EgressRule[]) =>
  (sandbox: Sandbox) =>
    sandbox.egress.allow(...rules)
const denying =
  (...rules: EgressRule[]) =>
  (sandbox: Sandbox) =>
    sandbox.egress.deny(...rules)

const known = {
  mode: 'list',
  allow: [
    {
      host: 'a.example',
      ports: [
        [443, 443],
        [8000, 8010],
      ],
    },
    { cidr: '198.51.100.7/32', ports: [[22, 22]] },
  ],
  deny: [{ host: 'b.example', methods: ['POST'] }, { host: '*.c.example' }],
  logOnly: true,
}

test('egress: an allowed rule is added once, in whatever form, and denies no more', async (t) => {
  const both = [
    { host: 'a.example', ports: [443, '8000-8010'] },
    { cidr: '198.51.100.7/32', ports: [22] },
  ]
  const rest = { mode: 'list', logOnly: true }
  assert.deepEqual(await written(t, known, allowing('d.example:443', '*.C.example')), {
    ...rest,
    allow: [...both, 'd.example:443', '*.C.example'],
    deny: [{ host: 'b.example', methods: ['POST'] }],
  })
  assert.deepEqual(await written(t, known, allowing('198.51.100.7:22', { host: 'b.example', methods: ['post'] })), {
    ...rest,
    allow: [both[0], '198.51.100.7:22', { host: 'b.example', methods: ['post'] }],
    deny: [{ host: '*.c.example' }],
  })
  const closed = { mode: 'none', allow: [], deny: [], logOnly: false }
  assert.deepEqual(await written(t, closed, allowing('a.example')), { ...closed, mode: 'list', allow: ['a.example'] })
})

test('egress: where everything passes an allowed rule ends its denial, and without one nothing is confined by it', async (t) => {
  const open = { mode: 'all', allow: [], deny: [{ host: 'a.example' }, { host: 'b.example' }], logOnly: false }
  const left = { ...open, deny: [{ host: 'b.example' }] }
  assert.deepEqual(await written(t, open, allowing('a.example')), left)
  for (const policy of [null, open]) {
    const { client, asked } = await fakeServer(t, [json(200, { policy })])
    await assert.rejects(new Sandbox(client, place).egress.allow('c.example'), InvalidRequestError)
    assert.equal(asked.length, 1, 'nothing is written')
  }
})

test('egress: a denied rule is added, allows no more, and opens nothing', async (t) => {
  assert.deepEqual(await written(t, null, denying('a.example')), { mode: 'all', allow: [], deny: ['a.example'] })
  const one = { ...known, allow: [{ host: 'a.example' }], deny: [] }
  assert.deepEqual(await written(t, one, denying('a.example')), { ...one, allow: [], deny: ['a.example'] })
})

test('egress: a page of the log, and what follows it each once over connections that break', async (t) => {
  const entries = (response: ServerResponse, ...numbers: number[]) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const number of numbers) response.write(`id: ${number}\ndata: {"number":${number}}\n\n`)
  }
  const broken = (_asked: Asked, response: ServerResponse) => {
    entries(response, 8, 9)
    response.write('id: 10\ndata: {"num')
    setImmediate(() => response.destroy())
  }
  const open = (_asked: Asked, response: ServerResponse) => entries(response, 9, 10)
  const { client, asked } = await fakeServer(t, [json(200, { data: [{ number: 7 }] }), cut, broken, open])
  const { egress } = new Sandbox(client, place)
  const seen: number[] = []
  for await (const { number } of egress.follow({ after: 'newest', decision: 'denied' })) {
    if (seen.push(number) === 3) break
  }
  assert.deepEqual(seen, [8, 9, 10])
  assert.equal(asked[0]?.path, '/api/sandboxes/sb-1/egress/log?after=newest&limit=1')
  const streams = asked.slice(1).map(({ path, headers }) => [path, headers['last-event-id']])
  const path = '/api/sandboxes/sb-1/egress/log?follow=true&decision=denied'
  // The request that was cut is repeated from the same number.
  assert.deepEqual(streams, [
    [path, '7'],
    [path, '7'],
    [path, '9'],
  ])
  const read = await fakeServer(t, [json(200, { data: [{ number: 8 }] })])
  const page = await new Sandbox(read.client, place).egress.log({ after: 7, limit: 5, decision: 'would_deny' })
  assert.deepEqual(page, [{ number: 8 }])
  assert.equal(read.asked[0]?.path, '/api/sandboxes/sb-1/egress/log?after=7&limit=5&decision=would_deny')
})

test('egress: the policy of the organisation is read, replaced and taken away', async (t) => {
  const { client, asked } = await fakeServer(t, [json(200, { policy: null, refreshed: 2, failures: [] })])
  assert.equal(await client.egress.get(), null)
  assert.equal((await client.egress.set({ deny: ['a.example'] })).refreshed, 2)
  await client.egress.clear()
  assert.deepEqual(
    asked.map(({ method, path }) => `${method} ${path}`),
    ['GET /api/egress', 'PUT /api/egress', 'PUT /api/egress'],
  )
  assert.deepEqual(bodies(asked), [{ policy: { deny: ['a.example'] } }, { policy: null }])
})
