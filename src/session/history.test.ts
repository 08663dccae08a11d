/** What every answer about a session holds is bounded. */
import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import { isServiceError } from '../errors.ts'
import { assertWhole, orgId, simple, World } from './testing/world.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world.close())

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
  assert.ok((await world.store.historyBytes(session.id)) <= limits.historyBytesMax)
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
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
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
