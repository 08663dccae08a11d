/** Reads of a session, which can be megabytes: how often they happen, and that each answer is bounded. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../errors.ts'
import type { ExportRecord } from './history.ts'
import type { StreamEvent } from './session.ts'
import type { SessionStore } from './store.ts'
import { orgId, simple, assertWhole, useWorld } from './testing/world.ts'

const world = useWorld()

/** All methods that return more than one small row. */
const largeReads = new Set<string | symbol>([
  'session',
  'listSessions',
  'messages',
  'events',
  'histories',
  'skills',
  'instructions',
])

/** A server whose large reads are written down. */
function counting() {
  const reads: (string | symbol)[] = []
  const store = new Proxy(world.store, {
    get(target, name) {
      if (largeReads.has(name)) reads.push(name)
      return target[name as keyof SessionStore]
    },
  })
  const service = world.serve({}, (port) =>
    (port as object) === world.store ? (store as unknown as typeof port) : port,
  )
  return { reads, service }
}

test('however often an agent speaks and is listened to, its session is not read again', async () => {
  const { reads, service } = counting()
  world.sandboxes.script = { turn: () => {} }
  const { session } = await service.create(orgId, { ...simple, agentConfig: { skills: { 'a/SKILL.md': 'text' } } })
  await world.eventually('the turn', () => assert.equal(world.sandboxes.agent?.commands.length, 2))
  const { token } = await service.createToken(orgId, session.id, { userId: 'u1', scope: 'read' })
  const leaving = new AbortController()
  const stream = await service.stream(orgId, session.id, { after: 0, signal: leaving.signal })
  const events = stream[Symbol.asyncIterator]()
  const next = async () => ((await events.next()) as IteratorYieldResult<readonly StreamEvent[]>).value
  for (let heard = 0; heard < 2; heard += (await next()).length);
  reads.length = 0
  for (let said = 0; said < 20; said++) {
    world.sandboxes.agent.say(`line ${said}`)
    assert.deepEqual(
      (await next()).map(({ data }) => data.type),
      ['assistant'],
    )
    await service.access(token, session.id, 'stream')
  }
  leaving.abort()
  world.sandboxes.agent.finish()
  await world.until(session.id, 'idle')
  await service.interrupt(orgId, session.id, 'u1')
  await service.delete(orgId, session.id, 'u1')
  assert.deepEqual(reads, [])
})

test('the texts of skills are read for the files of a new sandbox, and for nothing else', async () => {
  const { reads, service } = counting()
  const agentConfig = { systemPrompt: 'Be brief.', skills: { 'a/SKILL.md': 'text' } }
  const { session } = await service.create(orgId, { ...simple, agentConfig })
  await world.until(session.id, 'idle')
  const { session: fork } = await service.fork(orgId, session.id, 'u1')
  await world.until(fork.id, 'idle')
  for (const { id } of [session, fork]) {
    await world.turn(service, id, 'more')
  }
  assert.deepEqual(await world.store.skills(fork.id), session.agentConfig.skills)
  assert.equal((await world.store.instructions(fork.id))?.systemPrompt, 'Be brief.')
  assert.equal(reads.filter((name) => name === 'skills').length, 1)
})

test('a list reads the histories of short sessions at once', async () => {
  const { reads, service } = counting()
  for (let made = 0; made < 3; made++) await service.create('org_3', { ...simple })
  reads.length = 0
  const { items } = await service.list('org_3', {})
  assert.deepEqual(
    items.map(({ messages }) => messages.filter(({ role }) => role === 'user').length),
    [1, 1, 1],
  )
  assert.deepEqual(
    reads.filter((name) => ['listSessions', 'histories', 'messages', 'events'].includes(String(name))),
    ['listSessions', 'histories'],
  )
  for (const { session } of items) await service.delete('org_3', session.id)
})

test('an organisation searches once at a time, and is told when too many of its searches wait', async () => {
  const { store } = world
  const running: (() => void)[] = []
  const asked: string[] = []
  const searching: SessionStore = {
    ...store,
    async listSessions(query) {
      asked.push(`${query.orgId} ${query.search ?? 'all'}`)
      if (query.search !== undefined) await new Promise<void>((resolve) => running.push(resolve))
      return await store.listSessions(query)
    },
  }
  const service = world.serve({}, (port) => ((port as object) === store ? (searching as typeof port) : port))
  const first = Array.from({ length: 9 }, () => service.list(orgId, { search: 'a' }))
  await assert.rejects(
    service.list(orgId, { search: 'b' }),
    (error) => isServiceError(error, 'rate_limited') && Number(error.details['retryAfterSeconds']) > 0,
  )
  const other = service.list('org_2', { search: 'c' })
  await service.list(orgId, {})
  assert.deepEqual(asked.toSorted(), [`${orgId} a`, `${orgId} all`, 'org_2 c'])
  for (let ended = 0; ended < 10; ended++) {
    await world.eventually('the next search', () => assert.ok(running.length > 0))
    running.shift()!()
  }
  await Promise.all([...first, other])
  assert.equal(asked.filter((search) => search === `${orgId} a`).length, 9)
  const again = service.list(orgId, { search: 'b' })
  await world.eventually('it runs', () => assert.equal(running.length, 1))
  running[0]!()
  await again
})

test('a client that has gone frees no memory before its view was read, and nobody reads one for it afterwards', async () => {
  const { reads, service } = counting()
  const session = await world.idle(service)
  const content = 'x'.repeat(200_000)
  const message = (index: number) => ({
    id: `msg_${index}`,
    role: 'assistant' as const,
    content,
    createdAt: new Date(),
  })
  await world.store.commit(session.id, { addMessages: Array.from({ length: 10 }, (_, index) => message(index)) })
  reads.length = 0
  const views = Array.from({ length: 20 }, () => service.get(orgId, session.id, undefined, { sent: Promise.resolve() }))
  const results = await Promise.allSettled(views)
  assert.ok(results.every(({ status }) => status === 'rejected'))
  assert.equal(reads.filter((read) => read === 'messages').length, 0)
})

test('a long history is read in pages, and others come between them', async () => {
  const { reads, service } = counting()
  const session = await world.idle(service)
  const content = 'x'.repeat(200_000)
  const addMessages = Array.from({ length: 30 }, (_, index) => ({
    id: `msg_${index}`,
    role: 'assistant' as const,
    content,
    createdAt: new Date(),
  }))
  await world.store.commit(session.id, { addMessages })
  reads.length = 0
  let others = 0
  let isRead = false
  const between = () => {
    others += 1
    if (!isRead) setImmediate(between)
  }
  setImmediate(between)
  const { messages } = await service.get(orgId, session.id)
  isRead = true
  assert.equal(messages.filter((message) => message.content === content).length, 30)
  const pages = reads.filter((name) => name === 'messages').length
  assert.ok(pages >= 10 && others >= pages - 1, `${pages} pages, ${others} times somebody else`)
})

test('messages are taken until the session holds as much as it may, those taken back included, for the next server too', async () => {
  const limits = { historyBytesMax: 20_000 }
  const first = world.serve({ limits })
  world.sandboxes.script = { turn: () => {} }
  const { session } = await first.create(orgId, simple)
  await world.eventually('the turn', () => assert.equal(world.sandboxes.agent?.commands.length, 2))
  const message = 'x'.repeat(3000)
  let taken = 0
  const sendAll = async (service: typeof first) => {
    for (; taken < 100; taken += 1) {
      const { messages } = await service.sendMessage(orgId, session.id, { message, userId: 'u1' })
      await service.cancelMessage(orgId, session.id, messages.at(-1)!.id)
    }
  }
  const full = (error: unknown) =>
    isServiceError(error, 'conflict') && error.details?.['limit'] === limits.historyBytesMax
  await assert.rejects(sendAll(first), full)
  assert.ok(taken > 3 && taken < 7, `${taken} messages`)
  await first.close()
  const second = world.serve({ limits })
  await second.start()
  await assert.rejects(sendAll(second), full)
  world.sandboxes.agent.finish()
  await world.until(session.id, 'idle')
  assert.ok(((await world.store.historyBytes([session.id])).get(session.id) ?? 0) <= limits.historyBytesMax)
  await assertWhole(world, session.id)
})

test('of an answer for which there is no room the beginning is a message, and the stream has all of it', async () => {
  const service = world.serve({ limits: { historyBytesMax: 5000 } })
  world.sandboxes.script = {
    turn: (agent) => {
      for (const letter of ['x', 'y', 'z']) agent.say(letter.repeat(2000))
      agent.finish()
    },
  }
  const session = await world.idle(service)
  assert.match((await world.store.messages(session.id)).at(-1)!.content, /^x{1000}…$/)
  const said = (await world.streamed(session.id)).filter(({ data }) => data.type === 'assistant')
  assert.equal(said.length, 3)
})

test('a list page ends before it holds more than one session may, and has one session at least', async () => {
  const historyBytesMax = 5000
  const service = world.serve({ limits: { historyBytesMax } })
  for (const bytes of [100, 100, 4900, 100]) await service.create(orgId, { ...simple, prompt: 'x'.repeat(bytes) })
  const sizes = async (limit: number) =>
    (await service.list(orgId, { limit })).items.map(({ messages }) => messages[0]!.content.length)
  assert.deepEqual(await sizes(10), [100])
  await service.create(orgId, simple)
  assert.deepEqual(await sizes(1), [simple.prompt.length])
  assert.deepEqual(await sizes(10), [simple.prompt.length, 100])
})

test('large views wait while an organisation, or one session, has as many that were not sent', async () => {
  const historyBytesMax = 200_000
  const service = world.serve({ limits: { historyBytesMax } })
  world.sandboxes.script = { turn: () => {} }
  const made = async (prompt: string) => (await service.create(orgId, { ...simple, prompt })).session.id
  const large = () => made('x'.repeat(190_000))
  const [one, two, three, four, small] = [await large(), await large(), await large(), await large(), await made('x')]
  const read: string[] = []
  const get = async (name: string, id: string) => {
    const { promise: sent, resolve } = Promise.withResolvers<void>()
    const { messages } = await service.get(orgId, id, undefined, { sent })
    assert.equal(messages.length, 1)
    read.push(name)
    return resolve
  }
  const first = [await get('one', one), await get('one again', one)]
  const third = get('one a third time', one)
  const second = [await get('two', two), await get('three', three)]
  const late = get('four', four)
  await get('small', small)
  assert.deepEqual(read, ['one', 'one again', 'two', 'three', 'small'])
  second[0]!()
  await late
  assert.equal(read.at(-1), 'four')
  const listed = service.list(orgId, { limit: 2 }, { sent: new Promise(() => {}) }).then(() => read.push('list'))
  second[1]!()
  await listed
  first[0]!()
  await third
})

test('a session shows the messages of the branch in force, and those that a rewind has left when asked; an export has all', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  await world.turn(service, session.id, 'later')
  const all = await world.store.messages(session.id)
  const [first] = all
  const createdAt = new Date()
  const places = { checkpointId: 'cp-1', undoCheckpointId: 'cp-2', turnId: first!.id, createdAt }
  await world.store.commit(session.id, { addStream: [{ type: 'rewound' }], rewind: { what: 'all', ...places } })
  const kept = all.filter(({ turnId }) => turnId === first!.id)
  const marked = all.map((message) => (kept.includes(message) ? message : { ...message, isLeft: true }))
  assert.deepEqual([all.length, kept.length], [4, 2])
  assert.deepEqual((await service.get(orgId, session.id)).messages, kept)
  assert.deepEqual((await service.get(orgId, session.id, 'u1', { branch: 'all' })).messages, marked)
  assert.deepEqual((await service.list(orgId, {})).items[0]?.messages, kept)
  const { records } = await service.export(orgId, session.id, 'u1')
  const exported = (await Array.fromAsync(records)).flatMap((record) =>
    record.type === 'message' ? record.message : [],
  )
  assert.deepEqual(exported, marked)
})

test('an export of many pages has each message, event and stream event once, in order', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  for (let turn = 0; turn < 60; turn++) {
    await world.turn(service, session.id, `m${turn}`)
  }
  const { view, records } = await service.export(orgId, session.id, 'u1')
  assert.deepEqual([view.session.id, view.messages, view.events], [session.id, [], []])
  const all: ExportRecord[] = []
  for await (const record of records) all.push(record)
  const [messages, events, stream] = [
    await world.store.messages(session.id),
    await world.store.events(session.id),
    await world.streamed(session.id),
  ]
  assert.ok(messages.length > 100 && events.length > 100 && stream.length > 100)
  assert.deepEqual(all, [
    ...messages.map((message) => ({ type: 'message', message })),
    ...events.map((event) => ({ type: 'event', event })),
    ...stream.map((event) => ({ type: 'stream', event })),
  ])
})
