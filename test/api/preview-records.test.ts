import assert from 'node:assert/strict'
import { test } from 'node:test'
import { exchange } from '../support/api-client.ts'
import { useWorld, previewHost } from '../support/world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

let id: string
let path: string
const world = useWorld({ publicUrl: 'http://api.test' }, async () => {
  id = await world.sandbox()
  path = `/api/sandboxes/${id}/preview`
})

/** Port 1 has no server: 502 means that the name leads to the sandbox, 401 that its guard refuses, 200 that it leads to the API. */
async function asks(host: string, token?: string): Promise<number> {
  const headers = { host, ...(token === undefined ? {} : { authorization: `Bearer ${token}` }) }
  return (await exchange(`${world.origin}/healthz`, { headers })).status
}
const leadsInside = async (host: string) => (await asks(host)) === 502

async function list(of = path): Promise<{ port: number; customHostname?: string; authConfig: object }[]> {
  const { status, body } = await world.api.get(of)
  assert.equal(status, 200)
  return body
}

test('preview record: previews are listed by port, each with what it was declared with and never a token', async () => {
  assert.deepEqual(await list(), [])
  const third = await world.api.post(path, { port: 3, authConfig: { scheme: 'bearer' } })
  const first = await world.api.post(path, { port: 1, domain: 'one.example.com' })
  const second = await world.api.post(path, { port: 2, authConfig: { token: 'auto' } })
  assert.deepEqual([third.status, first.status, second.status], [201, 201, 201])
  for (const { body } of [third, second]) assert.match(body.previewAuthToken, /^.{16,}$/)
  const { previewAuthToken: _second, ...shownSecond } = second.body
  const { previewAuthToken: _third, ...shownThird } = third.body
  assert.deepEqual(await list(), [first.body, shownSecond, shownThird])
  assert.deepEqual(shownThird.authConfig, { scheme: 'bearer' })
  assert.deepEqual(first.body, {
    id: first.body.id,
    sandboxId: id,
    orgId: world.orgId,
    hostname: `${id}-p1.${previewHost}`,
    customHostname: 'one.example.com',
    verification: first.body.verification,
    port: 1,
    sslStatus: 'pending',
    authConfig: {},
    createdAt: first.body.createdAt,
  })
  for (const port of [1, 2, 3]) assert.equal((await world.api.delete(`${path}/${port}`)).status, 204)
  assert.deepEqual(await list(), [])
})

test('preview record: declaring a port again keeps the guard and the domain that it does not name', async () => {
  const token = 'token-of-sixteen-characters'
  const domain = 'kept.example.com'
  world.prove(domain)
  const declared = await world.api.post(path, { port: 1, domain, authConfig: { token } })
  const { previewAuthToken: _shown, ...record } = declared.body
  for (const body of [{}, { authConfig: {} }, { domain }, { domain: 'KEPT.example.com.', authConfig: {} }]) {
    const again = await world.api.post(path, { port: 1, ...body })
    assert.deepEqual([again.status, again.body], [200, record], JSON.stringify(body))
    assert.deepEqual([await asks(domain), await asks(`${id}-p1.${previewHost}`)], [401, 401], JSON.stringify(body))
    assert.equal(await asks(domain, token), 502)
  }
  await world.api.delete(`${path}/1`)
})

test('preview record: declaring a port again changes what it names and leaves the rest', async () => {
  world.prove('before.example.com')
  world.prove('next.example.com')
  const declared = await world.api.post(path, { port: 1, domain: 'before.example.com', authConfig: { token: 'auto' } })
  const moved = await world.api.post(path, { port: 1, domain: 'next.example.com' })
  assert.deepEqual([moved.status, moved.body.customHostname], [200, 'next.example.com'])
  assert.deepEqual([moved.body.id, moved.body.createdAt], [declared.body.id, declared.body.createdAt])
  assert.deepEqual([moved.body.authConfig, moved.body.previewAuthToken], [{ scheme: 'bearer' }, undefined])
  assert.equal(await asks('next.example.com', declared.body.previewAuthToken), 502)
  assert.equal(await asks('before.example.com'), 200, 'it leads to the API again')

  const renewed = await world.api.post(path, { port: 1, authConfig: { scheme: 'bearer' } })
  assert.deepEqual([renewed.status, renewed.body.customHostname], [200, 'next.example.com'])
  assert.notEqual(renewed.body.previewAuthToken, declared.body.previewAuthToken)
  assert.equal(await asks('next.example.com', declared.body.previewAuthToken), 401)
  assert.equal(await asks('next.example.com', renewed.body.previewAuthToken), 502)

  const token = 'token-of-sixteen-characters'
  const chosen = await world.api.post(path, { port: 1, authConfig: { token } })
  assert.equal(chosen.body.previewAuthToken, token)
  assert.equal(await asks('next.example.com', renewed.body.previewAuthToken), 401)
  assert.equal(await asks('next.example.com', token), 502)
  await world.api.delete(`${path}/1`)
})

test('preview record: null takes the guard or the domain away, and only that', async () => {
  const token = 'token-of-sixteen-characters'
  world.prove('gone.example.com')
  world.prove('open.example.com')
  await world.api.post(path, { port: 1, domain: 'gone.example.com', authConfig: { token } })
  const nameless = await world.api.post(path, { port: 1, domain: null })
  assert.deepEqual([nameless.status, nameless.body.customHostname], [200, undefined])
  assert.deepEqual(nameless.body.authConfig, { scheme: 'bearer' })
  assert.equal(await asks('gone.example.com'), 200, 'it leads to the API again')
  assert.deepEqual([await asks(`${id}-p1.${previewHost}`), await asks(`${id}-p1.${previewHost}`, token)], [401, 502])

  await world.api.post(path, { port: 1, domain: 'open.example.com' })
  const open = await world.api.post(path, { port: 1, authConfig: null })
  assert.deepEqual([open.status, open.body.customHostname], [200, 'open.example.com'])
  assert.deepEqual([open.body.authConfig, open.body.previewAuthToken], [{}, undefined])
  assert.equal(await asks('open.example.com'), 502)
  await world.api.delete(`${path}/1`)

  const bare = await world.api.post(path, { port: 1, domain: null, authConfig: null })
  assert.deepEqual([bare.status, bare.body.customHostname, bare.body.authConfig], [201, undefined, {}])
  await world.api.delete(`${path}/1`)
})

test('preview record: a guard and a domain that are declared at the same time are both in force', async () => {
  for (let round = 0; round < 10; round++) {
    const domain = `both${round}.example.com`
    world.prove(domain)
    const token = 'token-of-sixteen-characters'
    await Promise.all([
      world.api.post(path, { port: 1, domain }),
      world.api.post(path, { port: 1, authConfig: { token } }),
    ])
    assert.deepEqual([await asks(domain), await asks(domain, token)], [401, 502])
    await world.api.delete(`${path}/1`)
  }
})

test('preview record: a domain belongs to one preview, and is free again when that, or its sandbox, is gone', async () => {
  const { api, stranger } = world
  const theirs = (await stranger.post('/api/sandboxes', {})).body.sandboxID as string
  const domain = 'wanted.example.com'
  world.prove(domain)
  const take = async () => await stranger.post(`/api/sandboxes/${theirs}/preview`, { port: 1, domain })
  assert.equal((await api.post(path, { port: 1, domain })).status, 201)
  for (const taken of [await take(), await api.post(path, { port: 2, domain: 'WANTED.example.com.' })]) {
    assert.deepEqual([taken.status, taken.body.code], [409, 'conflict'])
  }
  assert.deepEqual(
    (await list()).map(({ port }) => port),
    [1],
    'the one refused leaves nothing',
  )
  assert.equal((await api.delete(`${path}/1`)).status, 204)
  assert.equal(await leadsInside(domain), false)
  world.prove(domain, world.strangerOrgId)
  assert.equal((await take()).status, 201)
  // What the name server said before is known for a moment.
  await eventually(() => leadsInside(domain))

  const mine = await world.sandbox()
  const claim = async () => await api.post(`/api/sandboxes/${mine}/preview`, { port: 1, domain })
  assert.equal((await claim()).status, 409)
  assert.equal((await stranger.delete(`/api/sandboxes/${theirs}`)).status, 204)
  assert.equal((await exchange(world.origin, { headers: { host: domain } })).status, 410)
  assert.equal((await claim()).status, 201)
  await eventually(() => leadsInside(domain))
  const [lost] = (await stranger.get(`/api/sandboxes/${theirs}/preview`)).body
  assert.deepEqual([lost.customHostname, lost.sslStatus], [domain, 'pending'])
})

test('preview record: host names of our own are refused as domains, whatever their letters', async () => {
  const own = [
    previewHost,
    'api.test',
    `x.${previewHost}`,
    'x.api.test',
    `${id}-p1.${previewHost}`,
    'API.Test',
    'api.test.',
  ]
  own.push('gateway.atoll.internal', 'printer.local', 'a.localhost', '1.0.0.10.in-addr.arpa')
  for (const domain of own) {
    const { status, body } = await world.api.post(path, { port: 1, domain })
    assert.deepEqual([status, body.code], [400, 'invalid_request'], domain)
    assert.match(body.error, /domain/)
  }
  assert.equal(
    (await world.api.post(path, { port: 1, domain: 'notapi.test' })).status,
    201,
    'its end is no label of ours',
  )
  await world.api.delete(`${path}/1`)
})

test('preview record: previews of others, of nothing and of stopped sandboxes are refused', async () => {
  const { api, stranger } = world
  await api.post(path, { port: 1 })
  assert.equal((await stranger.get(path)).status, 404)
  assert.equal((await stranger.post(path, { port: 1 })).status, 404)
  assert.equal((await stranger.delete(`${path}/1`)).status, 404)
  assert.equal((await stranger.post(`${path}/rotate`)).status, 404)
  for (const port of ['2', '0', '65536', '99999']) assert.equal((await api.delete(`${path}/${port}`)).status, 404, port)
  for (const port of ['x', '-1', '1.5', '100000']) assert.equal((await api.delete(`${path}/${port}`)).status, 400, port)
  const stopped = await world.sandbox()
  await api.delete(`/api/sandboxes/${stopped}`)
  for (const call of ['preview', 'preview/rotate']) {
    const { status, body } = await api.post(`/api/sandboxes/${stopped}/${call}`, { port: 1 })
    assert.deepEqual([status, body.code], [410, 'sandbox_stopped'])
  }
  assert.equal((await api.get('/api/sandboxes/sb-unknown00000/preview')).status, 404)
})

test('preview record: settings of previews wake nothing', async () => {
  const { api } = world
  await api.post(`/api/sandboxes/${id}/hibernate`)
  await api.post(path, { port: 7 })
  await list()
  await api.post(`${path}/rotate`)
  await api.delete(`${path}/7`)
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.status, 'hibernated')
})

test('preview record: a repeat with the same Idempotency-Key shows the same token again', async () => {
  const headers = { 'idempotency-key': 'preview-once' }
  const body = { port: 9, authConfig: { scheme: 'bearer' } }
  const first = await world.api.post(path, body, { headers })
  const again = await world.api.post(path, body, { headers })
  assert.deepEqual([again.status, again.body], [201, first.body])
  const other = await world.api.post(path, { port: 10 }, { headers })
  assert.deepEqual([other.status, other.body.code], [409, 'idempotency_key_conflict'])
})

test('preview record: bad ports and domains are refused', async () => {
  const { api, stranger } = world
  const bare = `/api/sandboxes/${await world.sandbox()}/preview`
  for (const bad of [0, 65_536, -1, 1.5, '80', null, undefined]) {
    const { status, body } = await api.post(bare, { port: bad })
    assert.deepEqual([status, body.field], [400, 'port'], String(bad))
  }
  for (const domain of ['x', 'a b.example.com', '10.0.0.1', `x.${previewHost}`, 'api.test', '-a.example.com', 5]) {
    assert.equal((await api.post(bare, { port: 80, domain })).status, 400, String(domain))
  }
  for (const authConfig of ['x', { scheme: 'basic' }, { token: 'short' }]) {
    assert.equal((await api.post(bare, { port: 80, authConfig })).status, 400, JSON.stringify(authConfig))
  }
  world.prove('taken.example.com')
  assert.equal((await api.post(bare, { port: 80, domain: 'taken.example.com' })).status, 201)
  const theirs = await stranger.post('/api/sandboxes', {})
  const taken = await stranger.post(`/api/sandboxes/${theirs.body.sandboxID}/preview`, {
    port: 80,
    domain: 'taken.example.com',
  })
  assert.deepEqual([taken.status, taken.body.code], [409, 'conflict'])
  assert.equal((await api.delete(`${bare}/x`)).status, 400)
})

test('preview record: without TLS nothing is issued, and a domain waits for its record alone', async () => {
  const { api } = world
  const bare = `/api/sandboxes/${await world.sandbox()}/preview`
  const waiting = await api.post(bare, { port: 1, domain: 'waiting.example.com' })
  assert.equal(waiting.body.sslStatus, 'pending', 'it leads nowhere, and that is to be seen')
  world.prove('a.example.com')
  const proven = await api.post(bare, { port: 80, domain: 'a.example.com' })
  assert.equal(proven.body.sslStatus, 'disabled')
  for (const name of ['a.example.com', 'api.test']) {
    assert.equal((await api.get(`/internal/tls-ask?domain=${name}`)).status, 404)
  }
})
