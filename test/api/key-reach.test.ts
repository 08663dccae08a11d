import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { routes } from '../../src/http/routes/index.ts'
import { ApiClient } from '../support/api-client.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

async function prefixed(namePrefix: string): Promise<ApiClient> {
  const { body } = await world.api.post('/api/keys', { namePrefix })
  return new ApiClient(world.origin, body.key)
}

test('name prefix: what has another name is to the key as if it did not exist', async () => {
  const ci = await prefixed('ci-')
  const { api } = world
  const unnamed = await world.sandbox()
  const { sandboxID: named } = (await api.post('/api/sandboxes', { name: 'web-1' })).body
  const { id: checkpoint } = (
    await api.post(`/api/sandboxes/${unnamed}/checkpoints`, { name: 'v1', kind: 'disk_only' })
  ).body
  const { id: session } = (await api.post('/v1/sessions', { prompt: 'x', user_id: 'u', name: 'web-chat' })).body
  await api.post('/api/volumes', { name: 'web-data' })
  const strange = 'sb-0000000000000000'
  const { body: unknown } = await ci.get(`/api/sandboxes/${strange}`)
  for (const id of [unnamed, named, 'web-1']) {
    const { status, body } = await ci.get(`/api/sandboxes/${id}`)
    const words = id === 'web-1' ? 'no sandbox is named web-1' : unknown.error.replace(strange, id)
    assert.deepEqual([status, body.error], [404, words])
  }
  for (const [method, path, body] of [
    ['DELETE', `/api/sandboxes/${unnamed}`],
    ['POST', `/api/sandboxes/${named}/exec/run`, { cmd: 'true' }],
    ['GET', `/api/checkpoints/${checkpoint}`],
    ['POST', `/api/sandboxes/from-checkpoint/${checkpoint}`, {}],
    ['POST', `/api/sandboxes/checkpoints/${checkpoint}/patches`, { script: 'true' }],
    ['GET', `/v1/sessions/${session}`],
    ['POST', `/v1/sessions/${session}/messages`, { message: 'x', user_id: 'u' }],
    ['POST', '/v1/sessions', { prompt: 'x', user_id: 'u', checkpoint_id: checkpoint }],
    ['GET', '/api/volumes/web-data'],
    ['DELETE', '/api/volumes/web-data'],
    ['POST', '/api/volumes', { name: 'ci-copy', from: 'web-data' }],
    ['POST', '/api/sandboxes', { volumes: [{ name: 'web-data', path: '/data' }] }],
  ] as const) {
    assert.equal((await ci.send(method, path, { body })).status, 404, `${method} ${path}`)
  }
  assert.deepEqual((await ci.get('/api/sandboxes')).body, [])
  assert.deepEqual((await ci.get('/api/checkpoints')).body, [])
  assert.deepEqual((await ci.get('/v1/sessions')).body.data, [])
  assert.deepEqual((await ci.get('/api/volumes')).body, [])
  assert.equal((await api.get(`/api/sandboxes/${unnamed}`)).body.status, 'running')
})

test('name prefix: each call of a sandbox or session answers for a strange one as for one that does not exist', async () => {
  const ci = await prefixed('ci-')
  const strange = { id: await world.sandbox(), sessionId: '' }
  strange.sessionId = (await world.api.post('/v1/sessions', { prompt: 'x', user_id: 'u' })).body.id
  const unknown = { id: 'sb-0000000000000000', sessionId: 'session_0000000000000000' }
  const document = JSON.parse(await readFile(new URL('../../openapi.json', import.meta.url), 'utf8'))
  let tried = 0
  for (const { method, path, auth, ofAll, upgrade, body } of routes) {
    if (!/:(?:id|sessionId)(?:\/|$)/.test(path) || !auth.startsWith('key') || ofAll === true || upgrade !== undefined)
      continue
    const shown = document.paths[path.replaceAll(/:(\w+)/g, '{$1}')]?.[method.toLowerCase()]
    const example = Object.values(shown?.requestBody?.content ?? {})[0] as
      | { schema?: unknown; examples?: object }
      | undefined
    const given = body === undefined || body === 'raw' ? undefined : exampleOf(document, example)
    const targetOf = ({ id, sessionId }: typeof unknown) =>
      path
        .replace(':id', id)
        .replace(':sessionId', sessionId)
        .replace(':port', '3000')
        .replaceAll(/:\w+/g, 'es-0000000000000000')
    const asks = (parameter: string) => shown?.parameters?.some((one: { name?: string }) => one.name === parameter)
    const disk = asks('from') ? 'from' : 'against'
    const ofDisk = path.endsWith('/diff') ? `?${disk}=cp-0000000000000000` : ''
    const query = asks('path') ? '?path=/etc/hostname' : ofDisk
    const answers = []
    for (const one of [strange, unknown]) {
      const { status, text } = await ci.raw(method, targetOf(one) + query, { body: given })
      answers.push([status, text.replaceAll(one.id, 'ID').replaceAll(one.sessionId, 'SESSION')])
    }
    assert.deepEqual(answers[0], answers[1], `${method} ${path}`)
    assert.equal(answers[0]?.[0], 404, `${method} ${path}: ${answers[0]?.join(' ')}`)
    tried += 1
  }
  assert.ok(tried > 40, String(tried))
  assert.equal((await world.api.get(`/api/sandboxes/${strange.id}`)).body.status, 'running')
})

// oxlint-disable-next-line typescript/no-explicit-any
function exampleOf(document: any, content: any): unknown {
  const name = content?.schema?.$ref?.split('/').at(-1)
  const schema = name === undefined ? content?.schema : document.components.schemas[name]
  return (
    content?.example ??
    Object.values(content?.examples ?? {}).map((one) => (one as { value: unknown }).value)[0] ??
    schema?.examples?.[0] ??
    {}
  )
}

test('name prefix: the key makes and finds what begins with it, and gets a name where it gives none', async () => {
  const ci = await prefixed('ci-')
  const made = await ci.post('/api/sandboxes', {})
  assert.match(made.body.name, /^ci-[0-9a-f]{12}$/)
  const own = await ci.post('/api/sandboxes', { name: 'ci-mine' })
  await world.api.put(`/api/sandboxes/${own.body.sandboxID}/tags`, { of: 'ci' })
  await world.api.put(`/api/sandboxes/${await world.sandbox()}/tags`, { of: 'all', secret: 'x' })
  const listed: string[] = (await ci.get('/api/sandboxes')).body.map(({ name }: { name: string }) => name)
  assert.deepEqual(new Set(listed), new Set(['ci-mine', made.body.name]))
  const { keys } = (await ci.get('/api/tags')).body
  assert.deepEqual(
    keys.map(({ key }: { key: string }) => key),
    ['of'],
  )
  assert.equal((await ci.post('/api/sandboxes', { name: 'web-2' })).body.field, 'name')
  const renamed = await ci.send('PATCH', '/api/sandboxes/ci-mine', { body: { name: 'free' } })
  assert.deepEqual([renamed.status, renamed.body.field], [400, 'name'], 'it cannot leave its prefix')
  const unnamed = await ci.send('PATCH', '/api/sandboxes/ci-mine', { body: { name: null } })
  assert.equal(unnamed.status, 400)
  const { id } = (await ci.post('/api/sandboxes/ci-mine/checkpoints', { name: 'v1', kind: 'disk_only' })).body
  const forks = await ci.post(`/api/sandboxes/from-checkpoint/${id}`, { count: 2 })
  for (const { sandboxID } of forks.body.sandboxes) {
    assert.equal((await ci.get(`/api/sandboxes/${sandboxID}`)).status, 200, 'its own are within, also without a name')
  }
  const session = await ci.post('/v1/sessions', { prompt: 'x', user_id: 'u' })
  assert.match(session.body.name, /^ci-/)
  assert.equal((await ci.get(`/v1/sessions/${session.body.id}`)).status, 200)
})

test('name prefix: a repeat with an Idempotency-Key has the same name', async () => {
  const ci = await prefixed('ci-')
  const headers = { 'idempotency-key': 'named-once' }
  const first = await ci.post('/api/sandboxes', {}, { headers })
  const again = await ci.post('/api/sandboxes', {}, { headers })
  assert.deepEqual(again.body, first.body)
})

test('name prefix: it reads and starts images of the organisation, and changes none', async () => {
  const ci = await prefixed('ci-')
  await world.api.post('/api/snapshots', { name: 'tools', image: { steps: [] } })
  assert.equal((await ci.get('/api/images/tools')).status, 200)
  assert.equal((await ci.post('/api/sandboxes', { snapshot: 'tools' })).status, 201)
  for (const [method, path, body] of [
    ['DELETE', '/api/images/tools'],
    ['POST', '/api/images/tools/patches', { script: 'true' }],
    ['POST', '/api/images/tools/archive-url', {}],
  ] as const) {
    assert.equal((await ci.send(method, path, { body })).status, 403, path)
  }
  assert.equal((await ci.post('/api/snapshots', { name: 'mine', image: { steps: [] } })).status, 400)
  assert.equal((await ci.post('/api/snapshots', { name: 'ci-tools', image: { steps: [] } })).status, 201)
})

test('name prefix: what the whole organisation has is beyond it', async () => {
  const ci = await prefixed('ci-')
  for (const { method, path } of routes.filter(({ ofAll }) => ofAll)) {
    const target = path.replace(':checkpointId', 'cp-0000000000000000').replaceAll(/:\w+/g, 'x')
    assert.equal((await ci.send(method, target, { body: method === 'GET' ? undefined : {} })).status, 403, path)
  }
})
