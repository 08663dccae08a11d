import assert from 'node:assert/strict'
import { type EventEmitter, once } from 'node:events'
import { get } from 'node:http'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { scopes, type Scope } from '../../src/organisation/index.ts'
import { routes } from '../../src/http/routes/index.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { ApiClient } from '../support/api-client.ts'
import { withExpiringKey } from '../support/expiring-key.ts'
import { operatorKey, useWorld } from '../support/world.ts'

const world = useWorld()

/** `once` would reject for the error of what is cut off. */
async function closing(emitter: EventEmitter): Promise<void> {
  await new Promise<void>((resolve) => emitter.once('close', () => resolve()))
}

async function keyWith(body: object, maker = world.api): Promise<ApiClient & { id: string }> {
  const made = await maker.post('/api/keys', body)
  assert.equal(made.status, 201, made.text)
  return Object.assign(new ApiClient(world.origin, made.body.key), { id: made.body.id as string })
}

test('key: it is shown once, and listed without its secret', async () => {
  const made = await world.api.post('/api/keys', { name: 'ci' })
  assert.match(made.body.key, /^atoll_[0-9a-f]{48}$/)
  const client = new ApiClient(world.origin, made.body.key)
  const { body: who } = await client.get('/api/whoami')
  assert.deepEqual([who.org_id, who.key.id, who.key.name, who.key.scopes], [world.orgId, made.body.id, 'ci', null])
  const listed = await world.api.get('/api/keys')
  assert.ok(!listed.text.includes(made.body.key))
  const [first] = listed.body
  assert.deepEqual([first.id, first.keyPrefix], [made.body.id, made.body.key.slice(0, 14)])
})

test('key: a scope opens its calls, and no other', async () => {
  const id = await world.sandbox()
  const reader = await keyWith({ scopes: ['sandbox:read'] })
  assert.equal((await reader.get(`/api/sandboxes/${id}`)).status, 200)
  for (const [method, path] of [
    ['POST', '/api/sandboxes'],
    ['DELETE', `/api/sandboxes/${id}`],
    ['POST', `/api/sandboxes/${id}/exec/run`],
    ['GET', '/v1/sessions'],
    ['GET', '/api/events'],
    ['GET', '/api/keys'],
    ['GET', '/api/volumes'],
  ] as const) {
    const answer = await reader.send(method, path, { body: method === 'GET' ? undefined : {} })
    assert.equal(answer.status, 403, `${method} ${path}`)
    const code: string = path.startsWith('/v1') ? answer.body.error.code : answer.body.code
    assert.equal(code, 'forbidden')
  }
  assert.equal((await world.api.get(`/api/sandboxes/${id}`)).body.status, 'running')
})

test('key: each route says its scope, and an unbound key has all', () => {
  const known: ReadonlySet<string> = new Set([...scopes, 'any'])
  assert.deepEqual(
    routes.filter(({ scope }) => !known.has(scope)),
    [],
  )
})

test('key: it gives no scope, no time, no name and no number beyond its own', async () => {
  const soon = new Date(Date.now() + 3_600_000).toISOString()
  const later = new Date(Date.now() + 7_200_000).toISOString()
  const bounds = { scopes: ['keys', 'sandbox:read'], expiresAt: soon, namePrefix: 'ci-', sandboxesMax: 3 }
  const maker = await keyWith(bounds)
  const refused: [object, string][] = [
    [{ ...bounds, scopes: ['keys', 'sandbox:write'] }, 'scopes'],
    [{ ...bounds, scopes: undefined }, 'scopes'],
    [{ ...bounds, expiresAt: later }, 'expiresAt'],
    [{ ...bounds, expiresAt: undefined }, 'expiresAt'],
    [{ ...bounds, namePrefix: 'c' }, 'namePrefix'],
    [{ ...bounds, namePrefix: undefined }, 'namePrefix'],
    [{ ...bounds, sandboxesMax: 4 }, 'sandboxesMax'],
    [{ ...bounds, sandboxesMax: undefined }, 'sandboxesMax'],
  ]
  for (const [body, field] of refused) {
    const answer = await maker.post('/api/keys', body)
    assert.deepEqual([answer.status, answer.body.field], [403, field], answer.text)
  }
  await keyWith({ ...bounds, namePrefix: 'ci-web-', sandboxesMax: 1, scopes: ['sandbox:read'] }, maker)
})

test('key: bad input is refused by its field', async () => {
  const refused: [object, string][] = [
    [{ scopes: [] }, 'scopes'],
    [{ scopes: ['all'] }, 'scopes'],
    [{ expiresAt: '2020-01-01T00:00:00Z' }, 'expiresAt'],
    [{ expiresAt: 'tomorrow' }, 'expiresAt'],
    [{ namePrefix: '-a' }, 'namePrefix'],
    [{ namePrefix: '' }, 'namePrefix'],
    [{ namePrefix: 'a-', scopes: ['events'] }, 'scopes'],
    [{ sandboxesMax: -1 }, 'sandboxesMax'],
    [{ scope: ['keys'] }, 'scope'],
  ]
  for (const [body, field] of refused) {
    const answer = await world.api.post('/api/keys', body)
    assert.equal(answer.status, 400, JSON.stringify(body))
    assert.ok(answer.body.field === field || answer.body.error.includes(field), answer.text)
  }
  const twice = await world.api.post('/api/keys', { scopes: ['image', 'image'] })
  assert.deepEqual(twice.body.scopes, ['image'])
})

test('key: a bound one sees and ends those that it has made, with theirs, and no other', async () => {
  const top = await keyWith({ scopes: ['keys', 'sandbox:read'] })
  const middle = await keyWith({ scopes: ['keys'] }, top)
  const low = await keyWith({ scopes: ['keys'] }, middle)
  const { body: seen } = await top.get('/api/keys')
  assert.deepEqual(seen.map(({ id }: { id: string }) => id).toSorted(), [top.id, middle.id, low.id].toSorted())
  const { body: all } = await world.api.get('/api/keys')
  const other = all.find(({ isDefault, id }: { isDefault: boolean; id: string }) => id !== top.id && !isDefault)
  assert.equal((await middle.delete(`/api/keys/${top.id}`)).status, 404)
  assert.equal((await top.delete(`/api/keys/${other.id}`)).status, other.id === low.id ? 204 : 404)
  assert.equal((await top.delete(`/api/keys/${middle.id}`)).status, 204)
  for (const client of [middle, low]) assert.equal((await client.get('/api/whoami')).status, 401)
  assert.equal((await top.get('/api/whoami')).status, 200)
})

test('key: its end cuts event streams and WebSockets that are open with it, and its own call is answered', async () => {
  const client = await keyWith({})
  const id = await world.sandbox()
  const { sessionID } = (await world.api.post(`/api/sandboxes/${id}/exec`, { cmd: 'cat' })).body
  const stream = get(`${world.origin}/api/events`, { headers: { 'x-api-key': client.key } })
  const [response] = await once(stream, 'response')
  response.on('error', () => undefined).resume()
  const socket = new WebSocket(`${world.origin.replace('http', 'ws')}/api/sandboxes/${id}/exec/${sessionID}`, {
    headers: { 'x-api-key': client.key },
  })
  await once(socket, 'open')
  const others = get(`${world.origin}/api/events`, { headers: { 'x-api-key': world.api.key } })
  const [kept] = await once(others, 'response')
  let isCut = false
  kept.on('error', () => (isCut = true)).resume()
  const ended = [closing(response), closing(socket)]
  assert.equal((await client.delete(`/api/keys/${client.id}`)).status, 204, 'a key may end itself')
  await Promise.all(ended)
  assert.equal((await client.get('/api/whoami')).status, 401)
  assert.ok(!isCut, 'streams of other keys go on')
  others.destroy()
})

test('key: what is open with it ends when it expires', async () => {
  await withExpiringKey(world.api, async (key) => {
    const client = new ApiClient(world.origin, key)
    const stream = get(`${world.origin}/api/events`, { headers: { 'x-api-key': key } })
    stream.on('error', () => undefined)
    // It may end before the answer has begun.
    const [response] = await once(stream, 'response').catch(() => [undefined])
    if (response === undefined) return false
    response.on('error', () => undefined).resume()
    await closing(response)
    if (response.statusCode !== 200) return false
    assert.equal((await client.get('/api/whoami')).status, 401)
    return true
  })
})

test('key: a scope that a key has is told, and that it lacks is named', async () => {
  const granted: Scope[] = ['image', 'volume']
  const client = await keyWith({ scopes: granted })
  assert.deepEqual((await client.get('/api/whoami')).body.key.scopes, granted)
  const { body } = await client.get('/api/events')
  assert.deepEqual([body.code, body.scope], ['forbidden', 'events'])
})

test("operator: its key opens organisations and no organisation's calls, and no other key opens its", async () => {
  const operator = new ApiClient(world.origin, operatorKey)
  const { body: made } = await operator.post('/api/orgs', { name: 'Reef' })
  assert.equal((await operator.get(`/api/orgs/${made.id}`)).body.name, 'Reef')
  for (const path of ['/api/sandboxes', '/api/limits', '/api/keys', '/v1/sessions']) {
    assert.equal((await operator.get(path)).status, 401, path)
  }
  for (const client of [world.api, world.stranger]) {
    assert.equal((await client.get('/api/orgs')).status, 403)
    assert.equal((await client.get(`/api/orgs/${made.id}/keys`)).status, 404)
    assert.equal((await client.post(`/api/orgs/${made.id}/keys`, {})).status, 404)
  }
  const { body: who } = await operator.get('/api/whoami')
  assert.deepEqual([who.isOperator, who.org_id, who.org_name, who.key.id], [true, '', null, ''])
  const { body: key } = await operator.post(`/api/orgs/${made.id}/keys`, { name: 'first' })
  const theirs = new ApiClient(world.origin, key.key)
  assert.deepEqual((await theirs.get('/api/whoami')).body.org_name, 'Reef')
  assert.deepEqual((await theirs.get(`/api/orgs/${made.id}/keys`)).body.length, 1)
})

test('operator: limits are those of the installation but for what it sets', async () => {
  const operator = new ApiClient(world.origin, operatorKey)
  const { body: made } = await operator.post('/api/orgs', { name: 'Reef', limits: { weight: 7 } })
  assert.deepEqual([made.limits, made.effectiveLimits.weight, made.effectiveLimits.webhooksMax], [{ weight: 7 }, 7, 20])
  const path = `/api/orgs/${made.id}`
  const changed = await operator.send('PATCH', path, { body: { limits: { weight: null, webhooksMax: 0 } } })
  assert.deepEqual([changed.body.limits, changed.body.effectiveLimits.weight], [{ webhooksMax: 0 }, 100])
  const bad: [object, string][] = [
    [{ weight: 0 }, 'limits.weight'],
    [{ weight: 1.5 }, 'limits.weight'],
    [{ speed: 1 }, 'speed'],
  ]
  for (const [limits, field] of bad) {
    const answer = await operator.send('PATCH', path, { body: { limits } })
    assert.equal(answer.status, 400)
    assert.ok(answer.text.includes(field), answer.text)
  }
  assert.deepEqual((await operator.get(path)).body.limits, { webhooksMax: 0 })
})

test('operator: a suspended organisation is refused with the reason, and goes on after its resumption', async () => {
  const operator = new ApiClient(world.origin, operatorKey)
  const { body: made } = await operator.post('/api/orgs', { name: 'Reef' })
  const { body: key } = await operator.post(`/api/orgs/${made.id}/keys`, {})
  const theirs = new ApiClient(world.origin, key.key)
  const stream = get(`${world.origin}/api/events`, { headers: { 'x-api-key': key.key } })
  const [response] = await once(stream, 'response')
  response.on('error', () => undefined).resume()
  const closed = closing(response)
  await operator.post(`/api/orgs/${made.id}/suspend`, { reason: 'the invoice is open' })
  await closed
  const refused = await theirs.get('/api/sandboxes')
  assert.deepEqual([refused.status, refused.body.code], [403, 'organisation_suspended'])
  assert.match(refused.body.error, /the invoice is open/)
  await operator.post(`/api/orgs/${made.id}/resume`)
  assert.equal((await theirs.get('/api/sandboxes')).status, 200)
})

test('key: its count holds for starts at once, forks and the keys that it has made, also those that have ended', async () => {
  const maker = await keyWith({ scopes: ['keys', 'sandbox:read', 'sandbox:write'], sandboxesMax: 2 })
  const starts = await Promise.all([1, 2, 3, 4].map(() => maker.post('/api/sandboxes', {})))
  const made = starts.filter(({ status }) => status === 201)
  const refused = starts.filter(({ status }) => status !== 201)
  assert.equal(made.length, 2)
  for (const { status, body } of refused) assert.deepEqual([status, body.code, body.limit], [403, 'quota_exceeded', 2])
  const [kept, ended] = made.map(({ body }) => body.sandboxID as string)
  await maker.post(`/api/sandboxes/${kept}/hibernate`)
  assert.equal((await maker.post('/api/sandboxes', {})).status, 403, 'one that hibernates counts')
  const { body: checkpoint } = await world.api.post(`/api/sandboxes/${ended}/checkpoints`, {
    name: 'a',
    kind: 'disk_only',
  })
  const fork = `/api/sandboxes/from-checkpoint/${checkpoint.id}`
  assert.equal((await maker.post(fork, {})).body.code, 'quota_exceeded')
  await maker.delete(`/api/sandboxes/${ended}`)
  const child = await keyWith({ scopes: ['sandbox:write'], sandboxesMax: 2 }, maker)
  assert.equal((await child.post('/api/sandboxes', {})).status, 201)
  for (const client of [child, maker])
    assert.equal((await client.post('/api/sandboxes', {})).body.code, 'quota_exceeded')
  await maker.delete(`/api/keys/${child.id}`)
  assert.equal(
    (await maker.post('/api/sandboxes', {})).body.code,
    'quota_exceeded',
    'what an ended key has made counts',
  )
  assert.equal((await world.api.post(fork, {})).status, 201, 'others have no part in it')
})

test('key: none outlives its maker, whichever comes first', async () => {
  const makers: (string | null)[] = []
  for (let round = 0; round < 10; round++) {
    const maker = await keyWith({ scopes: ['keys'] })
    makers.push(maker.id)
    // The end of the maker cuts those of its calls that are not answered soon.
    const unlessCut = (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ECONNRESET') throw error
    }
    const [child] = await Promise.all([
      maker.post('/api/keys', { scopes: ['keys'] }).catch(unlessCut),
      world.api.delete(`/api/keys/${maker.id}`),
    ])
    if (child?.status !== 201) continue
    assert.equal((await world.api.get('/api/whoami', { key: child.body.key })).status, 401)
  }
  const { body: left } = await world.api.get('/api/keys')
  assert.deepEqual(
    left.filter(({ madeBy }: { madeBy: string | null }) => madeBy !== null && makers.includes(madeBy)),
    [],
  )
})

test('key: an organisation has as many as its limit, however many ask at once', async () => {
  const operator = new ApiClient(world.origin, operatorKey)
  const { body: made } = await operator.post('/api/orgs', { name: 'Reef', limits: { keysMax: 3 } })
  const answers = await Promise.all([1, 2, 3, 4, 5, 6].map(() => operator.post(`/api/orgs/${made.id}/keys`, {})))
  assert.equal(answers.filter(({ status }) => status === 201).length, 3)
  const refused = answers.find(({ status }) => status !== 201)
  assert.deepEqual([refused?.body.code, refused?.body.limit], ['quota_exceeded', 3])
})

test('key: its last use is written, at most once a minute', async () => {
  const client = await keyWith({})
  const used = async () =>
    (await world.api.get('/api/keys')).body.find(({ id }: { id: string }) => id === client.id).lastUsedAt
  assert.equal(await used(), null)
  await client.get('/api/whoami')
  const first = await eventually(async () => (await used()) ?? false)
  await client.get('/api/whoami')
  assert.equal(await used(), first)
})
