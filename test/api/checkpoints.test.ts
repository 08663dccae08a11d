import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { Atoll, Sandbox } from '../../sdk/src/index.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

async function checkpoint(name = 'base'): Promise<{ sandboxId: string; id: string }> {
  const sandboxId = await world.sandbox({ memoryMB: 256, envs: { GREETING: 'hello' } })
  const { status, body } = await world.api.post(`/api/sandboxes/${sandboxId}/checkpoints`, { name, kind: 'disk_only' })
  assert.equal(status, 201)
  return { sandboxId, id: body.id }
}

test('checkpoint: a checkpoint answers at once, becomes ready, and keeps its name to itself', async () => {
  const { api } = world
  const sandboxId = await world.sandbox({ envs: { A: 'b' } })
  const path = `/api/sandboxes/${sandboxId}/checkpoints`
  const made = await api.post(path, { name: 'one', kind: 'disk_only', promoteToFull: true })
  assert.equal(made.status, 201)
  assert.match(made.body.id, /^cp-/)
  assert.deepEqual([made.body.sandboxId, made.body.orgId, made.body.kind], [sandboxId, world.orgId, 'disk_only'])
  assert.deepEqual(made.body.sandboxConfig.envs, { A: 'b' })
  await world.sandboxes.checkpoints.settled(world.orgId, made.body.id)
  const [listed] = (await api.get(path)).body
  assert.deepEqual([listed.id, listed.status, listed.sizeBytes], [made.body.id, 'ready', 4096])
  const again = await api.post(path, { name: 'one', kind: 'disk_only' })
  assert.deepEqual([again.status, again.body.code], [409, 'conflict'])
  const full = await api.post(path, { name: 'two' })
  assert.deepEqual([full.status, full.body.code], [503, 'full_checkpoint_unavailable'])
  for (const body of [
    {},
    { name: '' },
    { name: 5 },
    { name: 'x', kind: 'half' },
    { name: 'x', retentionPolicy: { mode: 'none' } },
  ]) {
    assert.equal((await api.post(path, body)).status, 400, JSON.stringify(body))
  }
  const restored = await api.post(`${path}/${made.body.id}/restore`)
  assert.deepEqual([restored.status, restored.body], [200, {}])
  assert.equal((await api.post(`${path}/cp-unknown00000/restore`)).status, 404)
  assert.equal((await world.stranger.post(`${path}/${made.body.id}/restore`)).status, 404)
  assert.equal((await api.delete(`${path}/${made.body.id}`)).status, 204)
  assert.equal((await api.delete(`${path}/${made.body.id}`)).status, 404)
  assert.equal((await api.get('/api/sandboxes/sb-unknown00000/checkpoints')).status, 404)
})

test('checkpoint: a sandbox started from a checkpoint inherits sizes and environment and runs its patches in sequence order', async () => {
  const { api } = world
  const { id } = await checkpoint()
  const path = `/api/sandboxes/checkpoints/${id}/patches`
  const out = join(world.machines.folder((await checkpoint('other')).sandboxId), 'patched')
  const first = await api.post(path, { script: `echo "$GREETING $MORE" >> ${out}`, description: 'greets' })
  assert.equal(first.status, 201)
  assert.deepEqual(Object.keys(first.body), ['patch'])
  const { patch } = first.body
  assert.deepEqual(
    [patch.checkpointId, patch.description, patch.strategy, patch.sequence],
    [id, 'greets', 'on_wake', 1],
  )
  const second = await api.post(path, { script: `echo second >> ${out}`, strategy: 'on_resume' })
  assert.deepEqual([second.body.patch.sequence, second.body.patch.strategy], [2, 'on_resume'])

  const started = await api.post(`/api/sandboxes/from-checkpoint/${id}`, { timeout: 40, envs: { MORE: 'there' } })
  assert.equal(started.status, 201)
  assert.deepEqual([started.body.status, started.body.memoryMB], ['running', 256])
  assert.equal((await api.get(`/api/sandboxes/${started.body.sandboxID}`)).body.timeout, 40)
  assert.equal(readFileSync(out, 'utf8'), 'hello there\nsecond\n')

  assert.equal((await api.delete(`${path}/${second.body.patch.id}`)).status, 204)
  assert.equal((await api.delete(`${path}/${second.body.patch.id}`)).status, 404)
  assert.equal((await api.post(path, { script: 'true' })).body.patch.sequence, 3, 'a number is never used again')
  assert.deepEqual(
    (await api.get(path)).body.map((item: { sequence: number }) => item.sequence),
    [1, 3],
  )
})

test('checkpoint: a patch that exits 3 fails the start with what it said, and nothing is left running', async () => {
  const { api } = world
  const { id } = await checkpoint()
  const path = `/api/sandboxes/checkpoints/${id}/patches`
  const { patch } = (await api.post(path, { script: 'echo sorry >&2\nexit 3' })).body
  await api.post(path, { script: `touch ${world.machines.folder((await checkpoint('z')).sandboxId)}/never` })
  const running = [...world.machines.machines.keys()].toSorted()
  const { status, body } = await api.post(`/api/sandboxes/from-checkpoint/${id}`, {})
  assert.equal(status, 422)
  const { error, ...facts } = body
  assert.match(error, /\S/)
  assert.deepEqual(facts, { code: 'patch_failed', patchId: patch.id, exitCode: 3, stderr: 'sorry\n' })
  assert.deepEqual([...world.machines.machines.keys()].toSorted(), running)
  for (const machine of world.machines.machines.values()) assert.ok(!existsSync(join(machine.folder, 'never')))

  // One alone: in these "sandboxes" two patches at a time would share one script.
  const many = await api.post(`/api/sandboxes/from-checkpoint/${id}`, { count: 1 })
  assert.equal(many.status, 201)
  const [result] = many.body.sandboxes
  assert.deepEqual([result.code, result.exitCode, result.patchId], ['patch_failed', 3, patch.id])
})

test('checkpoint: every call that wakes a sandbox answers with the patch that failed, and the sandbox stays hibernated', async () => {
  const { api } = world
  const checkpointId = (await checkpoint()).id
  const id = (await api.post(`/api/sandboxes/from-checkpoint/${checkpointId}`, {})).body.sandboxID
  const path = `/api/sandboxes/${id}`
  const exec = (await api.post(`${path}/exec`, { cmd: 'sleep', args: ['600'] })).body.sessionID
  const pty = (await api.post(`${path}/pty`, { shell: '/bin/sh' })).body.sessionID
  const signed = async (use: string) => {
    const { url } = (await api.post(`${path}/files/${use}-url`, { path: '/tmp/x' })).body
    return url.slice(url.indexOf('/api/'))
  }
  const [upload, download] = [await signed('upload'), await signed('download')]
  await api.post(`/api/sandboxes/checkpoints/${checkpointId}/patches`, { script: 'exit 4', strategy: 'on_resume' })
  await api.post(`${path}/hibernate`)
  for (const [method, target, body] of [
    ['POST', `${path}/wake`, {}],
    ['POST', `${path}/checkpoints`, { name: 'another', kind: 'disk_only' }],
    ['GET', `${path}/files?path=/tmp/x`],
    ['PUT', `${path}/files?path=/tmp/x`, Buffer.from('text')],
    ['DELETE', `${path}/files?path=/tmp/x`],
    ['GET', `${path}/files/list?path=/tmp`],
    ['POST', `${path}/files/mkdir?path=/tmp/x`],
    ['PUT', upload, Buffer.from('text')],
    ['GET', download],
    ['POST', `${path}/exec/run`, { cmd: 'true' }],
    ['POST', `${path}/exec/run-async`, { cmd: 'true' }],
    ['POST', `${path}/exec`, { cmd: 'true' }],
    ['GET', `${path}/exec`],
    ['GET', `${path}/exec/${exec}/result`],
    ['POST', `${path}/exec/${exec}/kill`],
    ['POST', `${path}/pty`, {}],
    ['POST', `${path}/pty/${pty}/resize`, { cols: 80, rows: 24 }],
    ['DELETE', `${path}/pty/${pty}`],
  ] as const) {
    const answer = await api.send(method, target, { body })
    const shown = `${method} ${target}: ${answer.text}`
    assert.deepEqual([answer.status, answer.body.code, answer.body.exitCode], [422, 'patch_failed', 4], shown)
  }
  assert.equal((await api.get(path)).body.status, 'hibernated')
})

test('checkpoint: count starts many at once, each with its own result', async () => {
  const { id } = await checkpoint()
  const { status, body } = await world.api.post(`/api/sandboxes/from-checkpoint/${id}`, { count: 12, timeout: 10 })
  assert.equal(status, 201)
  const ids = body.sandboxes.map((item: { sandboxID: string }) => item.sandboxID)
  assert.equal(new Set(ids).size, 12)
  const { machines } = world
  const create = machines.create.bind(machines)
  let started = 0
  machines.create = async (spec) => {
    started++
    if (started % 2 === 0) throw new ServiceError('no_capacity', 'no room for this one')
    await create(spec)
  }
  try {
    const some = await world.api.post(`/api/sandboxes/from-checkpoint/${id}`, { count: 4 })
    assert.equal(some.status, 201)
    const results = some.body.sandboxes.map((item: { status?: string; code?: string }) => item.status ?? item.code)
    assert.deepEqual(results.toSorted(), ['no_capacity', 'no_capacity', 'running', 'running'])
  } finally {
    machines.create = create
  }
  for (const count of [0, 101, 1.5, '2']) {
    assert.equal((await world.api.post(`/api/sandboxes/from-checkpoint/${id}`, { count })).status, 400)
  }
})

test('checkpoint: patches of nothing, without a script, too large, or of a stranger are refused', async () => {
  const { api, stranger } = world
  const { id } = await checkpoint()
  const path = `/api/sandboxes/checkpoints/${id}/patches`
  for (const body of [{}, { script: '' }, { script: 5 }, { script: ' \n' }, { script: 'x', strategy: 'sometimes' }]) {
    const answer = await api.post(path, body)
    assert.deepEqual([answer.status, answer.body.code], [400, 'invalid_request'], JSON.stringify(body))
  }
  const large = await api.post(path, { script: `#${'x'.repeat(256 * 1024)}` })
  assert.deepEqual([large.status, large.body.code], [413, 'too_large'])
  assert.match(large.body.error, /script/)
  assert.equal((await api.post('/api/sandboxes/checkpoints/cp-unknown00000/patches', { script: 'x' })).status, 404)
  for (const [method, target, body] of [
    ['POST', path, { script: 'x' }],
    ['GET', path, undefined],
    ['POST', `/api/sandboxes/from-checkpoint/${id}`, {}],
    ['POST', `/api/sandboxes/from-checkpoint/${id}`, { count: 2 }],
  ] as const) {
    assert.equal((await stranger.send(method, target, { body })).status, 404, target)
  }
  assert.equal((await api.post('/api/sandboxes/from-checkpoint/cp-unknown00000', {})).status, 404)
  const secret = await api.post(`/api/sandboxes/from-checkpoint/${id}`, { secretStore: 'mine' })
  assert.deepEqual([secret.status, secret.body.code, secret.body.field], [400, 'invalid_request', 'secretStore'])
})

test('checkpoint: all of the organisation are listed, with what makes use of them, and are read, changed and deleted by id', async () => {
  const { api, stranger } = world
  const [one, two] = [await checkpoint('one'), await checkpoint('two')]
  const fork = (await api.post(`/api/sandboxes/from-checkpoint/${one.id}`, {})).body.sandboxID
  await api.delete(`/api/sandboxes/${one.sandboxId}`)
  const made = await api.post(`/api/sandboxes/${fork}/checkpoints`, {
    ...{ name: 'three', kind: 'disk_only', expiresInSeconds: 3600 },
  })
  await world.sandboxes.checkpoints.settled(world.orgId, made.body.id)
  const page = await api.get('/api/checkpoints?limit=2')
  const ids = (body: { id: string }[]) => body.map(({ id }) => id)
  assert.deepEqual(ids(page.body), [made.body.id, two.id])
  assert.match(page.body[0].expiresAt, /Z$/)
  assert.equal(page.body[1].expiresAt, undefined)
  const cursor = encodeURIComponent(page.headers['x-next-cursor'] as string)
  const [next] = (await api.get(`/api/checkpoints?limit=1&cursor=${cursor}`)).body
  assert.deepEqual([next.id, next.sandboxId, next.owner], [one.id, one.sandboxId, 'client'])
  assert.deepEqual(next.dependents, { sandboxes: 1, sessions: 0, images: 0, checkpoints: 1 })
  assert.deepEqual((await api.get(`/api/checkpoints/${one.id}`)).body, next)
  assert.deepEqual(ids((await api.get(`/api/checkpoints?sandbox=${fork}`)).body), [made.body.id])
  assert.deepEqual((await api.get('/api/checkpoints?owner=session')).body, [])
  assert.deepEqual((await stranger.get('/api/checkpoints')).body, [])
  for (const query of ['limit=0', 'limit=1001', 'owner=me', 'cursor=nonsense'])
    assert.equal((await api.get(`/api/checkpoints?${query}`)).status, 400, query)

  const path = `/api/checkpoints/${made.body.id}`
  const kept = await api.send('PATCH', path, { body: { expiresInSeconds: null } })
  assert.deepEqual([kept.status, kept.body.expiresAt], [200, undefined])
  const again = await api.send('PATCH', path, { body: { expiresInSeconds: 60 } })
  assert.ok(Date.parse(again.body.expiresAt) > Date.now() + 50_000)
  for (const body of [{}, { expiresInSeconds: 0 }, { expiresInSeconds: '60' }, { expiresInSeconds: 31_536_001 }]) {
    const answer = await api.send('PATCH', path, { body })
    assert.deepEqual([answer.status, answer.body.field], [400, 'expiresInSeconds'], JSON.stringify(body))
  }
  for (const [method, body] of [['GET'], ['PATCH', { expiresInSeconds: 60 }], ['DELETE']] as const)
    assert.equal((await stranger.send(method, path, { body })).status, 404, method)
  assert.equal((await api.delete(path)).status, 204)
  assert.equal((await api.delete(path)).status, 404)
  assert.equal((await api.get(path)).status, 404)
})

test('atoll sdk: lifetimes of sandboxes, forks and checkpoints are asked for and changed', async () => {
  const client = new Atoll({ url: world.origin, apiKey: world.api.key })
  const sandbox = await Sandbox.create({ client, ttlSeconds: 60, onIdle: 'stop', maxAgeSeconds: 3600 })
  const lifetimes = async (of: Sandbox) => {
    const { timeout, onIdle, maxAgeSeconds } = await of.info()
    return [timeout, onIdle, maxAgeSeconds]
  }
  assert.deepEqual(await lifetimes(sandbox), [60, 'stop', 3600])
  await sandbox.update({ ttlSeconds: 0, maxAgeSeconds: 0 })
  assert.deepEqual(await lifetimes(sandbox), [0, 'stop', 0])
  const one = await sandbox.checkpoint({ name: 'one', kind: 'disk_only', expiresInSeconds: 60 })
  const two = await sandbox.checkpoint({ name: 'two', kind: 'disk_only' })
  assert.equal((await one.setExpiry(null)).expiresAt, undefined)
  assert.ok((await two.setExpiry(60)).expiresAt)
  const fork = await two.fork({ onIdle: 'stop', maxAgeSeconds: 600 })
  assert.deepEqual(await lifetimes(fork), [300, 'stop', 600])
  const listed = await Array.fromAsync(client.checkpoints({ sandbox: sandbox.id, owner: 'client' }))
  assert.deepEqual(
    listed.map(({ id, dependents }) => [id, dependents.sandboxes]),
    [
      [two.id, 1],
      [one.id, 0],
    ],
  )
  await client.deleteCheckpoint(one.id)
  await two.delete()
  assert.deepEqual(await Array.fromAsync(client.checkpoints({ sandbox: sandbox.id })), [])
})
