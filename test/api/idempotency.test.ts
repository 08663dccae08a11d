import assert from 'node:assert/strict'
import { createHash, createHmac } from 'node:crypto'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { routes } from '../../src/http/routes/index.ts'
import { newId } from '../../src/lib/id.ts'
import { sha256 } from '../../src/lib/secret.ts'
import type { CreateSandbox } from '../../src/sandbox/index.ts'
import type { SessionActivity } from '../../src/session/index.ts'
import { ApiClient } from '../support/api-client.ts'
import { operatorKey, useWorld } from '../support/world.ts'

const world = useWorld({ publicUrl: 'https://api.test' })

function keyed(key: string): { headers: Record<string, string> } {
  return { headers: { 'idempotency-key': key } }
}

/** Of a request with the key of the world. */
function storedHash(key: string, request: string): string {
  const sealing = createHash('sha256').update(`atoll idempotency\n${key}\n${world.api.key}`).digest()
  return createHmac('sha256', sealing).update(sha256(request)).digest('hex')
}

test('idempotency: a hash that is kept tells nothing of a body that is easy to guess', async () => {
  await world.api.post('/api/sandboxes', { metadata: { pin: '1234' } }, keyed('guess'))
  const plain = sha256('POST /api/sandboxes\n{"metadata":{"pin":"1234"}}')
  const kept = await world.store.idempotency.begin({ orgId: world.orgId, key: 'guess', seed: '' }, plain, new Date())
  assert.equal(kept.state, 'conflict')
})

test('idempotency: the same key and body replay the first answer, tokens included; another body is a conflict', async () => {
  const { api } = world
  const body = { previewAuth: { scheme: 'bearer' }, timeout: 60 }
  const first = await api.post('/api/sandboxes', body, keyed('one'))
  assert.equal(first.status, 201)
  assert.ok(first.body.previewAuthToken)
  const again = await api.post('/api/sandboxes', body, keyed('one'))
  assert.deepEqual([again.status, again.body], [201, first.body])
  assert.equal(again.headers['idempotent-replayed'], 'true')
  const other = await api.post('/api/sandboxes', { timeout: 61 }, keyed('one'))
  assert.deepEqual([other.status, other.body.code], [409, 'idempotency_key_conflict'])
  const session = await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' }, keyed('one'))
  assert.deepEqual([session.status, session.body.error.type], [409, 'conflict'], 'another address is another request')
})

test('idempotency: what is kept of an answer cannot be read from the database', async () => {
  const { body } = await world.api.post('/api/sandboxes', { previewAuth: {} }, keyed('secret'))
  const hash = storedHash('secret', 'POST /api/sandboxes\n{"previewAuth":{}}')
  const kept = await world.store.idempotency.begin({ orgId: world.orgId, key: 'secret', seed: '' }, hash, new Date())
  assert.equal(kept.state, 'done')
  const text = kept.state === 'done' ? kept.body : ''
  for (const encoding of ['latin1', 'base64'] as const) {
    const readable = encoding === 'latin1' ? text : Buffer.from(text, 'base64').toString('latin1')
    assert.ok(!readable.includes(body.previewAuthToken))
  }
})

test('idempotency: a large session is not kept as an answer: a repeat gets it as it is by then, and does nothing again', async () => {
  const { api, sessions } = world
  const { id } = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body
  const { messages } = sessions.kept.get(id)!
  const send = () => api.post(`/v1/sessions/${id}/messages`, { message: 'hello', user_id: 'u' }, keyed('large'))
  const kept = async () => {
    const hash = storedHash('large', `POST /v1/sessions/${id}/messages\n{"message":"hello","user_id":"u"}`)
    const state = await world.store.idempotency.begin({ orgId: world.orgId, key: 'large', seed: '' }, hash, new Date())
    return state.state === 'done' ? state.body.length : undefined
  }
  messages[0]!.content = 'x'.repeat(1_000_000)
  const first = await send()
  assert.deepEqual([first.status, first.body.messages.length], [200, 2])
  assert.ok((await kept())! < 1000, `${await kept()} bytes`)
  messages[0]!.content = 'y'
  const again = await send()
  assert.deepEqual([again.status, again.headers['idempotent-replayed']], [200, 'true'])
  assert.deepEqual([again.body.id, again.body.messages[0].content, again.body.messages.length], [id, 'y', 2])
})

test('idempotency: keys of one organisation are nothing to another', async () => {
  const mine = await world.api.post('/api/sandboxes', {}, keyed('shared'))
  const theirs = await world.stranger.post('/api/sandboxes', {}, keyed('shared'))
  assert.equal(theirs.status, 201)
  assert.notEqual(theirs.body.sandboxID, mine.body.sandboxID)
})

test('idempotency: keys that come with the token of a session are its own, and last longer than the token', async () => {
  const { api } = world
  const create = async () => (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body.id as string
  const [one, other] = [await create(), await create()]
  const send = async (id: string, ttl: number) => {
    const asked = { user_id: 'u', scope: 'steer', ttl }
    const { token } = (await api.post(`/v1/sessions/${id}/tokens`, asked)).body
    const message = { message: 'hello', user_id: 'u' }
    return await api.post(`/v1/sessions/${id}/messages?token=${token}`, message, { key: null, ...keyed('1') })
  }
  const first = await send(one, 60)
  const renewed = await send(one, 120)
  assert.deepEqual([renewed.status, renewed.headers['idempotent-replayed']], [200, 'true'])
  assert.deepEqual(renewed.body, first.body)
  const elsewhere = await send(other, 60)
  assert.deepEqual([elsewhere.status, elsewhere.body.id], [200, other])
  assert.equal((await api.post('/api/sandboxes', {}, keyed('1'))).status, 201, 'those of the organisation are apart')
})

test('idempotency: of requests that come at the same time one runs, and the others are told so or get its answer', async () => {
  const answers = await Promise.all(
    Array.from({ length: 5 }, () => world.api.post('/api/sandboxes', { timeout: 33 }, keyed('together'))),
  )
  const made = new Set(answers.filter(({ status }) => status === 201).map(({ body }) => body.sandboxID))
  assert.equal(made.size, 1)
  for (const { status, body } of answers) assert.ok(status === 201 || body.code === 'conflict')
})

test('idempotency: a failure of the server, a rate limit, a state and a lack are not kept; a refusal of the request is', async () => {
  const { api, sandboxes, sessions } = world
  const { create } = sandboxes
  const failures = [new ServiceError('no_capacity', 'full'), new ServiceError('rate_limited', 'too many run')]
  sandboxes.create = (orgId: string, input: CreateSandbox) => {
    const failure = failures.shift()
    return failure ? Promise.reject(failure) : create.call(sandboxes, orgId, input)
  }
  try {
    const statuses: number[] = []
    while (statuses.length < 3) statuses.push((await api.post('/api/sandboxes', {}, keyed('later'))).status)
    assert.deepEqual(statuses, [503, 429, 201])
  } finally {
    sandboxes.create = create
  }
  const { id } = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body
  const fork = () => api.post(`/v1/sessions/${id}/fork`, { user_id: 'u' }, keyed('when-idle'))
  assert.equal((await fork()).status, 409)
  sessions.kept.get(id)!.session.activity = 'idle'
  const forked = await fork()
  assert.equal(forked.status, 201)
  assert.equal((await fork()).body.id, forked.body.id)
  const lacking = await api.post('/api/sandboxes', { templateID: 'none' }, keyed('lacking'))
  const still = await api.post('/api/sandboxes', { templateID: 'none' }, keyed('lacking'))
  assert.deepEqual([lacking.status, still.status, still.headers['idempotent-replayed']], [404, 404, undefined])
  assert.equal((await api.post('/api/sandboxes', {}, keyed('lacking'))).status, 201, 'the key is free')
  const refused = await api.post('/api/sandboxes', { memoryMB: 999_999_999 }, keyed('refused'))
  assert.equal(refused.status, 400)
  const again = await api.post('/api/sandboxes', { memoryMB: 999_999_999 }, keyed('refused'))
  assert.deepEqual([again.status, again.body, again.headers['idempotent-replayed']], [400, refused.body, 'true'])
})

test('idempotency: what a request lacked at first is used by its repeat', async () => {
  const { api } = world
  const id = await world.sandbox()
  const snapshot = () => api.post('/api/volumes/late/snapshots', { name: 's' }, keyed('late-snapshot'))
  assert.equal((await snapshot()).status, 404)
  await api.post('/api/volumes', { name: 'late' })
  assert.equal((await snapshot()).status, 201)
  assert.equal((await snapshot()).headers['idempotent-replayed'], 'true')
  const run = await api.post(`/api/sandboxes/${id}/exec/run`, { cmd: 'true' }, keyed('run'))
  assert.deepEqual([run.status, run.body.code], [400, 'invalid_request'])
  assert.match(run.body.error, /Idempotency-Key.*run-async/)
})

/** Organisations are made by the operator. */
function keyFor(path: string): string {
  return path.startsWith('/api/orgs') ? operatorKey : world.api.key
}

/** A call of every route that creates, and what there is afterwards. */
async function creations(): Promise<{
  calls: [pattern: string, path: string, body: object][]
  counted(): Promise<number[]>
}> {
  const { api, sessions } = world
  const id = await world.sandbox()
  const checkpoint = (await api.post(`/api/sandboxes/${id}/checkpoints`, { name: 'first', kind: 'disk_only' })).body.id
  const [session, idle, lost] = await Promise.all(
    ['starting', 'idle', 'failed'].map(async (activity) => {
      const { body } = await api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })
      sessions.kept.get(body.id)!.session.activity = activity as SessionActivity
      return body.id as string
    }),
  )
  const { body: capsule } = await api.post(`/v1/sessions/${session}/capsules`, { scope: 'fork', user_id: 'u' })
  await api.post('/api/snapshots', { name: `patched-${id}`, image: { steps: [] } })
  const run = (command: string) => ({ type: 'run', args: { commands: [command] } })
  await api.post('/api/volumes', { name: `w-${id}` })
  const byUser = { user_id: 'u' }
  const calls: [pattern: string, path: string, body: object][] = [
    ['/api/sandboxes', '/api/sandboxes', { timeout: 9, previewAuth: {} }],
    ['/api/sandboxes/:id/checkpoints', `/api/sandboxes/${id}/checkpoints`, { name: 'c', kind: 'disk_only' }],
    ['/api/sandboxes/from-checkpoint/:checkpointId', `/api/sandboxes/from-checkpoint/${checkpoint}`, { count: 2 }],
    ['/api/sandboxes/from-checkpoint/:checkpointId', `/api/sandboxes/from-checkpoint/${checkpoint}`, {}],
    [
      '/api/sandboxes/checkpoints/:checkpointId/patches',
      `/api/sandboxes/checkpoints/${checkpoint}/patches`,
      { script: 'true' },
    ],
    ['/api/snapshots', '/api/snapshots', { name: `image-${id}`, image: { steps: [run('echo made')] } }],
    ['/api/snapshots/:name/patches', `/api/snapshots/patched-${id}/patches`, { script: 'true' }],
    ['/api/images/:name/patches', `/api/images/patched-${id}/patches`, { script: 'true' }],
    ['/api/snapshots/:name/tag', `/api/snapshots/patched-${id}/tag`, { name: `tagged-${id}:1` }],
    ['/api/images/:name/tag', `/api/images/patched-${id}/tag`, { name: `tagged-${id}:2` }],
    ['/api/templates', '/api/templates', { name: `template-${id}`, dockerfile: 'FROM base' }],
    ['/templates', '/templates', { name: `other-${id}`, dockerfile: 'FROM base' }],
    ['/api/sandboxes/:id/preview', `/api/sandboxes/${id}/preview`, { port: 3000, authConfig: { scheme: 'bearer' } }],
    ['/api/sandboxes/:id/preview', `/api/sandboxes/${id}/preview`, { port: 3000, domain: `${id}.example.com` }],
    ['/api/sandboxes/:id/exec', `/api/sandboxes/${id}/exec`, { cmd: 'true' }],
    ['/api/sandboxes/:id/exec/run-async', `/api/sandboxes/${id}/exec/run-async`, { cmd: 'true' }],
    ['/api/sandboxes/:id/pty', `/api/sandboxes/${id}/pty`, { shell: '/bin/sh' }],
    ['/api/volumes', '/api/volumes', { name: `v-${id}` }],
    ['/api/volumes/:name/snapshots', `/api/volumes/w-${id}/snapshots`, { name: 's' }],
    ['/v1/sessions', '/v1/sessions', { prompt: 'x', ...byUser }],
    ['/v1/sessions/:sessionId/messages', `/v1/sessions/${session}/messages`, { message: 'hello', ...byUser }],
    ['/v1/sessions/:sessionId/fork', `/v1/sessions/${idle}/fork`, byUser],
    ['/v1/sessions/:sessionId/fork', `/v1/sessions/${idle}/fork`, { count: 2, ...byUser }],
    ['/v1/sessions/:sessionId/rewind', `/v1/sessions/${session}/rewind`, { to: { event_id: 1 }, ...byUser }],
    ['/v1/sessions/:sessionId/adopt', `/v1/sessions/${session}/adopt`, { from: idle, ...byUser }],
    ['/v1/sessions/:sessionId/restart', `/v1/sessions/${lost}/restart`, byUser],
    ['/v1/sessions/:sessionId/tokens', `/v1/sessions/${session}/tokens`, { scope: 'read', ...byUser }],
    ['/v1/sessions/:sessionId/capsules', `/v1/sessions/${session}/capsules`, { scope: 'read', ...byUser }],
    ['/v1/capsules/:token/fork', `/v1/capsules/${capsule.token}/fork`, byUser],
    ['/api/keys', '/api/keys', { name: 'ci' }],
    ['/api/webhooks', '/api/webhooks', { url: 'https://example.com/hook' }],
    ['/api/secret-stores', '/api/secret-stores', { name: `store-${id}` }],
    ['/api/orgs', '/api/orgs', { name: `Team ${id}` }],
    ['/api/orgs/:orgId/keys', `/api/orgs/${world.orgId}/keys`, { name: 'ci' }],
  ]
  const counted = async () => [
    (await api.get('/api/sandboxes')).body.length,
    (await api.get(`/api/sandboxes/${id}/checkpoints`)).body.length,
    (await api.get(`/api/sandboxes/checkpoints/${checkpoint}/patches`)).body.length,
    (await api.get(`/api/sandboxes/${id}/exec`)).body.length,
    (await api.get(`/api/sandboxes/${id}/preview`)).body.length,
    (await api.get('/api/images')).body.length,
    (await api.get(`/api/images/patched-${id}/patches`)).body.length,
    (await api.get('/api/volumes')).body.length,
    (await api.get('/api/keys')).body.length,
    (await api.get('/api/webhooks')).body.data.length,
    (await api.get('/api/secret-stores')).body.length,
    (await api.get('/api/orgs', { key: operatorKey })).body.length,
    (await api.get(`/api/volumes/w-${id}/snapshots`)).body.length,
    sessions.kept.size,
    sessions.kept.get(session!)?.messages.length ?? 0,
  ]
  return { calls, counted }
}

test('idempotency: every POST that creates takes a key: a repeat does nothing and answers the same', async () => {
  const { api } = world
  const { calls, counted } = await creations()
  const posts = routes.filter(({ method }) => method === 'POST')
  // Equal files are one context with any key, and the answer tells what is missing now.
  const creating = posts
    .filter(({ id, answers }) => (201 in answers || 202 in answers) && id !== 'createContext')
    .map(({ path }) => path)
  assert.deepEqual(
    creating.filter((path) => !calls.some(([pattern]) => pattern === path)),
    [],
    'none is forgotten here',
  )
  assert.deepEqual(
    [...new Set(calls.map(([pattern]) => pattern))].toSorted(),
    posts
      .filter(({ creates }) => creates)
      .map(({ path }) => path)
      .toSorted(),
  )
  for (const [index, [, path, body]] of calls.entries()) {
    const header = { ...keyed(`every-${index}`), key: keyFor(path) }
    const first = await api.post(path, body, header)
    assert.ok(first.status < 300, `${path}: ${first.text}`)
    const counts = await counted()
    const again = await api.post(path, body, header)
    assert.deepEqual(
      [again.status, again.body, again.headers['idempotent-replayed']],
      [first.status, first.body, 'true'],
      path,
    )
    assert.deepEqual(await counted(), counts, path)
    const conflict = await api.post(path, `${JSON.stringify(body)} `, header)
    assert.equal(conflict.status, 409, path)
  }
})

test('idempotency: every POST that creates has its effect once where the answer was lost, and the repeat is answered as it would have been', async () => {
  const { api } = world
  const { calls, counted } = await creations()
  for (const [index, [, path, body]] of calls.entries()) {
    const header = { ...keyed(`lost-${index}`), key: keyFor(path) }
    await losingAnswer(() => api.post(path, body, header))
    const counts = await counted()
    const again = await api.post(path, body, header)
    assert.ok(again.status < 300, `${path}: ${again.text}`)
    assert.deepEqual(await counted(), counts, path)
    const other = await api.post(path, `${JSON.stringify(body)} `, header)
    assert.deepEqual([other.status, other.headers['idempotent-replayed']], [409, undefined], path)
    const third = await api.post(path, body, header)
    assert.deepEqual([third.status, third.body], [again.status, again.body], path)
    assert.equal(third.headers['idempotent-replayed'], 'true', path)
  }
})

test('idempotency: a failure that may have had an effect leaves the key with its request, one that had none gives it back', async () => {
  const { api, sandboxes } = world
  const { create } = sandboxes
  const told = (error: Error) => async (): Promise<never> => {
    throw error
  }
  try {
    sandboxes.create = told(new ServiceError('unavailable', 'the database does not answer'))
    assert.equal((await api.post('/api/sandboxes', {}, keyed('half'))).status, 503)
    sandboxes.create = told(new ServiceError('no_capacity', 'full'))
    assert.equal((await api.post('/api/sandboxes', {}, keyed('none'))).status, 503)
  } finally {
    sandboxes.create = create
  }
  const other = await api.post('/api/sandboxes', { timeout: 8 }, keyed('half'))
  assert.deepEqual([other.status, other.body.code], [409, 'idempotency_key_conflict'])
  assert.equal((await api.post('/api/sandboxes', {}, keyed('half'))).status, 201)
  assert.equal((await api.post('/api/sandboxes', { timeout: 8 }, keyed('none'))).status, 201)
})

test('idempotency: a token that is shown once comes again to who made it alone, also when its answer was lost', async () => {
  const { api, store, orgId, origin } = world
  const key = 'another-key-of-the-same-organisation'
  const keyHash = sha256(key)
  await store.organisations.insertApiKey({ id: newId('key_'), orgId, keyHash, createdAt: new Date() })
  const colleague = new ApiClient(origin, key)
  const call = ['/api/sandboxes', { previewAuth: {}, timeout: 77 }, keyed('shown-once')] as const
  await losingAnswer(() => api.post(...call))
  const theirs = await colleague.post(...call)
  assert.deepEqual([theirs.status, theirs.body.code], [409, 'idempotency_key_conflict'])
  const mine = await api.post(...call)
  assert.equal(mine.status, 201)
  const record = await store.sandboxes.sandbox(mine.body.sandboxID)
  assert.equal(record?.previewTokenHash, sha256(mine.body.previewAuthToken))
})

/** The request is done and its answer goes nowhere, neither to the client nor into the database. */
async function losingAnswer(work: () => Promise<{ status: number }>): Promise<void> {
  const { idempotency } = world.store
  const { finish } = idempotency
  idempotency.finish = async () => {
    throw new ServiceError('unavailable', 'the database does not answer')
  }
  try {
    assert.equal((await work()).status, 503)
  } finally {
    idempotency.finish = finish
  }
}

test('idempotency: a key that is no key is refused', async () => {
  for (const key of ['x'.repeat(256), 'a b', 'ä']) {
    const { status, body } = await world.api.post(
      '/api/sandboxes',
      {},
      { headers: { 'idempotency-key': Buffer.from(key).toString('latin1') } },
    )
    assert.deepEqual([status, body.code], [400, 'invalid_request'])
  }
})
