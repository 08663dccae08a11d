import assert from 'node:assert/strict'
import { test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

test('sandbox: a sandbox is created, read, listed and deleted, with the shapes of the reference', async () => {
  const { api } = world
  const created = await api.post('/api/sandboxes', {
    timeout: 60,
    memoryMB: 512,
    metadata: { team: 'a' },
    envs: { A: 'b' },
  })
  assert.equal(created.status, 201)
  const { sandboxID: id } = created.body
  assert.match(id, /^sb-[a-z0-9]{12,}$/)
  assert.deepEqual(created.body, {
    sandboxID: id,
    status: 'running',
    region: 'local',
    workerID: 'worker-1',
    sandboxDomain: 'preview.test',
    memoryMB: 512,
    cpuCount: 1,
  })
  const { body } = await api.get(`/api/sandboxes/${id}`)
  assert.deepEqual([body.templateID, body.timeout, body.metadata, body.tags], ['base', 60, { team: 'a' }, {}])
  assert.match(body.startedAt, /:\d\dZ$/)
  assert.match(body.endAt, /:\d\dZ$/)
  const listed = await api.get('/api/sandboxes')
  assert.ok(listed.body.some((item: { sandboxID: string }) => item.sandboxID === id))

  assert.equal((await api.delete(`/api/sandboxes/${id}`)).status, 204)
  assert.equal((await api.delete(`/api/sandboxes/${id}`)).status, 204)
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.status, 'stopped')
  const run = await api.post(`/api/sandboxes/${id}/exec/run`, { cmd: 'true' })
  assert.deepEqual([run.status, run.body.code], [410, 'sandbox_stopped'])
})

test('sandbox: the list comes in pages, newest first', async () => {
  const { api } = world
  const ids = [await world.sandbox(), await world.sandbox(), await world.sandbox()]
  const first = await api.get('/api/sandboxes?limit=2&status=running')
  assert.deepEqual(
    first.body.map((item: { sandboxID: string }) => item.sandboxID),
    [ids[2], ids[1]],
  )
  const cursor = first.headers['x-next-cursor'] as string
  const next = await api.get(`/api/sandboxes?limit=2&cursor=${encodeURIComponent(cursor)}`)
  assert.equal(next.body[0].sandboxID, ids[0])
  for (const query of ['limit=0', 'limit=x', 'limit=1001', 'status=asleep', 'cursor=nonsense']) {
    const { status, body } = await api.get(`/api/sandboxes?${query}`)
    assert.deepEqual([status, body.code], [400, 'invalid_request'], query)
  }
})

test('sandbox: the timeout is required, whole and bounded, and the answer is an empty object', async () => {
  const { api } = world
  const id = await world.sandbox()
  const set = await api.post(`/api/sandboxes/${id}/timeout`, { timeout: 90 })
  assert.deepEqual([set.status, set.body], [200, {}])
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.timeout, 90)
  await api.post(`/api/sandboxes/${id}/timeout`, { timeout: 0 })
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.endAt, null)
  for (const timeout of [undefined, -1, 1.5, '60', null, 2_592_001]) {
    const { status, body } = await api.post(`/api/sandboxes/${id}/timeout`, { timeout })
    assert.equal(status, 400, String(timeout))
    assert.equal(body.field, 'timeout')
    assert.match(body.error, /^timeout: /)
  }
})

test('sandbox: what ends it is given, told and changed, of a fork its own', async () => {
  const { api } = world
  const id = await world.sandbox({ timeout: 60, onIdle: 'stop', maxAgeSeconds: 3600 })
  const plain = await world.sandbox()
  const lifetimes = async (of: string) => {
    const { timeout, onIdle, maxAgeSeconds, expiresAt } = (await api.get(`/api/sandboxes/${of}`)).body
    return [
      timeout,
      onIdle,
      maxAgeSeconds,
      expiresAt === null ? null : Math.round((Date.parse(expiresAt) - Date.now()) / 60_000),
    ]
  }
  assert.deepEqual(await lifetimes(id), [60, 'stop', 3600, 60])
  assert.deepEqual(await lifetimes(plain), [300, 'hibernate', 0, null])
  const changed = await api.send('PATCH', `/api/sandboxes/${id}`, {
    body: { timeout: 0, onIdle: 'hibernate', maxAgeSeconds: 7200 },
  })
  assert.deepEqual([changed.status, changed.body.sandboxID, changed.body.endAt], [200, id, null])
  assert.deepEqual(await lifetimes(id), [0, 'hibernate', 7200, 120])
  await api.send('PATCH', `/api/sandboxes/${id}`, { body: { onIdle: 'stop' } })
  assert.deepEqual(await lifetimes(id), [0, 'stop', 7200, 120])
  const saved = await api.post(`/api/sandboxes/${id}/checkpoints`, { name: 'one', kind: 'disk_only' })
  const [fork, own] = [
    await api.post(`/api/sandboxes/from-checkpoint/${saved.body.id}`, {}),
    await api.post(`/api/sandboxes/from-checkpoint/${saved.body.id}`, { onIdle: 'stop', maxAgeSeconds: 600 }),
  ]
  assert.deepEqual(await lifetimes(fork.body.sandboxID), [300, 'hibernate', 0, null])
  assert.deepEqual(await lifetimes(own.body.sandboxID), [300, 'stop', 600, 10])
  for (const [body, field] of [
    [{ onIdle: 'sleep' }, 'onIdle'],
    [{ maxAgeSeconds: -1 }, 'maxAgeSeconds'],
    [{ maxAgeSeconds: 1.5 }, 'maxAgeSeconds'],
    [{ maxAgeSeconds: 31_536_001 }, 'maxAgeSeconds'],
    [{ timeout: '60' }, 'timeout'],
  ] as const) {
    for (const answer of [
      await api.send('PATCH', `/api/sandboxes/${id}`, { body }),
      await api.post('/api/sandboxes', body),
      await api.post(`/api/sandboxes/from-checkpoint/${saved.body.id}`, body),
    ])
      assert.deepEqual([answer.status, answer.body.field], [400, field], JSON.stringify(body))
  }
  const patch = (client: typeof api) => client.send('PATCH', `/api/sandboxes/${id}`, { body: { onIdle: 'stop' } })
  assert.equal((await patch(world.stranger)).status, 404)
  await api.send('PATCH', `/api/sandboxes/${id}`, { body: { timeout: 1 } })
  await eventually(async () => (await api.get(`/api/sandboxes/${id}`)).body.status === 'stopped')
  const { body } = await api.get(`/api/sandboxes/${id}`)
  assert.deepEqual([body.reason, body.expiresAt], ['idle', null])
  assert.match((await patch(api)).body.error, /is stopped: it was idle for 1 seconds/)
})

test('sandbox: wrong types and values name their field', async () => {
  const cases: [body: object, field: string][] = [
    [{ timeout: 'long' }, 'timeout'],
    [{ memoryMB: 0 }, 'memoryMB'],
    [{ memoryMB: 1.5 }, 'memoryMB'],
    [{ cpuCount: '2' }, 'cpuCount'],
    [{ envs: { A: 1 } }, 'envs.A'],
    [{ envs: [] }, 'envs'],
    [{ envs: { '1x': 'y' } }, 'envs'],
    [{ metadata: { a: {} } }, 'metadata.a'],
    [{ templateID: 5 }, 'templateID'],
    [{ previewAuth: { scheme: 'basic' } }, 'previewAuth.scheme'],
    [{ previewAuth: { token: 'short' } }, 'previewAuth.token'],
  ]
  for (const [body, field] of cases) {
    const answer = await world.api.post('/api/sandboxes', body)
    assert.deepEqual(
      [answer.status, answer.body.code, answer.body.field],
      [400, 'invalid_request', field],
      JSON.stringify(body),
    )
  }
  assert.equal((await world.api.post('/api/sandboxes', { templateID: 'none-such' })).status, 404)
})

test('sandbox: fields of a client that has nothing to say are empty, and a secret store is one that there is', async () => {
  const id = await world.sandbox({
    image: null,
    snapshot: '',
    webhooks: [],
    secrets: {},
    egressAllowlist: [],
  })
  assert.match(id, /^sb-/)
  for (const secretStore of [['x'], 'none-such']) {
    const { status, body } = await world.api.post('/api/sandboxes', { secretStore })
    assert.deepEqual([status, body.code, body.field], [400, 'invalid_request', 'secretStore'])
  }
})

test('sandbox: endpoints that are not built answer 501', async () => {
  const { api } = world
  const calls: [string, string][] = [
    ['GET', '/api/sandboxes/sb-x/mounts'],
    ['POST', '/api/sandboxes/sb-x/agent'],
  ]
  for (const [method, path] of calls) {
    const { status, body } = await api.send(method, path)
    assert.deepEqual([status, body.code], [501, 'not_implemented'], path)
  }
  const { body } = await api.post('/api/sandboxes/sb-x/mounts', { path: '/mnt', remote: 'r:' })
  assert.match(body.error, /^mounts: not offered: .*FUSE/)
})

test('sandbox: hibernate and wake answer as the SDK expects, also with a JSON content type and no body', async () => {
  const { api } = world
  const id = await world.sandbox()
  const headers = { 'content-type': 'application/json' }
  const slept = await api.post(`/api/sandboxes/${id}/hibernate`, undefined, { headers })
  assert.deepEqual(slept.body, { sandboxID: id, status: 'hibernated', sizeBytes: 4096 })
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.status, 'hibernated')
  const woken = await api.post(`/api/sandboxes/${id}/wake`, { timeout: 77 })
  assert.deepEqual([woken.status, woken.body.status, woken.body.sandboxID], [200, 'running', id])
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.timeout, 77)
  await api.post(`/api/sandboxes/${id}/hibernate`)
  const run = await api.post(`/api/sandboxes/${id}/exec/run`, { cmd: 'echo', args: ['awake'] })
  assert.deepEqual(run.body, { exitCode: 0, stdout: 'awake\n', stderr: '' })
})

test('sandbox: tags are replaced as a whole and counted by key', async () => {
  const { api } = world
  const id = await world.sandbox()
  assert.deepEqual((await api.get(`/api/sandboxes/${id}/tags`)).body, { tags: {}, tagsLastUpdatedAt: null })
  const put = await api.put(`/api/sandboxes/${id}/tags`, { team: 'red', 'a.b:c-d_e': '' })
  assert.deepEqual([put.status, put.body.tags], [200, { team: 'red', 'a.b:c-d_e': '' }])
  assert.ok(put.body.tagsLastUpdatedAt)
  assert.deepEqual((await api.get(`/api/sandboxes/${id}/tags`)).body, put.body)
  const { keys } = (await api.get('/api/tags')).body
  assert.deepEqual(
    keys.find(({ key }: { key: string }) => key === 'team'),
    { key: 'team', sandboxCount: 1, valueCount: 1 },
  )
  assert.ok(keys.some(({ key }: { key: string }) => key === 'a.b:c-d_e'))
  const tooMany = Object.fromEntries(Array.from({ length: 51 }, (_, index) => [`k${index}`, 'v']))
  for (const tags of [{ 'a b': 'x' }, { a: 5 }, { '': 'x' }, { a: 'x'.repeat(257) }, tooMany]) {
    assert.equal((await api.put(`/api/sandboxes/${id}/tags`, tags)).status, 400)
  }
  assert.deepEqual((await api.get('/api/sandboxes/sb-unknown00000/tags')).status, 404)
})

test('sandbox: another organisation sees nothing of a sandbox: every call answers 404', async () => {
  const { stranger } = world
  const id = await world.sandbox()
  const calls: [string, string, unknown?][] = [
    ['GET', ''],
    ['DELETE', ''],
    ['POST', '/timeout', { timeout: 1 }],
    ['POST', '/hibernate'],
    ['POST', '/wake'],
    ['GET', '/tags'],
    ['PUT', '/tags', {}],
    ['POST', '/checkpoints', { name: 'x' }],
    ['GET', '/checkpoints'],
    ['POST', '/preview', { port: 80 }],
    ['GET', '/preview'],
    ['DELETE', '/preview/80'],
    ['POST', '/preview/rotate'],
    ['GET', '/files?path=/etc/hostname'],
    ['PUT', '/files?path=/tmp/x'],
    ['GET', '/files/list?path=/'],
    ['POST', '/files/mkdir?path=/tmp/x'],
    ['DELETE', '/files?path=/tmp/x'],
    ['POST', '/files/upload-url', { path: '/x' }],
    ['POST', '/files/download-url', { path: '/x' }],
    ['POST', '/exec/run', { cmd: 'true' }],
    ['POST', '/exec/run-async', { cmd: 'true' }],
    ['POST', '/exec', { cmd: 'true' }],
    ['GET', '/exec'],
    ['POST', '/pty', {}],
  ]
  for (const [method, path, body] of calls) {
    const answer = await stranger.send(method, `/api/sandboxes/${id}${path}`, { body })
    assert.deepEqual([answer.status, answer.body.code], [404, 'not_found'], `${method} ${path}`)
  }
  assert.deepEqual((await stranger.get('/api/sandboxes')).body, [])
  assert.equal((await world.api.get(`/api/sandboxes/${id}`)).body.status, 'running')
})

const calls: [call: string, body: object][] = [
  ['reboot', {}],
  ['power-cycle', {}],
  ['scale', { memoryMB: 2048 }],
]

test('machine: a reboot and a power-cycle end all processes, and the sandbox runs on under its id', async () => {
  const { api } = world
  for (const call of ['reboot', 'power-cycle']) {
    const id = await world.sandbox()
    const path = `/api/sandboxes/${id}`
    const { body } = await api.post(`${path}/exec`, { cmd: 'sleep 60' })
    const again = await api.post(`${path}/${call}`)
    assert.deepEqual([again.status, again.body], [200, {}])
    assert.deepEqual((await api.get(`${path}/exec`)).body, [])
    assert.equal((await api.get(`${path}/exec/${body.sessionID}/result`)).status, 404)
    assert.equal((await api.get(path)).body.status, 'running')
    await api.post(`${path}/hibernate`)
    assert.equal((await api.post(`${path}/${call}`)).status, 200, 'a hibernated one is woken by it')
    assert.equal((await api.get(path)).body.status, 'running')
  }
})

test('machine: unknown, foreign and stopped sandboxes are refused', async () => {
  const { api, stranger } = world
  const id = await world.sandbox()
  for (const [call, body] of calls) {
    assert.equal((await api.post(`/api/sandboxes/sb-unknown00000/${call}`, body)).status, 404)
    assert.equal((await stranger.post(`/api/sandboxes/${id}/${call}`, body)).status, 404)
  }
  await api.delete(`/api/sandboxes/${id}`)
  for (const [call, body] of calls) {
    const { status, body: error } = await api.post(`/api/sandboxes/${id}/${call}`, body)
    assert.deepEqual([status, error.code], [410, 'sandbox_stopped'], call)
  }
})
