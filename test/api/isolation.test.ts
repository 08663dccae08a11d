/**
 * What one organisation has is to another as if it did not exist: each operation of `openapi.json` that names something is sent with what the
 * first has made and the key of the second, and the answer is that for something which nobody has. A new operation is in it by itself.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { ids } from '../../src/protocol/http/examples.ts'
import { ApiClient, type ApiAnswer } from '../support/api-client.ts'
import { bodyOf, type Made, type Operation, operations, pathOf, prepared, queryOf, world } from './operations.ts'

/** What no two organisations share: the names in their paths are of the caller's own. */
const ownNames = new Set(['host'])
/** Parameters that name something of an organisation. */
const naming = (operation: Operation) =>
  operation.parameters.filter(
    ({ name, in: where }) => where === 'path' && !['port', 'pid', 'path', ...ownNames].includes(name),
  )

const isSigned = ({ path, id }: Operation) => id.includes('Signed') || path.endsWith('/signed')
/** Whoever has the link of a capsule reads it. */
const isShared = ({ path, method }: Operation) =>
  method === 'GET' && (path.startsWith('/v1/capsules/') || path.startsWith('/docs/'))
const isOperators = ({ path }: Operation) => /^\/api\/(?:orgs|operator)/.test(path)

/** They make something under the name in their path, as each organisation may. */
const making = new Set(['importImage', 'createArchiveUrl'])
/** Only the operator's own organisation may: any name is 403 for others. */
const closed = /^(?:un)?publish/

const tested = operations.filter(
  (operation) =>
    !making.has(operation.id) &&
    naming(operation).length > 0 &&
    !isSigned(operation) &&
    !isShared(operation) &&
    !isOperators(operation) &&
    !operation.statuses.includes(501),
)

/** An id of the same form that nobody has. */
function strange(text: string): string {
  return text.replaceAll(/[a-z0-9]{16}(?![a-z0-9])/g, '0123456789abcdef').replaceAll('tools', 'none-such')
}

async function send(
  made: Made,
  operation: Operation,
  target: string,
  key: string,
): Promise<Pick<ApiAnswer, 'status' | 'text'>> {
  if (operation.statuses.includes(101)) return { status: await refusedUpgrade(target, key), text: '' }
  return await new ApiClient(world.origin, key).raw(operation.method, target, {
    body: bodyOf(operation, made) as never,
  })
}

async function refusedUpgrade(target: string, key: string): Promise<number> {
  const socket = new WebSocket(`${world.origin.replace('http', 'ws')}${target}`, { headers: { 'x-api-key': key } })
  return await new Promise((resolve, reject) => {
    socket.on('unexpected-response', (_request, response) => {
      resolve(response.statusCode ?? 0)
      socket.terminate()
    })
    socket.on('upgrade', () => reject(new Error(`${target} was opened`)))
    socket.on('error', () => undefined)
  })
}

async function newestOf(orgId: string): Promise<number> {
  return (await world.store.events.page(orgId, { after: 0, limit: 1, filter: {} })).newest
}

/** Waits until a checkpoint is ready. */
async function settled(made: Made): Promise<void> {
  const id = made.ids.get(ids.checkpoint)
  if (id === undefined) return
  for (;;) {
    const { body } = await made.api.get(`/api/checkpoints/${id}`)
    if (body.status !== 'processing') return
  }
}

for (const operation of tested) {
  test(`isolation: ${operation.id} finds nothing of another organisation`, async () => {
    const made = await prepared(operation)
    const target = made.real(pathOf(operation)) + (await queryOf(made, operation))
    // Here the driver takes images, which it is asked for before a name is looked up.
    if (operation.id === 'pushImage')
      Object.assign(world.machines, { assertImportable: () => undefined, pushImage: () => undefined })
    // A checkpoint becomes ready by itself.
    await settled(made)
    const newest = await newestOf(made.orgId)
    const theirs = await send(made, operation, target, world.stranger.key)
    const nobodys = await send(made, operation, strange(target), world.stranger.key)
    const status = closed.test(operation.id) && operation.path.includes('{name}') ? 403 : 404
    assert.equal(theirs.status, status, `${operation.method} ${target} → ${theirs.status} ${theirs.text.slice(0, 300)}`)
    assert.equal(nobodys.status, status)
    assert.equal(strange(theirs.text), strange(nobodys.text), 'no hint in the words')
    assert.equal(await newestOf(made.orgId), newest, 'nothing has happened there')
  })
}

test('isolation: most operations are in it', () => {
  assert.ok(tested.length > 80, String(tested.length))
})

test('isolation: what a body names of another organisation is not found', async () => {
  const { api, stranger } = world
  const sandbox = await world.sandbox()
  await api.post('/api/volumes', { name: 'theirs' })
  await api.post('/api/volumes/theirs/snapshots', { name: 's' })
  await api.post('/api/snapshots', { name: 'theirs', image: { steps: [] } })
  const { id: context } = (await api.post('/api/images/contexts', { files: [] })).body
  const calls: [path: string, body: object][] = [
    ['/v1/sessions', { prompt: 'x', user_id: 'u', snapshot: 'theirs' }],
    ['/api/sandboxes', { templateID: 'theirs' }],
    ['/api/sandboxes', { snapshot: 'theirs' }],
    ['/api/sandboxes', { volumes: [{ name: 'theirs', path: '/data' }] }],
    ['/api/volumes', { name: 'copy', from: 'theirs' }],
    ['/api/volumes', { name: 'copy', from: 'theirs@s' }],
    ['/api/snapshots', { name: 'mine', image: { base: 'theirs', steps: [] } }],
    ['/api/snapshots', { name: 'mine', image: { dockerfile: 'FROM theirs' } }],
    ['/api/snapshots', { name: 'mine', image: { dockerfile: 'FROM base\nCOPY a /', context } }],
    ['/api/webhooks', { url: 'https://example.com/hook', sandboxId: sandbox }],
  ]
  for (const [path, body] of calls) {
    const answer = await stranger.raw('POST', path, { body })
    assert.ok(
      [400, 404, 501].includes(answer.status),
      `${path} ${JSON.stringify(body)} → ${answer.status} ${answer.text}`,
    )
    const unknown = JSON.parse(strange(JSON.stringify(body)).replaceAll('theirs', 'nobodys'))
    const nobodys = await stranger.raw('POST', path, { body: unknown })
    assert.deepEqual(
      [answer.status, strange(answer.text).replaceAll('theirs', 'nobodys')],
      [nobodys.status, strange(nobodys.text)],
      `${path} ${JSON.stringify(body)}`,
    )
  }
})

test('isolation: lists, streams, tags and filters show nothing of another organisation', async () => {
  const { api, stranger, orgId } = world
  const { sandboxID } = (await api.post('/api/sandboxes', { name: 'secret-name', metadata: { m: 'secret-name' } })).body
  await api.put(`/api/sandboxes/${sandboxID}/tags`, { 'secret-name': 'x' })
  for (const { method, path, parameters } of operations) {
    const isList =
      method === 'GET' &&
      !path.includes('{') &&
      !/^\/(?:api\/(?:orgs|operator)|metrics|openapi|sdk|docs|readyz|healthz|internal|mcp)/.test(path)
    if (!isList || path === '/') continue
    const isStream = path === '/api/events'
    const query = parameters.some(({ name }) => name === 'groupBy')
      ? '?groupBy=sandbox'
      : isStream
        ? '?follow=false'
        : ''
    const { text } = await stranger.raw('GET', `${path}${query}`)
    for (const secret of [sandboxID, 'secret-name', orgId]) assert.ok(!text.includes(secret), `${path} shows ${secret}`)
  }
  for (const query of [`sandbox=${sandboxID}`, 'tag=secret-name']) {
    const { body } = await stranger.get(`/api/events?follow=false&${query}`)
    assert.deepEqual(body.events, [], query)
  }
  assert.deepEqual((await stranger.get('/api/sandboxes?tag=secret-name')).body, [])
  const { body: usage } = await stranger.get(`/api/usage?groupBy=sandbox&filter[tag:secret-name]=x`)
  assert.deepEqual(usage.items, [])
})

test('isolation: a signed URL opens what it was made for alone, whoever has it', async () => {
  const { api } = world
  const [one, two] = [await world.sandbox(), await world.sandbox()]
  const { url } = (await api.post(`/api/sandboxes/${one}/files/download-url`, { path: '/etc/hostname' })).body
  const { pathname, search } = new URL(url)
  for (const target of [
    pathname.replace(one, two) + search,
    pathname + search.replace('hostname', 'passwd'),
    pathname.replace('/download', '/upload') + search,
  ]) {
    const method = target.includes('/upload') ? 'PUT' : 'GET'
    const answer = await api.raw(method, target, { key: null, ...(method === 'PUT' ? { body: Buffer.from('x') } : {}) })
    assert.equal(answer.status, 403, target)
  }
})

test('isolation: an Idempotency-Key of one organisation replays nothing to another', async () => {
  const headers = { 'idempotency-key': 'of-both' }
  const mine = await world.api.post('/api/volumes', { name: 'kept' }, { headers })
  const theirs = await world.stranger.post('/api/volumes', { name: 'kept' }, { headers })
  assert.equal(theirs.status, 201)
  assert.notEqual(theirs.body.id, mine.body.id)
})
