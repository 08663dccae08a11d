import assert from 'node:assert/strict'
import { get } from 'node:http'
import { test } from 'node:test'
import type { FollowedSample } from '../../src/sandbox/index.ts'
import { restoring, useWorld } from '../support/world.ts'

const world = useWorld({ limits: { eventStreamsPerOrganisationMax: 2 } })

const usage = {
  cpuUs: 7,
  memoryBytes: 1000,
  diskBytes: 5000,
  networkReceivedBytes: 10,
  networkSentBytes: 20,
  processCount: 3,
}

async function metrics(id: string, api = world.api) {
  return await api.get(`/api/sandboxes/${id}/metrics`)
}

test('metrics: a running sandbox tells what it uses and may use', async () => {
  const id = await world.sandbox({ timeout: 0, memoryMB: 512, diskMB: 256 })
  world.machines.usages.set(id, usage)
  const { status, body } = await metrics(id)
  assert.equal(status, 200)
  const { at, ...now } = body.now as { at: string }
  assert.match(at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
  assert.deepEqual(now, {
    cpuPercent: 0,
    cpuCount: 1,
    memoryBytes: 1000,
    memoryLimitBytes: 512 * 2 ** 20,
    diskBytes: 5000,
    diskLimitBytes: 256 * 2 ** 20,
    networkReceivedBytes: 10,
    networkSentBytes: 20,
    processCount: 3,
  })
  assert.deepEqual(body.samples, [])
  world.machines.usages.set(id, { ...usage, diskBytes: undefined })
  assert.equal((await metrics(id)).body.now.diskBytes, null)
})

test('metrics: a hibernated sandbox has none now and is not woken; a stopped one is as when it is read', async () => {
  const id = await world.sandbox({ timeout: 0 })
  world.machines.usages.set(id, usage)
  await world.api.post(`/api/sandboxes/${id}/hibernate`)
  assert.deepEqual((await metrics(id)).body, { now: null, samples: [] })
  assert.equal((await world.api.get(`/api/sandboxes/${id}`)).body.status, 'hibernated')
  await world.api.delete(`/api/sandboxes/${id}`)
  const stopped = await metrics(id)
  assert.deepEqual([stopped.status, stopped.body], [200, { now: null, samples: [] }])
  assert.equal((await world.api.get(`/api/sandboxes/${id}`)).status, stopped.status)
})

test('metrics: the call is no activity, and others do not find the sandbox', async () => {
  const id = await world.sandbox({ timeout: 300 })
  const before = (await world.api.get(`/api/sandboxes/${id}`)).body.endAt as string
  const until = Date.now() + 1100
  while (Date.now() < until) await metrics(id)
  assert.ok(before !== undefined)
  assert.equal((await world.api.get(`/api/sandboxes/${id}`)).body.endAt, before)
  assert.equal((await metrics(id, world.stranger)).status, 404)
  assert.equal((await metrics('sb-0000000000000000')).status, 404)
})

/** The head of a stream, and its text until it ends or `isEnough`. */
async function stream(
  query: string,
  headers: Record<string, string>,
  isEnough: (text: string) => boolean = () => false,
) {
  return await new Promise<{ status: number; type: string; text: string }>((resolve, reject) => {
    const asked = get(`${world.origin}/api/metrics/stream?${query}`, { headers }, (response) => {
      let text = ''
      const done = () => {
        asked.destroy()
        resolve({ status: response.statusCode ?? 0, type: response.headers['content-type'] ?? '', text })
      }
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        text += chunk
        if (isEnough(text)) done()
      })
      response.on('end', done)
      response.on('error', done)
    })
    asked.on('error', reject)
  })
}

test('metrics: the stream tells each sample as an event, of the sandboxes that were asked for', async (t) => {
  const { usage: follower } = world.sandboxes
  restoring(t, follower, 'follow')
  const asked: unknown[] = []
  follower.follow = async function* (orgId, ids, { signal, reach }): AsyncGenerator<FollowedSample[]> {
    asked.push([orgId, ids, reach])
    const sample = { at: new Date('2026-01-15T10:30:00.123Z'), cpuPercent: 1.5, memoryBytes: 2, memoryLimitBytes: 3 }
    yield ids.map((sandboxId) => ({ sandboxId, ...sample }))
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
  }
  const { body: bound } = await world.api.post('/api/keys', { namePrefix: 'ci-' })
  for (const [key, reach] of [
    [world.api.key, undefined],
    [bound.key as string, { namePrefix: 'ci-', keyId: bound.id as string }],
  ] as const) {
    const seen = await stream(
      'sandbox=sb-1&sandbox=sb-2',
      { 'x-api-key': key },
      (text) => text.split('data:').length > 2,
    )
    assert.deepEqual([seen.status, seen.type], [200, 'text/event-stream; charset=utf-8'])
    const events = seen.text.split('\n\n').filter((event) => event.startsWith('data: '))
    assert.deepEqual(
      events.map((event) => JSON.parse(event.slice(6)) as unknown),
      ['sb-1', 'sb-2'].map((sandboxId) => ({
        ...{ sandboxId, at: '2026-01-15T10:30:00.123Z', cpuPercent: 1.5, memoryBytes: 2, memoryLimitBytes: 3 },
      })),
    )
    assert.deepEqual(asked.pop(), [world.orgId, ['sb-1', 'sb-2'], reach])
  }
})

test('metrics: strange sandboxes have no events, and a stream wakes nothing', async () => {
  const theirs = await world.stranger.post('/api/sandboxes', {})
  const asleep = await world.sandbox({ timeout: 0 })
  await world.api.post(`/api/sandboxes/${asleep}/hibernate`)
  const ids = [theirs.body.sandboxID as string, asleep, 'sb-0000000000000000', 'x y']
  const query = ids.map((id) => `sandbox=${encodeURIComponent(id)}`).join('&')
  const seen = await stream(query, { 'x-api-key': world.api.key }, () => true)
  assert.deepEqual([seen.status, seen.text], [200, 'retry: 3000\n\n'])
  assert.equal((await world.api.get(`/api/sandboxes/${asleep}`)).body.status, 'hibernated')
})

test('metrics: a stream needs sandboxes, two hundred at most, the scope to read them, and room', async () => {
  const path = '/api/metrics/stream'
  for (const query of [
    '',
    '?sandbox=',
    `?${'sandbox=sb-1&'.repeat(201)}`,
    `?sandbox=${'x'.repeat(129)}`,
    '?sandbox=sb-1&all=1',
  ]) {
    assert.equal((await world.api.get(path + query)).status, 400, query.slice(0, 40))
  }
  assert.equal((await world.api.get(`${path}?sandbox=sb-1`, { key: null })).status, 401)
  const { body: narrow } = await world.api.post('/api/keys', { scopes: ['events'] })
  assert.equal((await world.api.get(`${path}?sandbox=sb-1`, { key: narrow.key })).body.scope, 'sandbox:read')
  const open = [1, 2].map(() => new AbortController())
  for (const { signal } of open) {
    const { status } = await fetch(`${world.origin}${path}?sandbox=sb-1&api_key=${world.api.key}`, { signal })
    assert.equal(status, 200)
  }
  const beyond = await world.api.get(`${path}?sandbox=sb-1`)
  assert.deepEqual([beyond.status, beyond.body.limit], [429, 2])
  for (const controller of open) controller.abort()
})
