import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { SandboxService } from '../sandbox/index.ts'
import { assertWhole, orgId, refused, simple, useWorld } from './testing/world.ts'

const world = useWorld()

type Attach = SandboxService['exec']['attach']

/** A service whose attachments to agents pass through `around`. */
function serveAround(around: (attach: Attach, ...given: Parameters<Attach>) => ReturnType<Attach>) {
  return world.serve({}, (port) => {
    const exec = 'exec' in port ? (port as unknown as SandboxService).exec : undefined
    if (exec) {
      const { attach } = exec
      exec.attach = (...given) => around(attach, ...given)
    }
    return port
  })
}

async function dealtWith(sessionId: string): Promise<void> {
  await world.eventually('every message is dealt with', async () => {
    const messages = await world.store.messages(sessionId)
    assert.deepEqual(
      messages.filter(({ role, state }) => role === 'user' && state !== 'consumed'),
      [],
    )
  })
  await assertWhole(world, sessionId)
}

for (const when of ['before', 'after'] as const) {
  test(`a message that comes just ${when} an idle agent is attached to wakes the sandbox that falls asleep then`, async () => {
    const sent = Promise.withResolvers<void>()
    let armed = false
    const service = serveAround(async (attach, ...given) => {
      if (!armed) return await attach(...given)
      armed = false
      const send = () => service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
      if (when === 'before') await send()
      const attachment = await attach(...given)
      if (when === 'after') await send()
      world.sandboxes.set(session.sandboxId, 'hibernated')
      sent.resolve()
      return attachment
    })
    const session = await world.idle(service)
    armed = true
    world.sandboxes.agent.process.breakAttachments()
    await sent.promise
    await dealtWith(session.id)
    assert.equal(world.sandboxes.agents.length, 1)
  })
}

test('a turn of a later message that is hibernated by hand stays asleep until something wakes the sandbox', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  const { agent } = world.sandboxes
  agent.process.onLine = (line) => {
    if (line.includes('"b"')) agent.say('thinking')
  }
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await world.eventually('the answer', async () => {
    assert.match(JSON.stringify(await world.streamed(session.id)), /thinking/)
  })
  await world.hibernate(session)
  await ticks()
  assert.equal(world.sandboxes.machine(session.sandboxId).sandbox.status, 'hibernated')
  world.sandboxes.set(session.sandboxId, 'running')
  const [, second] = (await world.store.messages(session.id)).filter(({ role }) => role === 'user')
  agent.emit({ type: 'turn_complete', message_id: second!.id, session_id: 'agent-1' })
  await dealtWith(session.id)
})

test('message: one that comes while its session is forked wakes the sandbox that hibernates before the fork is made', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  world.sandboxes.beforeCheckpoint = async () => {
    await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
    await ticks()
    world.sandboxes.set(session.sandboxId, 'hibernated')
    await world.eventually('the event', async () => {
      assert.ok((await world.eventTypes(session.id)).includes('sandbox_hibernated'))
    })
  }
  await service.fork(orgId, session.id, 'u1')
  await dealtWith(session.id)
})

async function ticks(): Promise<void> {
  for (let tick = 0; tick < 50; tick++) await new Promise((resolve) => setImmediate(resolve))
}

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
  await world.turn(service, session.id, 'b')
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

test('a warning from another part of the server is one error in the stream of a running session, and ends nothing', async () => {
  const service = world.serve()
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
  await service.warn(session.id, 'model_field_refused', 'The model gateway refused a request.')
  assert.deepEqual(await world.errors(session.id), ['model_field_refused'])
  const { data } = (await world.streamed(session.id)).at(-1)!
  const message = 'The model gateway refused a request.'
  assert.deepEqual(data, { type: 'error', code: 'model_field_refused', message, fatal: false })
  await world.turn(service, session.id, 'go on')
  await service.delete(orgId, session.id)
  await service.warn(session.id, 'model_field_refused', 'again')
  await service.warn('session_unknown', 'model_field_refused', 'again')
  assert.deepEqual(await world.errors(session.id), ['model_field_refused'])
})
