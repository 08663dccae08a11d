import assert from 'node:assert/strict'
import { test } from 'node:test'
import { useWorld } from '../support/world.ts'

const world = useWorld({ sandboxLimits: { volumesPerSandboxMax: 3, volumesMax: 12 } })

let made = 0

async function volume(body: object = {}): Promise<string> {
  const name = `volume-${(made += 1)}`
  const { status, text } = await world.api.post('/api/volumes', { name, sizeMB: 64, ...body })
  assert.equal(status, 201, text)
  return name
}

test('volume: it is made, read, listed, mounted and deleted', async () => {
  const { api } = world
  const first = await api.post('/api/volumes', { name: 'data' })
  assert.deepEqual([first.status, first.body.name, first.body.sizeMB], [201, 'data', 10_240])
  assert.match(first.body.id, /^vol-/)
  const again = await api.post('/api/volumes', { name: 'data' })
  assert.deepEqual([again.status, again.body.code], [409, 'conflict'])
  const volumes = [{ name: 'data', path: '/data' }]
  const id = await world.sandbox({ volumes })
  const mounted = [{ name: 'data', path: '/data', readOnly: false }]
  assert.deepEqual((await api.get(`/api/sandboxes/${id}`)).body.volumes, mounted)
  assert.deepEqual(
    (await api.get('/api/sandboxes')).body.find((one: { sandboxID: string }) => one.sandboxID === id).volumes,
    mounted,
  )
  const read = await api.get('/api/volumes/data')
  assert.deepEqual(read.body, {
    ...first.body,
    usedBytes: 4096,
    generation: 7,
    mountedBy: [{ sandboxID: id, path: '/data', readOnly: false }],
  })
  assert.deepEqual((await api.get('/api/volumes')).body, [first.body])
  const second = await api.post('/api/sandboxes', { volumes })
  assert.deepEqual([second.status, second.body.code], [409, 'conflict'])
  assert.match(second.body.error, new RegExp(`${id} writes volume data`))
  const held = await api.delete('/api/volumes/data')
  assert.deepEqual([held.status, held.body.code], [409, 'conflict'])
  assert.match(held.body.error, new RegExp(id))
  await api.delete(`/api/sandboxes/${id}`)
  assert.equal((await api.delete('/api/volumes/data')).status, 204)
  assert.equal((await api.delete('/api/volumes/data')).status, 404)
})

test('volume: snapshots are made, listed, cloned and deleted', async () => {
  const { api } = world
  const name = await volume()
  const path = `/api/volumes/${name}/snapshots`
  const snapshot = await api.post(path, { name: 'then' })
  assert.deepEqual([snapshot.status, snapshot.body.name, snapshot.body.sizeMB], [201, 'then', 64])
  assert.equal((await api.post(path, { name: 'then' })).status, 409)
  assert.deepEqual((await api.get(path)).body, [snapshot.body])
  const clone = await volume({ sizeMB: undefined, from: `${name}@then` })
  const { body } = await api.get(`/api/volumes/${clone}`)
  assert.deepEqual([body.from, body.sizeMB], [`${name}@then`, 64])
  assert.equal((await api.delete(`/api/volumes/${name}`)).status, 409)
  assert.equal((await api.delete(`${path}/then`)).status, 204)
  assert.equal((await api.delete(`${path}/then`)).status, 404)
  for (const one of [name, clone]) assert.equal((await api.delete(`/api/volumes/${one}`)).status, 204)
})

test('volume: bad input is refused by field', async () => {
  const { api } = world
  const name = await volume()
  const bodies = [
    [{}, 'name'],
    [{ name: 'Data' }, 'name'],
    [{ name: 'a@b' }, 'name'],
    [{ name: 'a\0' }, 'name'],
    [{ name: 5 }, 'name'],
    [{ name: 'x', sizeMB: 0 }, 'sizeMB'],
    [{ name: 'x', sizeMB: 1.5 }, 'sizeMB'],
    [{ name: 'x', sizeMB: 15 }, 'sizeMB'],
    [{ name: 'x', sizeMB: 2 ** 21 }, 'sizeMB'],
    [{ name: 'x', from: '' }, 'from'],
    [{ name: 'x', from: name, sizeMB: 63 }, 'sizeMB'],
  ] as const
  for (const [body, field] of bodies) {
    const { status, body: answer } = await api.post('/api/volumes', body)
    assert.deepEqual([status, answer.field], [400, field], JSON.stringify(body))
  }
  const unknown = await api.post('/api/volumes', { name: 'x', from: 'none' })
  assert.deepEqual([unknown.status, unknown.body.code], [404, 'not_found'])
  const mounts = [
    [[{ name, path: 'data' }], 'volumes.0.path'],
    [[{ name, path: '/' }], 'volumes.0.path'],
    [[{ name, path: '/a/../b' }], 'volumes.0.path'],
    [[{ name, path: '/a\0' }], 'volumes.0.path'],
    [[{ name, path: '/proc/x' }], 'volumes.0.path'],
    [[{ name, path: '/.atoll' }], 'volumes.0.path'],
    [[{ name }], 'volumes.0.path'],
    [[{ path: '/a' }], 'volumes.0.name'],
    [[{ name, path: '/a', readOnly: 'no' }], 'volumes.0.readOnly'],
    [
      [
        { name, path: '/a' },
        { name: 'other', path: '/a/b' },
      ],
      'volumes.1.path',
    ],
    [
      [
        { name, path: '/a' },
        { name, path: '/b' },
      ],
      'volumes.1.name',
    ],
    [Array.from({ length: 4 }, (_, index) => ({ name: `n${index}`, path: `/${index}` })), 'volumes'],
    ['all', 'volumes'],
  ] as const
  for (const [volumes, field] of mounts) {
    const { status, body } = await api.post('/api/sandboxes', { volumes })
    assert.deepEqual([status, body.field], [400, field], JSON.stringify(volumes))
  }
  const missing = await api.post('/api/sandboxes', { volumes: [{ name: 'none', path: '/a' }] })
  assert.deepEqual([missing.status, missing.body.code, missing.body.field], [404, 'not_found', 'volumes.0.name'])
  assert.equal((await api.delete(`/api/volumes/${name}`)).status, 204)
})

test('volume: those of an organisation do not exist for a stranger', async () => {
  const { api, stranger } = world
  const name = await volume()
  await api.post(`/api/volumes/${name}/snapshots`, { name: 'then' })
  const calls = [
    stranger.get(`/api/volumes/${name}`),
    stranger.delete(`/api/volumes/${name}`),
    stranger.get(`/api/volumes/${name}/snapshots`),
    stranger.post(`/api/volumes/${name}/snapshots`, { name: 'x' }),
    stranger.delete(`/api/volumes/${name}/snapshots/then`),
    stranger.post('/api/volumes', { name: 'x', from: name }),
    stranger.post('/api/sandboxes', { volumes: [{ name, path: '/a', readOnly: true }] }),
  ]
  for (const { status } of await Promise.all(calls)) assert.equal(status, 404)
  assert.deepEqual((await stranger.get('/api/volumes')).body, [])
  assert.equal((await stranger.post('/api/volumes', { name })).status, 201, 'names are their own')
  await api.delete(`/api/volumes/${name}/snapshots/then`)
  assert.equal((await api.delete(`/api/volumes/${name}`)).status, 204)
})

test('volume: a checkpoint says which it had, and a fork of a writer is refused until it gets another', async () => {
  const { api } = world
  const name = await volume()
  const source = await world.sandbox({ volumes: [{ name, path: '/a' }] })
  const { body } = await api.post(`/api/sandboxes/${source}/checkpoints`, { name: 'c', kind: 'disk_only' })
  assert.deepEqual(body.volumes, [{ name, path: '/a', readOnly: false }])
  await world.sandboxes.checkpoints.settled(world.orgId, body.id)
  const [listed] = (await api.get(`/api/sandboxes/${source}/checkpoints`)).body
  assert.deepEqual(listed.volumes, [{ name, path: '/a', readOnly: false, generation: 7 }])
  const path = `/api/sandboxes/from-checkpoint/${body.id}`
  const refused = await api.post(path)
  assert.deepEqual([refused.status, refused.body.code], [409, 'conflict'])
  const clone = await volume({ from: name })
  const fork = await api.post(path, { volumes: [{ name: clone, path: '/a' }] })
  assert.equal(fork.status, 201, fork.text)
  for (const id of [source, fork.body.sandboxID]) await api.delete(`/api/sandboxes/${id}`)
  for (const one of [name, clone]) assert.equal((await api.delete(`/api/volumes/${one}`)).status, 204)
})
