/** Trees of sandboxes and comparisons of disks, over HTTP and by the SDK. */
import assert from 'node:assert/strict'
import { get } from 'node:http'
import { test } from 'node:test'
import {
  ConflictError,
  Atoll,
  InvalidRequestError,
  NotFoundError,
  Sandbox,
  TooLargeError,
} from '../../sdk/src/index.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { ApiClient } from '../support/api-client.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()
const diff = { accept: 'text/x-diff' }

/** A sandbox with a checkpoint and a fork of it. */
async function made(name?: string) {
  const { api, machines } = world
  const sandboxId = await world.sandbox(name === undefined ? {} : { name })
  const post = async (path: string, body: object) => (await api.post(path, body)).body
  const { id } = await post(`/api/sandboxes/${sandboxId}/checkpoints`, { name: 'v1', kind: 'disk_only' })
  const { sandboxID: forkId } = await post(`/api/sandboxes/from-checkpoint/${id}`, {})
  machines.trees.disks.set(id, { '/workspace/a.txt': 'one\n', '/workspace/b.txt': 'same\n' })
  machines.trees.disks.set(sandboxId, { '/workspace/a.txt': 'two\n', '/workspace/b.txt': 'same\n' })
  return { sandboxId, id, forkId, path: `/api/sandboxes/${sandboxId}` }
}

/** Of a turn of a session, as the session would make it. */
async function turnOf(sandboxId: string): Promise<string> {
  const { checkpoints } = world.sandboxes
  const input = { name: `turn ${sandboxId}`, owner: 'turn', kind: 'disk_only' } as const
  const { id } = await checkpoints.create(world.orgId, sandboxId, input)
  await checkpoints.settled(world.orgId, id)
  return id
}

test('tree: sandboxes and checkpoints with their parents, states and own bytes, the same from each of them', async () => {
  const { api, machines, stranger } = world
  const { sandboxId, id, forkId, path } = await made()
  const turnId = await turnOf(forkId)
  machines.trees.bytes.set(id, 77)
  const { status, body } = await api.get(`${path}/tree`)
  assert.deepEqual([status, body.sandboxId, body.rootId, body.isCut], [200, sandboxId, sandboxId, false])
  const [root, checkpoint, fork, turn] = body.nodes
  assert.match(root.createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
  const { createdAt: _created, ...shown } = checkpoint
  assert.deepEqual(shown, {
    ...{ id, type: 'checkpoint', parentId: sandboxId, name: 'v1', status: 'ready', kind: 'disk_only' },
    ...{ origin: 'client', sizeBytes: 4096, uniqueBytes: 77 },
  })
  assert.deepEqual([root.type, root.parentId, root.status], ['sandbox', null, 'running'])
  assert.deepEqual([fork.id, fork.parentId], [forkId, id])
  assert.deepEqual([turn.id, turn.parentId, turn.origin], [turnId, forkId, 'turn'])
  const other = await api.get(`/api/sandboxes/${forkId}/tree`)
  assert.deepEqual(other.body, { ...body, sandboxId: forkId })
  assert.equal((await stranger.get(`${path}/tree`)).status, 404)
  assert.equal((await api.get('/api/sandboxes/sb-unknown00000/tree')).status, 404)
  assert.equal((await api.get(`${path}/tree?depth=3`)).status, 400)
})

test('tree: a stopped sandbox and what has lost its parent are in it', async () => {
  const { api } = world
  const { sandboxId, id, forkId, path } = await made()
  await api.delete(path)
  const { body } = await api.get(`${path}/tree`)
  assert.deepEqual([body.nodes[0].id, body.nodes[0].status], [sandboxId, 'stopped'])
  await api.delete(`/api/checkpoints/${id}`)
  const { body: alone } = await api.get(`/api/sandboxes/${forkId}/tree`)
  assert.deepEqual([alone.rootId, alone.nodes.length, alone.nodes[0].parentId], [forkId, 1, null])
})

test('tree: of more than a thousand nodes the first ones are told, with those above the sandbox', async () => {
  const { api, store } = world
  const { sandboxId, forkId, id } = await made()
  const checkpoint = await store.sandboxes.checkpoint(id)
  assert.ok(checkpoint)
  for (let count = 0; count < 1000; count++) {
    const name = `\u001b[2J ${count}`
    await store.sandboxes.insertCheckpoint({ ...checkpoint, id: `${id}x${count}`, name })
  }
  const { body } = await api.get(`/api/sandboxes/${forkId}/tree`)
  assert.deepEqual([body.nodes.length, body.isCut, body.rootId], [1000, true, sandboxId])
  const ids = new Map(body.nodes.map((node: { id: string }, index: number) => [node.id, index]))
  assert.ok(ids.has(forkId))
  for (const [index, { parentId }] of body.nodes.entries())
    assert.ok(parentId === null || Number(ids.get(parentId)) < index, 'no node is above itself')
})

test('diff: the files that differ as JSON, or as a patch to whoever asks for one', async () => {
  const { api } = world
  const { id, path } = await made()
  const json = await api.get(`${path}/diff?from=v1`)
  const file = { path: 'a.txt', change: 'modified', isBinary: false, addedLines: 1, removedLines: 1 }
  const lines = { addedLines: 1, removedLines: 1 }
  assert.deepEqual(json.body, { from: id, to: null, folder: '/workspace', files: [file], ...lines, isCut: false })
  assert.match(String(json.headers.vary), /accept/)
  const patch = await api.raw('GET', `${path}/diff?from=${id}`, { headers: diff })
  assert.deepEqual([patch.status, patch.headers['content-type']], [200, 'text/x-diff; charset=utf-8'])
  assert.equal(patch.text, 'diff --git a/a.txt b/a.txt\n-one\n+two\n')
  const empty = await api.raw('GET', `${path}/diff?from=${id}&to=v1&folder=/`, { headers: diff })
  assert.deepEqual([empty.status, empty.text], [200, ''])
})

test('diff: faults are answered with their status, of a patch too', async () => {
  const { api, stranger, machines } = world
  const { id, path, sandboxId } = await made()
  const { id: unrelated } = await made()
  for (const headers of [{}, diff]) {
    const refused = async (query: string, by = api) => {
      const { status, text } = await by.raw('GET', `${path}/diff?${query}`, { headers })
      return [status, JSON.parse(text).field]
    }
    for (const query of ['', 'from=', 'to=v1', `from=${'x'.repeat(301)}`])
      assert.deepEqual(await refused(query), [400, 'from'], query)
    for (const folder of ['workspace', '/a/../..', '/a%00'])
      assert.deepEqual(await refused(`from=v1&folder=${folder}`), [400, 'folder'], folder)
    assert.deepEqual(await refused('from=v1&depth=1'), [400, 'depth'])
    for (const from of [unrelated, 'cp-unknown00000', 'v2', 'a%00b', '%1b[2J'])
      assert.deepEqual(await refused(`from=${from}`), [404, undefined], from)
    assert.deepEqual(await refused(`from=v1&to=${unrelated}`), [404, undefined])
    assert.deepEqual(await refused(`from=${id}`, stranger), [404, undefined])
    machines.trees.gone.add(sandboxId)
    assert.deepEqual(await refused('from=v1'), [404, undefined])
    machines.trees.gone.delete(sandboxId)
  }
  await api.delete(path)
  const stopped = await api.get(`${path}/diff?from=v1`)
  assert.deepEqual([stopped.status, stopped.body.code], [410, 'sandbox_stopped'])
  assert.equal((await api.get(`${path}/diff?from=v1&to=v1`)).status, 200)
})

test('diff: where the driver reads no disks it is not implemented, but for a sandbox that nobody has', async (t) => {
  const { api, machines } = world
  const { path } = await made()
  const { trees } = machines
  t.after(() => Object.assign(machines, { trees }))
  Object.assign(machines, { trees: undefined })
  assert.deepEqual((await api.get(`${path}/diff?from=v1`)).status, 501)
  assert.equal((await api.get('/api/sandboxes/sb-unknown00000/diff?from=v1')).status, 404)
  assert.equal((await api.get(`${path}/tree`)).body.nodes.length, 3)
})

test('diff: a client that goes away ends the comparison', async (t) => {
  const { machines, origin, api } = world
  const { path } = await made()
  t.after(() => {
    machines.trees.before = async () => {}
  })
  for (const headers of [{}, diff]) {
    const begun = Promise.withResolvers<void>()
    let isEnded = false
    machines.trees.before = async (signal) => {
      begun.resolve()
      await new Promise((_resolve, reject) =>
        signal?.addEventListener('abort', () => {
          isEnded = true
          reject(signal.reason as Error)
        }),
      )
    }
    const request = get(`${origin}${path}/diff?from=v1`, { headers: { ...headers, 'x-api-key': api.key } })
    request.on('error', () => undefined)
    await begun.promise
    request.destroy()
    await eventually(() => assert.ok(isEnded))
  }
})

test('diff: a key with a name prefix compares what it reaches', async () => {
  const { api, origin } = world
  const { id, forkId } = await made('web-tree')
  const ci = new ApiClient(origin, (await api.post('/api/keys', { namePrefix: 'ci-' })).body.key)
  const { sandboxID } = (await api.post(`/api/sandboxes/from-checkpoint/${id}`, { name: 'ci-tree' })).body
  await ci.post(`/api/sandboxes/${sandboxID}/checkpoints`, { name: 'own', kind: 'disk_only' })
  assert.equal((await ci.get(`/api/sandboxes/${sandboxID}/diff?from=own`)).status, 200)
  assert.equal((await ci.get(`/api/sandboxes/${sandboxID}/diff?from=${id}`)).status, 404)
  assert.equal((await ci.get(`/api/sandboxes/${forkId}/diff?from=${id}`)).status, 404)
  const { body } = await ci.get(`/api/sandboxes/${sandboxID}/tree`)
  assert.deepEqual([body.rootId, body.nodes.length], [sandboxID, 2])
  const whole = (await api.get(`/api/sandboxes/${sandboxID}/tree`)).body
  assert.deepEqual([whole.nodes.length, whole.nodes[0].name], [5, 'web-tree'])
})

test('checkpoints of turns: listed by their origin alone, never deleted by a client, and started from by anybody', async () => {
  const { api } = world
  const { id, path, sandboxId } = await made()
  const turnId = await turnOf(sandboxId)
  const listed = async (query: string) =>
    (await api.get(`/api/checkpoints?sandbox=${sandboxId}&${query}`)).body.map((one: { id: string }) => one.id)
  assert.deepEqual(await listed(''), [id])
  assert.deepEqual(await listed('owner=session'), [])
  assert.deepEqual(await listed('origin=turn'), [turnId])
  assert.deepEqual(await listed('origin=turn&owner=session'), [turnId])
  assert.deepEqual(await listed('origin=turn&owner=client'), [])
  assert.deepEqual(await listed('origin=client'), [id])
  assert.deepEqual(await listed('origin=fork'), [])
  assert.equal((await api.get('/api/checkpoints?origin=session')).status, 400)
  const ofSandbox = async (query = '') =>
    (await api.get(`${path}/checkpoints${query}`)).body.map((one: { id: string; origin: string }) => [
      one.id,
      one.origin,
    ])
  assert.deepEqual(await ofSandbox(), [[id, 'client']])
  assert.deepEqual(await ofSandbox('?origin=turn'), [[turnId, 'turn']])
  const { body } = await api.get(`/api/checkpoints/${turnId}`)
  assert.deepEqual([body.owner, body.origin], ['session', 'turn'])
  for (const target of [`/api/checkpoints/${turnId}`, `${path}/checkpoints/${turnId}`]) {
    const refused = await api.delete(target)
    assert.deepEqual([refused.status, refused.body.code], [409, 'conflict'])
  }
  const expiry = await api.send('PATCH', `/api/checkpoints/${turnId}`, { body: { expiresInSeconds: 60 } })
  assert.equal(expiry.status, 409)
  assert.equal((await api.post(`/api/sandboxes/from-checkpoint/${turnId}`, {})).status, 201)
  assert.equal((await api.post(`${path}/checkpoints/${turnId}/restore`)).status, 200)
})

test('sdk: tree, diff, and patches as text and as a stream', async () => {
  const client = new Atoll({ url: world.origin, apiKey: world.api.key, retries: 0 })
  const { sandboxId, id, forkId } = await made()
  const sandbox = await Sandbox.connect(sandboxId, { client })
  assert.deepEqual(
    (await sandbox.tree()).nodes.map((node) => node.id),
    [sandboxId, id, forkId],
  )
  const [checkpoint] = await sandbox.checkpoints()
  assert.ok(checkpoint)
  assert.equal((await sandbox.diff({ from: checkpoint })).files[0]?.path, 'a.txt')
  assert.deepEqual((await sandbox.diff({ from: 'v1', to: checkpoint, folder: '/workspace' })).files, [])
  const text = await sandbox.patch({ from: 'v1' })
  assert.equal(text, 'diff --git a/a.txt b/a.txt\n-one\n+two\n')
  assert.equal(await new Response(await sandbox.patchStream({ from: 'v1' })).text(), text)
  await assert.rejects(sandbox.patch({ from: 'v1', bytesMax: 5 }), TooLargeError)
  await assert.rejects(sandbox.patch({ from: 'nope' }), NotFoundError)
  await assert.rejects(sandbox.diff({ from: 'v1', folder: 'x' }), InvalidRequestError)
  const turnId = await turnOf(sandboxId)
  assert.equal((await sandbox.checkpoints()).length, 1)
  const turns = await Array.fromAsync(client.checkpoints({ sandbox: sandboxId, origin: 'turn' }))
  assert.deepEqual([turns[0]?.id, turns.length], [turnId, 1])
  await assert.rejects(client.deleteCheckpoint(turnId), ConflictError)
})
