/** `atoll egress`, and the flags of what starts sandboxes, against a server that notes what it is asked. */
import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import type { EgressEntryInfo, EgressInfo } from '../../sdk/src/index.ts'
import { fakeServer, json, type Asked } from '../../sdk/src/testing/fake-server.ts'
import { beginAtoll, type Ended } from '../support/command-line.ts'

const sandbox = { sandboxID: 'sb-1', sandboxDomain: 'preview.localhost' }
const policy = { mode: 'list' as const, allow: [{ host: 'a.example' }], deny: [], logOnly: false }
const info: EgressInfo = {
  state: 'confined',
  policy,
  layers: [
    {
      source: 'organisation',
      mode: 'all',
      logOnly: true,
      allow: [],
      deny: [
        {
          id: 'organisation.deny[0]',
          cidr: '198.51.100.7/32',
          ports: [
            [22, 22],
            [8000, 8010],
          ],
        },
      ],
    },
    {
      source: 'creation',
      mode: 'list',
      logOnly: false,
      allow: [{ id: 'creation.allow[0]', host: 'a.example', methods: ['GET', 'PUT'], paths: ['/v1/*'] }],
      deny: [],
    },
  ],
  stores: ['production'],
  secrets: [
    { name: 'TOKEN', hosts: ['a.example'], isUsed: true },
    { name: 'OTHER', hosts: [], isUsed: false, why: 'it names no hosts' },
  ],
  builtIn: ['gateway.atoll.internal:4180'],
}
const entry: EgressEntryInfo = {
  number: 7,
  ts: '2026-01-15T10:30:00.000Z',
  decision: 'denied',
  protocol: 'https',
  host: 'a.example',
  address: '198.51.100.7',
  port: 443,
  method: 'POST',
  path: '/\x1b[2J\nx',
  status: 403,
  rule: 'creation.deny[0]',
  reason: 'denied by creation.deny[0]',
  sentBytes: 100,
  receivedBytes: 200,
  secrets: ['TOKEN'],
  durationMs: 3,
}

type Answers = Parameters<typeof fakeServer>[1]

/** What a command prints, and what it asks of a server that gives these answers in turn. */
async function run(t: TestContext, answers: Answers, ...argv: string[]): Promise<Ended & { asked: Asked[] }> {
  const { url, asked } = await fakeServer(t, answers)
  const world = { origin: url, api: { key: 'key' } } as unknown as Parameters<typeof beginAtoll>[0]
  return { ...(await beginAtoll(world, argv).ended), asked }
}

const answersTo =
  (answers: Record<string, unknown>) =>
  ({ method, path }: Asked, response: ServerResponse) =>
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answers[`${method} ${path}`]))

const path = '/api/sandboxes/sb-1'
const server = answersTo({
  [`GET ${path}`]: sandbox,
  [`GET ${path}/egress`]: info,
  [`PUT ${path}/egress`]: info,
  'GET /api/egress': { policy },
  'PUT /api/egress': { policy, refreshed: 3, failures: [{ sandboxId: 'sb-2', error: 'it is ending' }] },
})

const written = (asked: readonly Asked[]) =>
  asked.filter(({ body }) => body !== '').map(({ body }) => JSON.parse(body) as Record<string, unknown>)

test('atoll egress show: each rule by the name that refusals have, and which secrets are sent where', async (t) => {
  const { stdout } = await run(t, [server], 'egress', 'show', 'sb-1')
  assert.equal(
    stdout.replaceAll(/ {2,}/g, '  '),
    [
      'state  confined',
      'stores  ["production"]',
      'builtIn  ["gateway.atoll.internal:4180"]',
      '',
      'RULE  DOES  TO',
      'organisation.deny[0]  records  198.51.100.7:22,8000-8010',
      'organisation  allows  everything else',
      'creation.allow[0]  allows  a.example GET,PUT /v1/*',
      'creation  denies  everything else',
      '',
      'SECRET  SENT TO  NOT SENT BECAUSE',
      'TOKEN  a.example  -',
      'OTHER  -  it names no hosts',
      '',
    ].join('\n'),
  )
  const whole = await run(t, [server], 'egress', 'get', 'sb-1', '--json')
  assert.deepEqual(JSON.parse(whole.stdout), info)
})

test('atoll egress allow, deny and set: rules are texts, or objects as JSON', async (t) => {
  const object = '{"host":"b.example","paths":["/x"]}'
  const allowed = await run(t, [server], 'egress', 'allow', 'sb-1', 'b.example:443', object)
  assert.deepEqual([allowed.status, allowed.stdout], [0, ''], allowed.stderr)
  const rules = ['b.example:443', { host: 'b.example', paths: ['/x'] }]
  assert.deepEqual(written(allowed.asked), [{ ...policy, allow: [...policy.allow, ...rules] }])
  const denied = await run(t, [server], 'egress', 'deny', 'sb-1', 'a.example')
  assert.deepEqual(written(denied.asked), [{ ...policy, allow: [], deny: ['a.example'] }])
  const set = await run(
    t,
    [server],
    'egress',
    'set',
    'sb-1',
    '--mode',
    'list',
    '--allow',
    'a.example',
    '--allow',
    object,
    '--deny',
    '*',
    '--log-only',
    '--json',
  )
  assert.deepEqual(written(set.asked), [{ mode: 'list', allow: ['a.example', rules[1]], deny: ['*'], logOnly: true }])
  assert.deepEqual(JSON.parse(set.stdout), info)
  const faults = [
    ['egress', 'set', 'sb-1'],
    ['egress', 'set', 'sb-1', '--mode', 'some'],
    ['egress', 'allow', 'sb-1', '{"host"'],
  ]
  for (const argv of faults) {
    const { status, asked } = await run(t, [server], ...argv)
    assert.equal(status, 2, argv.join(' '))
    assert.deepEqual(written(asked), [])
  }
})

test('atoll egress allow: where all passes it says so, and confines nothing', async (t) => {
  const open = answersTo({ [`GET ${path}`]: sandbox, [`GET ${path}/egress`]: { ...info, policy: null } })
  const { status, stderr, asked } = await run(t, [open], 'egress', 'allow', 'sb-1', 'b.example')
  assert.equal(status, 1)
  assert.match(stderr, /nothing to allow: a policy of the mode list confines it/)
  assert.deepEqual(written(asked), [])
})

test('atoll egress log: page after page, a line each, which steers no terminal', async (t) => {
  const full = Array.from({ length: 1000 }, (_, index) => ({ ...entry, number: index + 1 }))
  const pages = answersTo({
    [`GET ${path}`]: sandbox,
    [`GET ${path}/egress/log?after=0&limit=1000&decision=denied`]: { data: full },
    [`GET ${path}/egress/log?after=1000&limit=1000&decision=denied`]: { data: [{ ...entry, number: 1001 }] },
  })
  const { stdout } = await run(t, [pages], 'egress', 'log', 'sb-1', '--denied')
  const lines = stdout.trimEnd().split('\n')
  assert.equal(lines.length, 1001)
  assert.equal(
    lines[6],
    '7 2026-01-15T10:30:00.000Z denied https POST /\\x1b[2J x a.example at 198.51.100.7:443 ' +
      '(answer 403; denied by creation.deny[0]; with TOKEN; 100 bytes sent, 200 received)',
  )
  const wrong = await run(t, [pages], 'egress', 'log', 'sb-1', '--denied', '--decision', 'failed')
  assert.equal(wrong.status, 2)
})

test('atoll egress log --follow: goes on with what comes', async (t) => {
  const stream = (_asked: Asked, response: ServerResponse) =>
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`id: 7\ndata: ${JSON.stringify(entry)}\n\n`)
  const end = (_asked: Asked, response: ServerResponse) => response.writeHead(204).end()
  const argv = ['egress', 'log', 'sb-1', '--follow', '--after', '6', '--json']
  const { stdout, asked } = await run(t, [json(200, sandbox), stream, end], ...argv)
  assert.deepEqual(JSON.parse(stdout), entry)
  assert.equal(asked[1]?.path, `${path}/egress/log?follow=true`)
  assert.deepEqual([asked[1]?.headers['last-event-id'], asked[2]?.headers['last-event-id']], ['6', '7'])
})

test('atoll egress org: shows, sets and clears, and names where it does not hold', async (t) => {
  const shown = await run(t, [server], 'egress', 'org')
  assert.match(shown.stdout, /organisation\.allow\[0\] +allows +a\.example\norganisation +denies +everything else\n/)
  const none = await run(t, [json(200, { policy: null })], 'egress', 'org', 'show')
  assert.equal(none.stdout, 'none\n')
  const set = await run(t, [server], 'egress', 'org', 'set', '--mode', 'all', '--deny', 'paste.example')
  assert.deepEqual(written(set.asked), [{ policy: { mode: 'all', deny: ['paste.example'] } }])
  assert.equal(set.status, 1)
  assert.match(set.stderr, /holds now: 3\nsb-2 goes on as before: it is ending/)
  const cleared = await run(t, [json(200, { policy: null, refreshed: 3, failures: [] })], 'egress', 'org', 'clear')
  assert.deepEqual([cleared.status, written(cleared.asked)], [0, [{ policy: null }]])
})

test('atoll create, fork and session new: flags say what is reached and which store is used', async (t) => {
  const flags = ['--secret-store', 'prod', '--allow-host', 'a.example', '--allow-host', '*.b.example']
  const created = await run(t, [json(201, sandbox)], 'create', ...flags, '--egress', 'all')
  const hosts = ['a.example', '*.b.example']
  const told = { secretStore: 'prod', egressAllowlist: hosts }
  assert.deepEqual(written(created.asked), [{ ...told, egress: { mode: 'all' } }])
  const forked = await run(t, [json(201, sandbox)], 'fork', 'cp-1', ...flags)
  assert.deepEqual(written(forked.asked), [told])
  const session = { id: 'session_1', userId: 'u', previewUrl: 'http://x', sandboxId: 'sb-1', messages: [], events: [] }
  const begun = await run(t, [json(201, session)], 'session', 'new', 'p', '--user', 'u', ...flags)
  assert.deepEqual(written(begun.asked), [
    { prompt: 'p', user_id: 'u', secret_store: 'prod', egress: { allow: hosts } },
  ])
  const { status } = await run(t, [json(201, sandbox)], 'create', '--egress', 'none', '--allow-host', 'a.example')
  assert.equal(status, 2)
})
