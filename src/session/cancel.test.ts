import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import { isServiceError, type ErrorCode } from '../errors.ts'
import { assertWhole, orgId, simple, World } from './testing/world.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world.close())

const refused = (code: ErrorCode) => (error: unknown) => isServiceError(error, code)

test('a message that waits can be cancelled, and the agent never hears of it', async () => {
  const service = world.serve()
  world.sandboxes.script = { turn: () => {} }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the turn', () => assert.equal(world.sandboxes.agent?.commands.length, 2))
  for (const message of ['b', 'c']) await service.sendMessage(orgId, session.id, { message, userId: 'u1' })
  const [a, b, c] = (await service.get(orgId, session.id)).messages
  const view = await service.cancelMessage(orgId, session.id, b!.id, 'u1')
  assert.deepEqual(
    view.messages.map(({ state }) => state),
    ['started', 'cancelled', 'queued'],
  )
  for (const id of [a!.id, b!.id]) {
    await assert.rejects(service.cancelMessage(orgId, session.id, id), refused('conflict'))
  }
  await assert.rejects(service.cancelMessage(orgId, session.id, 'msg_unknown'), refused('not_found'))
  await assert.rejects(service.cancelMessage(orgId, session.id, c!.id, 'u2'), refused('not_found'))
  await assert.rejects(service.cancelMessage('org_2', session.id, c!.id), refused('not_found'))
  world.sandboxes.agent.finish()
  await world.eventually('the next', () => assert.equal(world.sandboxes.agent.commands.at(-1)?.content, 'c'))
  world.sandboxes.agent.finish()
  await world.until(session.id, 'idle')
  const heard = world.sandboxes.agent.commands.filter(({ type }) => type === 'message')
  assert.deepEqual(
    heard.map(({ content }) => content),
    ['a page', 'c'],
  )
  await assertWhole(world, session.id)
  const answer = (await service.get(orgId, session.id)).messages.find(({ role }) => role === 'assistant')
  await assert.rejects(service.cancelMessage(orgId, session.id, answer!.id), refused('not_found'))
})

test('the only message can be cancelled while the sandbox boots; the session is idle then', async () => {
  const service = world.serve()
  const go = Promise.withResolvers<void>()
  world.sandboxes.beforeCreate = () => go.promise
  const { session, messages } = await service.create(orgId, simple)
  await service.cancelMessage(orgId, session.id, messages[0]!.id)
  go.resolve()
  await world.until(session.id, 'idle')
  assert.equal(world.sandboxes.agent.commands.length, 1)
  await world.eventually('nothing holds it awake', () => assert.equal(world.sandboxes.holds.get(session.sandboxId), 0))
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await world.until(session.id, 'idle')
  await assertWhole(world, session.id)
})

test('a message of an ended session cannot be cancelled', async () => {
  const service = world.serve()
  const { session, messages } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
  await service.delete(orgId, session.id)
  await assert.rejects(service.cancelMessage(orgId, session.id, messages[0]!.id), refused('conflict'))
  await assert.rejects(service.cancelMessage(orgId, session.id, 'msg_unknown'), refused('not_found'))
})

test('of a cancellation and the start of the same turn, one wins', async () => {
  const service = world.serve()
  for (let round = 0; round < 20; round++) {
    const { session, messages } = await service.create(orgId, simple)
    for (let turn = 0; turn < round * 3; turn++) await new Promise((resolve) => setImmediate(resolve))
    const cancelled = await service.cancelMessage(orgId, session.id, messages[0]!.id).then(
      () => true,
      () => false,
    )
    await world.until(session.id, 'idle')
    const [message] = await world.store.messages(session.id)
    assert.equal(message?.state, cancelled ? 'cancelled' : 'consumed')
    await assertWhole(world, session.id)
  }
})
