import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { suite, test, type TestContext } from 'node:test'
import { Atoll, EventsExpiredError, type EventInfo } from '../../sdk/src/index.ts'
import { eventsOf } from '../../sdk/src/events.ts'
import { batches } from '../../src/lib/batches.ts'
import { sha256 } from '../../src/lib/secret.ts'
import { sandboxOf } from '../store/kit.ts'
import { useWorld } from '../support/world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const world = useWorld({ limits: { streamStallMs: 5000, eventStreamsPerOrganisationMax: 8 } })

interface Block {
  id: number
  event: EventInfo | undefined
}

/** A connection to the stream; the end of the test closes it. */
async function follow(t: TestContext, query = '', { headers = {}, key = world.api.key } = {}) {
  const gone = new AbortController()
  t.after(() => gone.abort())
  const response = await fetch(`${world.origin}/api/events?${query}`, {
    headers: { 'x-api-key': key, ...headers },
    signal: gone.signal,
  })
  assert.equal(response.status, 200, response.status === 200 ? '' : await response.text())
  assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/)
  assert.ok(response.body)
  const blocks = eventsOf(response.body)
  const next = async (): Promise<Block> => {
    const { value } = await blocks.next()
    assert.ok(value, 'the stream has ended')
    return { id: Number(value.id), event: value.data === '' ? undefined : (JSON.parse(value.data) as EventInfo) }
  }
  return {
    next,
    close: () => gone.abort(),
    /** The next events with data. */
    async take(count: number): Promise<EventInfo[]> {
      const taken: EventInfo[] = []
      while (taken.length < count) {
        const { id, event } = await next()
        if (event === undefined) continue
        assert.equal(event.number, id)
        taken.push(event)
      }
      return taken
    },
  }
}

const typesOf = (events: readonly EventInfo[]) => events.map(({ type }) => type as string)

async function newest(client = world.api): Promise<number> {
  const { body } = await client.get('/api/events?follow=false&after=newest')
  return body.newest as number
}

/** The tests of this file share an organisation: one looks at what comes after its beginning. */
async function page(query: string, after: number) {
  const answer = await world.api.get(`/api/events?follow=false&after=${after}&${query}`)
  assert.equal(answer.status, 200, answer.text)
  return answer.body as { events: EventInfo[]; next: number; newest: number; oldest: number }
}

suite('events', () => {
  test('events: the life of a sandbox is paged with its actor, and a stranger sees nothing of it', async () => {
    const start = await newest()
    const id = await world.sandbox()
    await world.api.post(`/api/sandboxes/${id}/hibernate`)
    await world.api.post(`/api/sandboxes/${id}/wake`)
    await world.api.delete(`/api/sandboxes/${id}`)
    const { events, next, newest: last } = await page('', start)
    const types = ['created', 'ready', 'hibernated', 'resumed', 'stopped'].map((name) => `sandbox.${name}`)
    assert.deepEqual(typesOf(events), types)
    assert.deepEqual([next, last], [start + 5, start + 5])
    const [created, , hibernated] = events
    const key = await world.store.organisations.apiKeyByHash(sha256(world.api.key))
    assert.deepEqual(
      { ...created, ts: '' },
      {
        number: start + 1,
        id: `${id}:sandbox.created`,
        ts: '',
        orgId: world.orgId,
        type: 'sandbox.created',
        sandboxId: id,
        subject: id,
        actor: { type: 'key', id: key?.id },
        cause: 'request',
        data: { template: 'base' },
      },
    )
    assert.equal(hibernated?.id, `${id}:sandbox.hibernated:${start + 3}`)
    const foreign = await world.stranger.get(`/api/events?follow=false&sandbox=${id}`)
    assert.deepEqual(foreign.body.events, [])
    const all = await world.stranger.get('/api/events?follow=false')
    assert.deepEqual(typesOf(all.body.events), ['key.created'])
  })

  test('events: pages go on from next, filters by type, sandbox and tag', async () => {
    const start = await newest()
    const [one, other] = [await world.sandbox(), await world.sandbox()]
    await world.api.put(`/api/sandboxes/${one}/tags`, { env: 'prod' })
    for (const id of [one, other]) await world.api.post(`/api/sandboxes/${id}/hibernate`)
    const seen: number[] = []
    for (let after = start; ;) {
      const { events, next, newest: last } = await page('limit=2', after)
      assert.ok(events.length <= 2)
      seen.push(...events.map(({ number }) => number))
      if (next >= last) break
      after = next
    }
    assert.deepEqual(
      seen,
      [1, 2, 3, 4, 5, 6].map((step) => start + step),
    )
    const found = async (query: string) => typesOf((await page(query, start)).events)
    assert.deepEqual(await found(`sandbox=${one}`), ['sandbox.created', 'sandbox.ready', 'sandbox.hibernated'])
    assert.deepEqual(await found('type=sandbox.hibernated'), ['sandbox.hibernated', 'sandbox.hibernated'])
    assert.deepEqual(await found('type=sandbox.ready,%20key.*,sandbox.stopped'), ['sandbox.ready', 'sandbox.ready'])
    assert.deepEqual(await found('type=checkpoint.*'), [])
    assert.deepEqual(
      (await page('tag=env%3Dprod', start)).events.map(({ subject }) => subject),
      [one],
    )
    assert.deepEqual(await found('tag=env'), ['sandbox.hibernated'])
    assert.deepEqual(await found('tag=env%3Dtest'), [])
  })

  test('events: a checkpoint, a fork, a volume, a preview and an image are told', async () => {
    const start = await newest()
    await world.api.post('/api/volumes', { name: 'told', sizeMB: 64 })
    const id = await world.sandbox({ volumes: [{ name: 'told', path: '/data', readOnly: true }] })
    await world.api.post(`/api/sandboxes/${id}/preview`, { port: 3000 })
    const made = await world.api.post(`/api/sandboxes/${id}/checkpoints`, { name: 'then', kind: 'disk_only' })
    const fork = await world.api.post(`/api/sandboxes/from-checkpoint/${made.body.id}`, {})
    assert.equal(fork.status, 201, fork.text)
    await world.api.delete(`/api/sandboxes/${id}/checkpoints/${made.body.id}`)
    const { events } = await page('', start)
    assert.deepEqual(typesOf(events), [
      'volume.created',
      'volume.attached',
      'sandbox.created',
      'sandbox.ready',
      'sandbox.preview_url.changed',
      'sandbox.checkpoint.created',
      'volume.attached',
      'sandbox.created',
      'sandbox.ready',
      'sandbox.forked',
      'checkpoint.deleted',
    ])
    assert.deepEqual(events[4]?.data, { port: 3000, url: `http://${id}-p3000.preview.test` })
    assert.equal(events[5]?.id, `${id}:sandbox.checkpoint.created:${made.body.id}`)
    assert.deepEqual(events[9]?.data, { parentId: id })
  })

  test('events: a stream brings what is there and what comes, and goes on after its last number', async (t) => {
    const start = await newest()
    const id = await world.sandbox()
    const first = await follow(t, `after=${start}`)
    assert.deepEqual(typesOf(await first.take(2)), ['sandbox.created', 'sandbox.ready'])
    await world.api.post(`/api/sandboxes/${id}/hibernate`)
    assert.deepEqual(typesOf(await first.take(1)), ['sandbox.hibernated'])
    first.close()
    await world.api.post(`/api/sandboxes/${id}/wake`)
    // The number of the URL stays that of the first connection.
    const second = await follow(t, `after=${start}`, { headers: { 'last-event-id': String(start + 3) } })
    assert.deepEqual(typesOf(await second.take(1)), ['sandbox.resumed'])
    await world.api.delete(`/api/sandboxes/${id}`)
    assert.deepEqual(typesOf(await second.take(1)), ['sandbox.stopped'])
  })

  test('events: a stream tells at once where it is, also when its filter leaves all out', async (t) => {
    const id = await world.sandbox()
    const at = await newest()
    const filtered = await follow(t, `type=image.*&sandbox=${id}`)
    assert.deepEqual(await filtered.next(), { id: at, event: undefined })
    const fromNow = await follow(t, 'after=newest&api_key=ignored')
    assert.deepEqual(await fromNow.next(), { id: at, event: undefined })
    await world.api.post(`/api/sandboxes/${id}/hibernate`)
    assert.deepEqual(typesOf(await fromNow.take(1)), ['sandbox.hibernated'])
  })

  test('events: a key in the query opens the stream, a strange key none', async () => {
    const path = `/api/events?follow=false&api_key=${world.api.key}`
    assert.equal((await world.api.get(path, { key: null })).status, 200)
    assert.equal((await world.api.get('/api/events', { key: null })).status, 401)
    assert.equal((await world.api.get('/api/events', { key: 'atoll_of_nobody' })).status, 401)
  })

  test('events: bad input is refused by field, also before a stream begins', async () => {
    const beyond = (await newest()) + 1
    for (const [query, message] of [
      ['after=-1', /after/],
      ['after=1.5', /after/],
      ['after=x', /after/],
      [`after=${beyond}`, new RegExp(`after is ${beyond}, and the newest event of the organisation is ${beyond - 1}`)],
      [`after=999999999999999`, /after is 999999999999999/],
      ['limit=0', /limit/],
      ['limit=1001', /limit/],
      ['limit=x', /limit/],
      ['type=sandbox', /type "sandbox" is not known/],
      ['type=*', /type/],
      ['type=sandbox.*,nothing.*', /type "nothing\.\*"/],
      ['tag==x', /tag/],
      ['sandbox=%00', /sandbox must not contain NUL/],
      ['follow=maybe', /follow/],
    ] as const) {
      for (const mode of query.startsWith('follow') ? [''] : ['&follow=false', '']) {
        const { status, body } = await world.api.get(`/api/events?${query}${mode}`)
        assert.deepEqual([status, body?.code], [400, 'invalid_request'], query)
        assert.match(body.error, message, query)
      }
    }
    for (const [value, message] of [
      ['abc', /last-event-id/],
      [String(beyond), new RegExp(`Last-Event-ID is ${beyond}`)],
    ] as const) {
      const { status, body } = await world.api.get('/api/events', { headers: { 'last-event-id': value } })
      assert.deepEqual([status, body.code], [400, 'invalid_request'])
      assert.match(body.error, message)
    }
    // A number that another organisation has reached is beyond the end of this one.
    const { status } = await world.stranger.get(`/api/events?after=${beyond - 1}`)
    assert.equal(status, 400)
  })

  test('events: a client that lags behind what is kept is told so, and one at the beginning gets what is kept', async (t) => {
    await world.sandbox()
    await world.store.events.purge(new Date(0), 2)
    const last = await newest()
    const { status, body } = await world.api.get('/api/events?after=1')
    assert.deepEqual([status, body.code, body.oldest], [410, 'events_expired', last - 1])
    assert.deepEqual(typesOf(await (await follow(t)).take(2)), ['sandbox.created', 'sandbox.ready'])
    assert.equal((await page('', last - 2)).events.length, 2)
    const client = new Atoll({ url: world.origin, apiKey: world.api.key })
    await assert.rejects(client.events({ after: 1 }).next(), EventsExpiredError)
  })

  test('events: a client that never reads holds little and is let go, and others get all', async (t) => {
    const { stranger, strangerOrgId: orgId, store } = world
    const start = await newest(stranger)
    const socket = connect(world.port, '127.0.0.1')
    t.after(() => socket.destroy())
    socket.pause()
    await once(socket, 'connect')
    socket.write(`GET /api/events?after=${start} HTTP/1.1\r\nhost: x\r\nx-api-key: ${stranger.key}\r\n\r\n`)
    const reader = await follow(t, `after=${start}`, { key: stranger.key })
    const taken = reader.take(3000)
    // More than the kernel takes for a client that does not.
    const sandboxes = Array.from({ length: 1500 }, () => sandboxOf(orgId, { image: 'x'.repeat(10_000) }))
    for (const batch of batches(sandboxes, () => 1, { sizeMax: 100, countMax: 100 })) {
      await Promise.all(batch.map((one) => store.sandboxes.insertSandbox(one)))
    }
    assert.deepEqual(
      (await taken).map(({ number }) => number),
      Array.from({ length: 3000 }, (_, index) => start + 1 + index),
    )
    await eventually(() => world.logs.some(({ message }) => message === 'a client that took no events was dropped'))
    socket.resume()
    const [error] = (await once(socket, 'error')) as [NodeJS.ErrnoException]
    assert.equal(error.code, 'ECONNRESET')
  })

  test('events: an organisation has a bounded number of streams', async (t) => {
    const open = await Promise.all(Array.from({ length: 8 }, () => follow(t, 'after=newest')))
    const { status, body } = await world.api.get('/api/events')
    assert.deepEqual([status, body.code], [429, 'rate_limited'])
    assert.equal((await world.stranger.get('/api/events?follow=false')).status, 200)
    assert.equal(open.length, 8)
  })

  test('SDK events: it pages to the newest, or follows, with the filters', async (t) => {
    const client = new Atoll({ url: world.origin, apiKey: world.api.key })
    const start = await newest()
    const id = await world.sandbox()
    const paged = await Array.fromAsync(
      client.events({ after: start, follow: false, type: ['sandbox.created', 'key.*'] }),
    )
    assert.deepEqual(
      paged.map(({ type, subject }) => [type, subject]),
      [['sandbox.created', id]],
    )
    const gone = new AbortController()
    t.after(() => gone.abort())
    const followed = client.events({ after: 'newest', sandbox: id, signal: gone.signal })
    const next = followed.next()
    // It may begin after the first of these.
    const hibernations = (async () => {
      for (;;) {
        await world.api.post(`/api/sandboxes/${id}/hibernate`)
        if (await Promise.race([next.then(() => true), world.api.post(`/api/sandboxes/${id}/wake`).then(() => false)]))
          return
      }
    })()
    const { value } = await next
    await hibernations
    assert.equal(value?.subject, id)
  })
})
