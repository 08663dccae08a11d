import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { routes } from '../../src/http/routes/index.ts'
import { nameFault } from '../../src/lib/resource-name.ts'
import { type ApiAnswer, exchange } from '../support/api-client.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

let counter = 0
function newName(): string {
  counter += 1
  return `name-${counter}`
}

const create = (body: object, options?: object) => world.api.post('/api/sandboxes', body, options)
const idsOf = ({ body }: ApiAnswer) => (body as { sandboxID: string }[]).map(({ sandboxID }) => sandboxID)
const refusal = ({ status, body }: ApiAnswer) => [status, body.code, body.field]

test('names: a sandbox is told with its name, which serves where its id does', async () => {
  const { api, orgId } = world
  const name = newName()
  const created = await create({ name })
  const { sandboxID: id } = created.body
  assert.equal(created.body.name, name)
  const read = await api.get(`/api/sandboxes/${name}`)
  assert.deepEqual([read.body.sandboxID, read.body.name], [id, name])
  assert.deepEqual(idsOf(await api.get(`/api/sandboxes?name=${name}`)), [id])

  const run = await api.post(`/api/sandboxes/${name}/exec/run`, { cmd: 'echo', args: ['hi'] })
  assert.equal(run.body.stdout, 'hi\n')
  assert.equal((await api.put(`/api/sandboxes/${name}/tags`, { a: 'b' })).status, 200)
  const { body: preview } = await api.post(`/api/sandboxes/${name}/preview`, { port: 3000 })
  assert.deepEqual([preview.sandboxId, preview.hostname], [id, `${id}-p3000.preview.test`])

  // A signed URL has no key, so it names the id.
  const path = `${world.machines.folder(id)}/file`
  const { body: signed } = await api.post(`/api/sandboxes/${name}/files/upload-url`, { path })
  assert.ok(signed.url.includes(`/api/sandboxes/${id}/`), signed.url)
  assert.equal((await exchange(signed.url, { method: 'PUT', payload: 'x' })).status, 204)
  assert.equal((await exchange(signed.url.replace(id, name), { method: 'PUT', payload: 'x' })).status, 403)

  const { body: exec } = await api.post(`/api/sandboxes/${name}/exec`, { cmd: 'true' })
  const socket = new WebSocket(`${world.origin.replace('http', 'ws')}/api/sandboxes/${name}/exec/${exec.sessionID}`, {
    headers: { 'x-api-key': api.key },
  })
  const [code] = await once(socket, 'close')
  assert.equal(code, 1000)

  const { body: log } = await api.get(`/api/events?follow=false&sandbox=${name}`)
  assert.deepEqual(
    (log.events as { type: string; sandboxId: string }[]).slice(0, 2).map(({ type }) => type),
    ['sandbox.created', 'sandbox.ready'],
  )
  assert.equal((await api.get('/api/events?follow=false&sandbox=nope')).status, 404)

  const hibernated = await api.post(`/api/sandboxes/${name}/hibernate`)
  assert.equal(hibernated.body.sandboxID, id)
  assert.deepEqual(refusal(await create({ name })), [409, 'conflict', 'name'], 'a hibernated one keeps it')
  assert.equal((await api.delete(`/api/sandboxes/${name}`)).status, 204)
  assert.equal((await api.get(`/api/sandboxes/${name}`)).status, 404)
  const stopped = await api.get(`/api/sandboxes/${id}`)
  assert.deepEqual([stopped.body.status, stopped.body.name], ['stopped', name])
  assert.equal((await create({ name })).status, 201, 'a stopped one frees it')
  assert.notEqual(await world.store.sandboxes.sandboxNamed(name, orgId), id)
})

test('names: a checkpoint is SANDBOX/NAME, and its name alone below its sandbox', async () => {
  const { api, sessions } = world
  const name = newName()
  const { sandboxID } = (await create({ name })).body
  const made = await api.post(`/api/sandboxes/${name}/checkpoints`, { name: 'v1', kind: 'disk_only' })
  const { id } = made.body
  assert.equal(made.body.sandboxId, sandboxID)
  const taken = await api.post(`/api/sandboxes/${name}/checkpoints`, { name: 'v1', kind: 'disk_only' })
  assert.deepEqual(refusal(taken), [409, 'conflict', 'name'])

  const from = (checkpoint: string, body: object = {}) =>
    api.post(`/api/sandboxes/from-checkpoint/${encodeURIComponent(checkpoint)}`, body)
  const fork = await from(`${name}/v1`, { name: newName() })
  assert.deepEqual([fork.status, fork.body.fromCheckpointId, fork.body.name], [201, id, `name-${counter}`])
  assert.equal((await from(`${sandboxID}/v1`)).body.fromCheckpointId, id)
  assert.deepEqual(refusal(await from(id, { name: newName(), count: 2 })), [400, 'invalid_request', 'name'])
  for (const unknown of [`${name}/v2`, 'nope/v1', 'v1', `${name}/V1`]) {
    assert.equal((await from(unknown)).status, 404, unknown)
  }
  const patches = `/api/sandboxes/checkpoints/${name}%2Fv1/patches`
  assert.equal((await api.post(patches, { script: 'true' })).body.patch.checkpointId, id)
  assert.equal((await api.get(patches)).body.length, 1)

  await api.post('/v1/sessions', { prompt: 'go on', user_id: 'ada', checkpoint_id: `${name}/v1` })
  assert.equal(sessions.lastCreate?.checkpointId, id)

  const listed = await api.get(`/api/checkpoints?sandbox=${name}`)
  assert.deepEqual(
    (listed.body as { id: string; sandboxName: string }[]).map((one) => [one.id, one.sandboxName]),
    [[id, name]],
  )
  assert.equal((await api.get(`/api/checkpoints/${name}%2Fv1`)).body.id, id)
  await api.post(`/api/sandboxes/${name}/checkpoints`, { name: 'v2', kind: 'disk_only' })
  assert.equal((await api.delete(`/api/checkpoints/${name}%2Fv2`)).status, 204)
  assert.equal((await api.delete(`/api/sandboxes/${name}/checkpoints/v1`)).status, 204)
  assert.equal((await from(id)).status, 404)
  assert.equal((await api.get('/api/checkpoints?sandbox=nope')).status, 404)
})

test('names: of two creates at once with one name, one gets it', async () => {
  const name = newName()
  const answers = await Promise.all(Array.from({ length: 4 }, () => create({ name })))
  assert.deepEqual(answers.map(({ status }) => String(status)).toSorted(), ['201', '409', '409', '409'])
  for (const answer of answers.filter(({ status }) => status === 409)) {
    assert.deepEqual(refusal(answer), [409, 'conflict', 'name'])
  }
  const { body } = await world.api.get('/api/sandboxes?status=stopped')
  assert.ok(!(body as { name?: string }[]).some((stopped) => stopped.name === name), 'a refused one leaves no record')
})

test('names: one that is taken is refused before an image is built', async () => {
  const { api } = world
  const name = newName()
  await create({ name })
  const images = (await api.get('/api/images')).body
  const image = { steps: [{ type: 'run', args: { commands: [`echo ${name}`] } }] }
  assert.deepEqual(refusal(await create({ name, image })), [409, 'conflict', 'name'])
  assert.deepEqual((await api.get('/api/images')).body, images)
})

test('names: an idempotent replay has the same sandbox, also when its name is free again', async () => {
  const { api } = world
  const name = newName()
  const headers = { 'idempotency-key': `key-of-${name}` }
  const first = await create({ name }, { headers })
  const again = await create({ name }, { headers })
  assert.deepEqual([again.status, again.body], [201, first.body])
  const other = await create({ name }, { headers: { 'idempotency-key': `another-key-of-${name}` } })
  assert.equal(other.status, 409)
  const checkpoint = { headers: { 'idempotency-key': `checkpoint-of-${name}` } }
  const path = `/api/sandboxes/${name}/checkpoints`
  const made = await api.post(path, { name: 'v1', kind: 'disk_only' }, checkpoint)
  await api.delete(`/api/sandboxes/${name}`)
  const replay = await api.post(path, { name: 'v1', kind: 'disk_only' }, checkpoint)
  assert.deepEqual([replay.status, replay.body.id], [201, made.body.id])
  const free = await create({ name }, { headers: { 'idempotency-key': `another-key-of-${name}` } })
  assert.equal(free.status, 201)
})

test('names: a name can be changed and taken away', async () => {
  const { api } = world
  const [one, two] = [newName(), newName()]
  const id = (await create({ name: one })).body.sandboxID
  const rename = (of: string, name: unknown) => api.send('PATCH', `/api/sandboxes/${of}`, { body: { name } })
  const renamed = await rename(one, two)
  assert.deepEqual([renamed.status, renamed.body.sandboxID, renamed.body.name], [200, id, two])
  assert.equal((await api.get(`/api/sandboxes/${one}`)).status, 404)
  await create({ name: one })
  assert.deepEqual(refusal(await rename(two, one)), [409, 'conflict', 'name'])
  assert.deepEqual(refusal(await rename(two, 'A B')), [400, 'invalid_request', 'name'])
  assert.equal((await rename(two, two)).status, 200)
  assert.ok(!('name' in (await rename(two, null)).body))
  assert.equal((await rename(id, two)).body.name, two)
  await api.delete(`/api/sandboxes/${id}`)
  assert.equal((await rename(id, two)).status, 410)
})

test('names: what is no name is refused by the field, whoever takes it', async () => {
  const { api } = world
  const bad = ['', ' ', 'a b', 'a\n', 'A', '-a', 'x'.repeat(255), 'a\0', 'é', 'sb-mine', 'cp-mine', 'session-mine']
  for (const name of [...bad, 'from-checkpoint', 'checkpoints', 'list', 7, {}]) {
    assert.deepEqual(refusal(await create({ name })), [400, 'invalid_request', 'name'], JSON.stringify(name))
  }
  for (const name of ['a\n', 'x'.repeat(255), 'session-mine']) {
    const session = await api.post('/v1/sessions', { name, prompt: 'p', user_id: 'ada' })
    assert.deepEqual([session.status, session.body.error.message.startsWith('name: ')], [400, true], name)
  }
  // Bytes that are no UTF-8.
  const body = Buffer.concat([Buffer.from('{"name":"a'), Buffer.of(0xff), Buffer.from('"}')])
  const answer = await create(body, { headers: { 'content-type': 'application/json' } })
  assert.equal(answer.status, 400)
  for (const path of ['a%0Ab', 'a%20b', 'x'.repeat(255), '%C3%A9', 'nope']) {
    assert.equal((await api.get(`/api/sandboxes/${path}`)).status, 404, path)
  }
})

test('names: an organisation sees none of another, and may use the same', async () => {
  const { api, stranger } = world
  const name = newName()
  const { sandboxID: id } = (await create({ name })).body
  await api.post(`/api/sandboxes/${name}/checkpoints`, { name: 'v1', kind: 'disk_only' })
  assert.equal((await stranger.get(`/api/sandboxes/${name}`)).status, 404)
  assert.equal((await stranger.delete(`/api/sandboxes/${name}`)).status, 404)
  for (const checkpoint of [`${name}%2Fv1`, `${id}%2Fv1`]) {
    assert.equal((await stranger.post(`/api/sandboxes/from-checkpoint/${checkpoint}`, {})).status, 404, checkpoint)
  }
  assert.equal((await stranger.get(`/api/events?follow=false&sandbox=${name}`)).status, 404)
  const own = await stranger.post('/api/sandboxes', { name })
  assert.equal(own.status, 201)
  assert.equal((await stranger.get(`/api/sandboxes/${name}`)).body.sandboxID, own.body.sandboxID)
})

test('names: a session has one too', async () => {
  const { api } = world
  const name = newName()
  const { body } = await api.post('/v1/sessions', { name, prompt: 'p', user_id: 'ada' })
  assert.equal(body.name, name)
  assert.equal((await api.get(`/v1/sessions/${name}`)).body.id, body.id)
  assert.equal((await api.post(`/v1/sessions/${name}/messages`, { message: 'm', user_id: 'ada' })).body.id, body.id)
  assert.equal((await api.get(`/api/events?follow=false&session=${name}`)).status, 200)
  const { body: access } = await api.post(`/v1/sessions/${name}/tokens`, { user_id: 'ada', scope: 'read' })
  const withToken = (session: string) => api.get(`/v1/sessions/${session}?token=${access.token}`, { key: null })
  assert.equal((await withToken(body.id)).status, 200)
  assert.equal((await withToken(name)).status, 404, 'the token of a session goes with its id')
  assert.equal((await api.delete(`/v1/sessions/${name}`)).body.id, body.id)
  assert.equal((await api.get(`/v1/sessions/${name}`)).status, 404)
})

test('names: no word of a route is a name in its place', () => {
  const places = routes.flatMap(({ path }) => /^\/(?:api\/sandboxes|v1\/sessions)\/([^/:]+)/.exec(path)?.[1] ?? [])
  assert.ok(places.length > 0)
  for (const word of places) assert.notEqual(nameFault(word), undefined, word)
})

test('list of sandboxes: metadata, tags and names filter it, over pages too', async () => {
  const { api } = world
  const mark = newName()
  const make = async (metadata: Record<string, string>, tags?: Record<string, string>) => {
    const id = await world.sandbox({ metadata: { mark, ...metadata } })
    if (tags !== undefined) await api.put(`/api/sandboxes/${id}/tags`, tags)
    return id
  }
  const a = await make({ team: 'a', 'with space': 'x=y&z' }, { stage: 'test', free: 'v' })
  const b = await make({ team: 'b' }, { stage: 'live' })
  const c = await make({ team: 'a' })
  const list = async (...filters: [string, string][]) => {
    const query = filters.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join('&')
    return idsOf(await api.get(`/api/sandboxes?${query}`))
  }
  const marked: [string, string] = ['metadata', `mark=${mark}`]
  assert.deepEqual(await list(marked), [c, b, a])
  assert.deepEqual(await list(marked, ['metadata', 'team=a']), [c, a])
  assert.deepEqual(await list(marked, ['metadata', 'with space=x=y&z']), [a])
  assert.deepEqual(await list(marked, ['tag', 'stage']), [b, a])
  assert.deepEqual(await list(marked, ['tag', 'stage=live']), [b])
  assert.deepEqual(await list(marked, ['tag', 'stage'], ['tag', 'free=v'], ['tag', 'free']), [a])
  assert.deepEqual(await list(marked, ['tag', 'stage='], ['metadata', 'team=a']), [])
  assert.deepEqual(await list(marked, ['status', 'hibernated']), [])
  assert.deepEqual(await list(marked, ['name', 'nobody']), [])

  const first = await api.get(`/api/sandboxes?metadata=mark%3D${mark}&metadata=team%3Da&limit=1`)
  const cursor = first.headers['x-next-cursor'] as string
  assert.deepEqual(idsOf(first), [c])
  const next = await api.get(`/api/sandboxes?metadata=mark%3D${mark}&metadata=team%3Da&limit=1&cursor=${cursor}`)
  assert.deepEqual([idsOf(next), next.headers['x-next-cursor']], [[a], undefined])

  const bad: [string, string][] = [
    ['metadata', 'team'],
    ['metadata', '=a'],
    ['metadata', 'team=a&metadata=team=b'],
    ['metadata', 'a=%00'],
    ['tag', '=a'],
    ['tag', 'a=b%00'],
    ['tag', '%00'],
    ['name', 'A'],
    ['tag', Array.from({ length: 21 }, () => 'a').join('&tag=')],
  ]
  for (const [field, value] of bad) {
    const answer = await api.get(`/api/sandboxes?${field}=${value}`)
    assert.deepEqual([answer.status, answer.body.code], [400, 'invalid_request'], value)
    assert.ok(answer.body.field.startsWith(field), `${value}: ${answer.text}`)
  }
})

test('create: an unknown user is refused with those that there are, and leaves no record', async () => {
  const { api } = world
  const name = newName()
  const sandboxes = async () => [
    ...(await api.get('/api/sandboxes?status=stopped')).body,
    ...(await api.get('/api/sandboxes')).body,
  ]
  const before = await sandboxes()
  for (const user of ['nope', 'root:nope', 'nope:root']) {
    const answer = await create({ name, user })
    assert.deepEqual(refusal(answer), [400, 'invalid_request', 'user'], user)
    assert.match(answer.body.error, /no user or group nope|no user or group root:nope/)
    assert.match(answer.body.error, /its users are root, /)
  }
  const template = await create({ name, templateID: 'nope' })
  assert.deepEqual(refusal(template), [404, 'not_found', 'templateID'])
  assert.match(template.body.error, /^no image nope; there are base/)
  assert.match((await create({ snapshot: 'nope' })).body.error, /^no image nope; there are base/)
  assert.deepEqual(await sandboxes(), before)

  const headers = { 'idempotency-key': `unknown-user-of-${name}` }
  const refused = await create({ name, user: 'nope' }, { headers })
  assert.deepEqual((await create({ name, user: 'nope' }, { headers })).body, refused.body)
  assert.equal((await create({ name, user: 'root' })).status, 201)
  assert.equal((await create({ user: 4242 })).status, 201, 'an id needs no entry')
})

test('create: an unknown user is refused from a checkpoint too, after its patches', async () => {
  const { api } = world
  const id = await world.sandbox()
  const checkpoint = await api.post(`/api/sandboxes/${id}/checkpoints`, { name: 'v1', kind: 'disk_only' })
  const path = `/api/sandboxes/from-checkpoint/${checkpoint.body.id}`
  assert.deepEqual(refusal(await api.post(path, { user: 'nope' })), [400, 'invalid_request', 'user'])
  const { body } = await api.post(path, { user: 'nope', count: 2 })
  assert.deepEqual(
    body.sandboxes.map(({ code, field }: { code: string; field: string }) => [code, field]),
    [
      ['invalid_request', 'user'],
      ['invalid_request', 'user'],
    ],
  )
  assert.equal((await api.post(path, { user: 'root' })).status, 201)
})

test('whoami: the organisation and the key, without a secret', async () => {
  const { api, orgId, stranger } = world
  const answer = await api.get('/api/whoami')
  const { key, org_name: name, ...rest } = answer.body
  assert.deepEqual([answer.status, rest], [200, { org_id: orgId, user_id: null, email: null, isOperator: false }])
  assert.match(key.id, /^key_/)
  assert.equal(typeof name, 'string')
  assert.ok(!answer.text.includes(api.key))
  assert.notEqual((await stranger.get('/api/whoami')).body.org_id, orgId)
  assert.equal((await api.get('/api/whoami', { key: null })).status, 401)
})
