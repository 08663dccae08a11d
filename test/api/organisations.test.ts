import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { ApiClient } from '../support/api-client.ts'
import { valuesOf } from '../support/database.ts'
import { previewHost, restoring, useWorld } from '../support/world.ts'

const world = useWorld()

/** An organisation of its own, with a key that may do all. */
async function tenant(): Promise<{ id: string; api: ApiClient; keyId: string }> {
  const made = await world.operator.post('/api/orgs', { name: 'tenant' })
  assert.equal(made.status, 201, made.text)
  const id = made.body.id as string
  const key = await world.operator.post(`/api/orgs/${id}/keys`, { name: 'first' })
  assert.equal(key.status, 201, key.text)
  return { id, api: new ApiClient(world.origin, key.body.key as string), keyId: key.body.id as string }
}

async function sandboxOf(api: ApiClient, body: object = {}): Promise<string> {
  const { status, body: sandbox, text } = await api.post('/api/sandboxes', body)
  assert.equal(status, 201, text)
  return sandbox.sandboxID as string
}

test('organisation: the operator makes, reads, bounds and lists them; no other key does', async () => {
  const { id, api } = await tenant()
  const changed = await world.operator.send('PATCH', `/api/orgs/${id}`, {
    body: { name: 'reef', limits: { runningSandboxesMax: 3 } },
  })
  assert.deepEqual([changed.status, changed.body.name, changed.body.limits], [200, 'reef', { runningSandboxesMax: 3 }])
  assert.equal(changed.body.effectiveLimits.runningSandboxesMax, 3)
  const bad = await world.operator.send('PATCH', `/api/orgs/${id}`, { body: { limits: { weight: 0 } } })
  assert.deepEqual([bad.status, bad.body.code, bad.body.field], [400, 'invalid_request', 'limits.weight'])
  const sandbox = await sandboxOf(api, { memoryMB: 2048 })
  await api.post(`/api/sandboxes/${await sandboxOf(api)}/hibernate`)
  const { usage } = (await world.operator.get(`/api/orgs/${id}`)).body
  const { runningSandboxes, memoryMB, cpuCount, sandboxes, keys } = usage
  assert.deepEqual([runningSandboxes, memoryMB, cpuCount, sandboxes, keys], [1, 2048, 1, 2, 1])
  await api.delete(`/api/sandboxes/${sandbox}`)
  assert.equal((await world.operator.get(`/api/orgs/${id}`)).body.usage.runningSandboxes, 0)
  const listed = await world.operator.get('/api/orgs')
  assert.ok(listed.body.some((one: { id: string }) => one.id === id))
  for (const path of ['/api/orgs', `/api/orgs/${id}`]) {
    const refused = await api.get(path)
    assert.deepEqual([refused.status, refused.body.code], [403, 'forbidden'], path)
  }
  const strange = await world.api.get(`/api/orgs/${id}/keys`)
  assert.equal(strange.status, 404, 'the keys of another organisation do not exist')
  assert.equal((await world.operator.get('/api/sandboxes')).status, 401, 'the operator key is of no organisation')
})

test('organisation: a suspended one is refused everywhere, rests, and goes on where it was', async () => {
  const { id, api } = await tenant()
  const sandbox = await sandboxOf(api)
  const asleep = await sandboxOf(api)
  assert.equal((await api.post(`/api/sandboxes/${asleep}/hibernate`)).status, 200)
  const signed = await api.post(`/api/sandboxes/${sandbox}/files/download-url`, { path: '/etc/hostname' })
  const { body: session } = await api.post('/v1/sessions', { prompt: 'x', user_id: 'ada' })
  const { body: access } = await api.post(`/v1/sessions/${session.id}/tokens`, { user_id: 'ada', scope: 'steer' })
  const context = await api.post('/api/images/contexts', { files: [] })
  const suspended = await world.operator.post(`/api/orgs/${id}/suspend`, { reason: 'the invoice is open' })
  assert.deepEqual([suspended.status, suspended.body.status], [200, 'suspended'])
  const refused = await api.get('/api/sandboxes')
  assert.deepEqual([refused.status, refused.body.code], [403, 'organisation_suspended'])
  assert.match(refused.body.error, /the invoice is open/)
  await world.reconciler.settled(id)
  assert.equal(world.machines.isRunning(sandbox), false)
  const preview = await world.api.raw('GET', '/', { host: `${sandbox}-p3000.${previewHost}`, key: null })
  assert.deepEqual([preview.status, preview.text.includes('organisation_suspended')], [403, true], preview.text)
  assert.equal(world.machines.isRunning(sandbox), false, 'a preview wakes nothing')
  for (const [method, url] of [
    ['GET', signed.body.url],
    ['PUT', context.body.uploadUrl],
    ['GET', `${world.origin}/v1/sessions/${session.id}?token=${access.token}`],
  ] as const) {
    const { pathname, search } = new URL(url as string)
    const answer = await world.api.raw(method, pathname + search, { key: null })
    const { code } = answer.body.error?.code === undefined ? answer.body : answer.body.error
    assert.deepEqual([answer.status, code], [403, 'organisation_suspended'], url as string)
  }
  assert.equal((await world.operator.post(`/api/orgs/${id}/keys`, {})).body.code, 'organisation_suspended')
  assert.equal((await world.api.get('/api/sandboxes')).status, 200, 'others go on')

  assert.equal((await world.operator.post(`/api/orgs/${id}/resume`)).body.status, 'active')
  assert.equal((await api.post(`/api/sandboxes/${sandbox}/wake`)).status, 200)
  const { body } = await api.get('/api/events?follow=false')
  const types = body.events.map(({ type }: { type: string }) => type)
  assert.ok(types.includes('organisation.suspended') && types.includes('organisation.resumed'), types.join())
})

test('organisation: a start under way when it is suspended ends refused, and nothing runs', async (t) => {
  const { id, api } = await tenant()
  const begun = Promise.withResolvers<void>()
  const held = Promise.withResolvers<void>()
  restoring(t, world.machines, 'create')
  const { create } = world.machines
  world.machines.create = async (spec) => {
    begun.resolve()
    await held.promise
    await create.call(world.machines, spec)
  }
  const start = api.post('/api/sandboxes', {}).catch(() => undefined)
  await begun.promise
  await world.operator.post(`/api/orgs/${id}/suspend`, {})
  held.resolve()
  await start
  await world.reconciler.settled(id)
  const { databaseUrl } = world.store
  assert.deepEqual(await valuesOf(databaseUrl, `select distinct status from sandboxes where org_id = '${id}'`), [
    'stopped',
  ])
})

test('organisation: its builds end when it is suspended, the detached ones too, and nothing of them is left', async () => {
  const { id, api } = await tenant()
  const image = { steps: [{ type: 'run', args: { commands: ['sleep 60'] } }] }
  const attached = api.post('/api/snapshots', { name: 'attached', image }).catch(() => undefined)
  const other = { steps: [{ type: 'run', args: { commands: ['sleep 61'] } }] }
  const detached = await api.post('/api/snapshots?async=1', { name: 'detached', image: other })
  assert.equal(detached.status, 202, detached.text)
  const building = `select count(*)::int from sandboxes where org_id = '${id}' and status = 'running'`
  await eventually(async () => (await valuesOf(world.store.databaseUrl, building))[0] === 2)
  await world.operator.post(`/api/orgs/${id}/suspend`, {})
  await attached
  await world.reconciler.settled(id)
  assert.deepEqual(await valuesOf(world.store.databaseUrl, building), [0])
  await world.operator.post(`/api/orgs/${id}/resume`)
  assert.deepEqual(await valuesOf(world.store.databaseUrl, `select id from images where org_id = '${id}'`), [])
})

test('organisation: its open streams and sockets end within a second when it is suspended', async (t) => {
  const { id, api } = await tenant()
  const sandbox = await sandboxOf(api)
  const served: Socket[] = []
  const accept = (accepted: unknown) => void served.push((accepted as { socket: Socket }).socket)
  subscribe('net.server.socket', accept)
  const socket = connect(world.port, '127.0.0.1')
  socket.write(
    `GET /api/events?follow=true HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nx-api-key: ${api.key}\r\n\r\n`,
  )
  await once(socket, 'data')
  const shell = await api.post(`/api/sandboxes/${sandbox}/exec`, { cmd: 'sleep 1000' })
  assert.ok(shell.status < 300, shell.text)
  const ws = new WebSocket(
    `${world.origin.replace('http', 'ws')}/api/sandboxes/${sandbox}/exec/${shell.body.sessionID}`,
    {
      headers: { 'x-api-key': api.key },
    },
  )
  await once(ws, 'open')
  unsubscribe('net.server.socket', accept)
  const ends = Promise.all([once(socket, 'close'), once(ws, 'close')])
  // The second is counted by a timer beside the server's own, which a busy machine delays as well.
  const { promise: afterASecond, resolve } = Promise.withResolvers<boolean[]>()
  t.after(
    world.organisations.subscribe((event) => {
      if (event.type !== 'suspended' || event.orgId !== id) return
      setTimeout(() => resolve(served.map(({ destroyed }) => destroyed)), 1000)
    }),
  )
  await world.operator.post(`/api/orgs/${id}/suspend`, {})
  socket.resume()
  await ends
  assert.deepEqual(new Set(await afterASecond), new Set([true]))
})

test('organisation: a deleted one leaves no row in any table that names it, and no machine', async () => {
  const { id, api } = await tenant()
  await api.post('/api/volumes', { name: 'data', sizeMB: 64 })
  await api.post('/api/volumes/data/snapshots', { name: 'one' })
  const sandbox = await sandboxOf(api, { volumes: [{ name: 'data', path: '/data' }], tags: { team: 'reef' } })
  const stopped = await sandboxOf(api)
  await api.delete(`/api/sandboxes/${stopped}`)
  await api.post(`/api/sandboxes/${sandbox}/preview`, { port: 3000 })
  const checkpoint = await api.post(`/api/sandboxes/${sandbox}/checkpoints`, { name: 'first', kind: 'disk_only' })
  const patches = `/api/sandboxes/checkpoints/${checkpoint.body.id}/patches`
  assert.equal((await api.post(patches, { script: 'true' })).status, 201)
  await api.post('/api/volumes', { name: 'more', sizeMB: 64 }, { headers: { 'idempotency-key': 'one' } })
  await api.put('/api/registries/ghcr.io', { username: 'ada', password: 'secret' })
  await api.post('/api/images/contexts', { files: [] })
  const hook = await api.post('/api/webhooks', { url: 'https://example.com/hook' })
  assert.equal(hook.status, 201, hook.text)
  await api.post(`/api/webhooks/${hook.body.id}/test`)
  const image = { steps: [{ type: 'run', args: { commands: ['echo built'] } }] }
  assert.equal((await api.post('/api/snapshots', { name: 'tools', image })).status, 201)
  const deleted = await world.operator.delete(`/api/orgs/${id}`)
  assert.deepEqual([deleted.status, deleted.body.status], [202, 'deleting'])
  assert.equal((await api.get('/api/sandboxes')).status >= 401, true)
  await world.reconciler.settled(id)
  assert.equal((await world.operator.get(`/api/orgs/${id}`)).status, 404)
  assert.equal((await api.get('/api/whoami')).status, 401)
  assert.deepEqual(await tablesWithRowsOf(id), [])
  const mentions = world.logs.filter(({ level, facts }) => level === 'warn' && JSON.stringify(facts).includes(id))
  assert.deepEqual(mentions, [], 'nothing was tried twice')
  assert.equal(world.machines.isRunning(sandbox), false)
  assert.equal(world.machines.checkpoints.size, 0)
  const folders = await readdir(world.dataDir, { recursive: true })
  assert.deepEqual(
    folders.filter((path) => path.includes(id)),
    [],
  )
})

test('organisation: a deletion that a fault cuts off goes on', async (t) => {
  const { id, api } = await tenant()
  await sandboxOf(api)
  const { deleteOrganisation } = world.store.organisations
  let faults = 0
  t.after(() => Object.assign(world.store.organisations, { deleteOrganisation }))
  world.store.organisations.deleteOrganisation = async (orgId) => {
    if ((faults += 1) <= 2) throw new Error('the database is away')
    await deleteOrganisation(orgId)
  }
  await world.operator.delete(`/api/orgs/${id}`)
  await world.reconciler.settled(id)
  assert.equal(faults, 3)
  assert.deepEqual(await tablesWithRowsOf(id), [])
})

test('organisation: one is deleted while its sandboxes start and hibernate', async (t) => {
  const { id, api } = await tenant()
  const running = [...world.machines.machines.keys()]
  const sleeper = await sandboxOf(api)
  const begun = Promise.withResolvers<void>()
  const held = Promise.withResolvers<void>()
  restoring(t, world.machines, 'create', 'hibernate')
  const { create, hibernate } = world.machines
  let waiting = 0
  const wait = async () => {
    if ((waiting += 1) === 2) begun.resolve()
    await held.promise
  }
  world.machines.create = async (spec) => {
    await wait()
    await create.call(world.machines, spec)
  }
  world.machines.hibernate = async (sandboxId) => {
    await wait()
    return await hibernate.call(world.machines, sandboxId)
  }
  const calls = [api.post('/api/sandboxes', {}), api.post(`/api/sandboxes/${sleeper}/hibernate`)]
  const settled = Promise.allSettled(calls)
  await begun.promise
  await world.operator.delete(`/api/orgs/${id}`)
  held.resolve()
  await settled
  await world.reconciler.settled(id)
  assert.deepEqual(await tablesWithRowsOf(id), [])
  assert.deepEqual([...world.machines.machines.keys()], running, 'no machine is left')
})

test('organisation: the default one cannot be deleted, and one that is being deleted does not change', async () => {
  const all = await world.operator.get('/api/orgs')
  const { id } = all.body.find((one: { isDefault: boolean }) => one.isDefault) as { id: string }
  const refused = await world.operator.delete(`/api/orgs/${id}`)
  assert.deepEqual([refused.status, refused.body.code], [409, 'conflict'])
})

/** The tables that still name an organisation, the audit left out. */
async function tablesWithRowsOf(orgId: string): Promise<unknown[]> {
  const { databaseUrl } = world.store
  const named = await valuesOf(
    databaseUrl,
    `select table_name from information_schema.columns
      where table_schema = current_schema() and column_name = 'org_id' and table_name not like 'audit%'`,
  )
  const looks = named.map(
    (table) => `select '${String(table)}' where exists (select from ${String(table)} where org_id = $1)`,
  )
  const organisations = `select 'organisations' where exists (select from organisations where id = $1)`
  assert.ok(looks.length > 10)
  return await valuesOf(databaseUrl, [...looks, organisations].join(' union all '), [orgId])
}
