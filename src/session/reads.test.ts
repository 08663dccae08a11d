/** What is read of a session, which can be megabytes, and how often. */
import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import { isServiceError } from '../errors.ts'
import type { SessionStore } from './store.ts'
import { orgId, simple, World } from './testing/world.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world.close())

/** All methods that return more than one small row. */
const large = new Set<string | symbol>(['session', 'listSessions', 'messages', 'events', 'skills', 'instructions'])

/** A server whose large reads are written down. */
function counting() {
  const reads: (string | symbol)[] = []
  const store = new Proxy(world.store, {
    get(target, name) {
      if (large.has(name)) reads.push(name)
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
  for (let heard = 0; heard < 2; heard++) await events.next()
  reads.length = 0
  for (let said = 0; said < 20; said++) {
    world.sandboxes.agent.say(`line ${said}`)
    const { value } = await events.next()
    assert.equal(value?.data.type, 'assistant')
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
    await service.sendMessage(orgId, id, { message: 'more', userId: 'u1' })
    await world.until(id, 'idle')
  }
  assert.deepEqual(await world.store.skills(fork.id), session.agentConfig.skills)
  assert.equal((await world.store.instructions(fork.id))?.systemPrompt, 'Be brief.')
  assert.equal(reads.filter((name) => name === 'skills').length, 1)
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
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
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
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
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
