import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../errors.ts'
import { everyCall } from '../lib/testing/thorough.ts'
import type { SessionStore } from './store.ts'
import { Crash } from './testing/crash.ts'
import type { AgentScript } from './testing/fake-agent.ts'
import { assertWhole, orgId, simple, type Wrap, useWorld } from './testing/world.ts'

const timings = { interruptAskMs: 20, interruptSigintMs: 20 }
/** Of agents that end their turn when they are asked: what they say has to be read before. */
const interruptAskMs = 2000

const world = useWorld()

/** Plays these parts for the first prompt and answers all others. */
function stubborn(parts: Partial<AgentScript>): AgentScript {
  const { script } = world.sandboxes
  return {
    ...parts,
    turn: (agent, content, resumed) =>
      content === simple.prompt ? agent.say('thinking') : script.turn(agent, content, resumed),
  }
}

async function thinking(sessionId: string): Promise<void> {
  await world.eventually('the answer', async () => assert.ok((await world.types(sessionId)).includes('assistant')))
}

test('an agent that ends its turn when it is asked gets no signal', async () => {
  const service = world.serve({ timings: { ...timings, interruptAskMs } })
  world.sandboxes.script = stubborn({})
  const { session } = await service.create(orgId, simple)
  await thinking(session.id)
  await service.interrupt(orgId, session.id, 'u1')
  await world.until(session.id, 'idle')
  await sleep(interruptAskMs + 100)
  assert.deepEqual(world.sandboxes.agent.process.signals, [])
  assert.deepEqual(await world.subtypes(session.id), ['interrupted'])
  assert.equal((await world.store.session(session.id))?.interruptedMessageId, undefined)
})

test('interrupt: an agent that has ended its turn gets no signal while its sandbox is slow to be inspected', async () => {
  const service = world.serve({ timings: { ...timings, interruptAskMs } })
  world.sandboxes.script = stubborn({})
  const { session } = await service.create(orgId, simple)
  await thinking(session.id)
  const { process } = world.sandboxes.agent
  world.sandboxes.beforeList = () => sleep(interruptAskMs + 100)
  await service.interrupt(orgId, session.id, 'u1')
  await world.until(session.id, 'idle')
  assert.deepEqual(process.signals, [])
})

test('an agent that does not listen is interrupted by SIGINT, and the next one goes on', async () => {
  const service = world.serve({ timings: { ...timings, interruptSigintMs: 10_000 } })
  world.sandboxes.script = stubborn({ interrupt: () => false })
  const { session } = await service.create(orgId, simple)
  await thinking(session.id)
  const first = world.sandboxes.agent
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await service.interrupt(orgId, session.id, 'u1')
  await world.until(session.id, 'idle')
  assert.deepEqual(first.process.signals, [2])
  assert.deepEqual(await world.subtypes(session.id), ['interrupted', 'success'])
  // The interrupted message is over: the new agent hears of the next one alone.
  const heard = world.sandboxes.agent.commands.filter(({ type }) => type === 'message')
  assert.deepEqual(
    heard.map(({ content }) => content),
    ['b'],
  )
  assert.equal((await world.types(session.id)).includes('error'), false)
  await assertWhole(world, session.id)
})

test('an agent that ignores everything is killed, with one result and one turn_complete', async () => {
  const service = world.serve({ timings })
  world.sandboxes.script = stubborn({ interrupt: () => false, signal: () => false })
  const { session } = await service.create(orgId, simple)
  await thinking(session.id)
  const first = world.sandboxes.agent
  await Promise.all([1, 2, 3].map(() => service.interrupt(orgId, session.id, 'u1')))
  await world.until(session.id, 'idle')
  assert.deepEqual(first.process.signals, [2, 9])
  assert.equal(first.commands.filter(({ type }) => type === 'interrupt').length, 1)
  await world.turn(service, session.id, 'b')
  assert.deepEqual(await world.subtypes(session.id), ['interrupted', 'success'])
  await assertWhole(world, session.id)
})

test('an agent that ignores everything and never stops talking is killed, however slow the store', async () => {
  const talking = world
  const slow: SessionStore = {
    ...world.store,
    async commit(sessionId, change) {
      // The next line waits already when this one is written.
      if (change.addStream?.some(({ type }) => type === 'assistant')) talking.sandboxes.agent.say('and')
      await sleep(30)
      return await talking.store.commit(sessionId, change)
    },
  }
  const wrap: Wrap = (port) => ((port as object) === world.store ? (slow as typeof port) : port)
  // Each signal has one chance.
  const service = world.serve({ timings: { ...timings, retryMaxMs: 60_000 } }, wrap)
  world.sandboxes.script = stubborn({ interrupt: () => false, signal: () => false })
  const { session } = await service.create(orgId, simple)
  await thinking(session.id)
  const { process } = world.sandboxes.agent
  await service.interrupt(orgId, session.id, 'u1')
  await world.eventually('the kill', () => assert.deepEqual(process.signals, [2, 9]))
  await world.until(session.id, 'idle')
  assert.deepEqual(await world.subtypes(session.id), ['interrupted'])
  await assertWhole(world, session.id)
})

test('an agent that says its result and never ends the turn can be interrupted', async () => {
  const service = world.serve({ timings })
  world.sandboxes.script = { turn: (agent) => agent.result(), interrupt: () => false }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the result', async () => assert.ok((await world.types(session.id)).includes('result')))
  await service.interrupt(orgId, session.id, 'u1')
  await world.until(session.id, 'idle')
  assert.deepEqual(await world.subtypes(session.id), ['success'])
  await assertWhole(world, session.id)
})

test('an interrupt of a turn whose agent has just died ends the turn at once', async () => {
  const service = world.serve({ timings: { ...timings, retryFirstMs: 60_000, retryMaxMs: 60_000 } })
  world.sandboxes.script = stubborn({})
  const { session } = await service.create(orgId, simple)
  await thinking(session.id)
  world.sandboxes.agent.process.exit(137)
  await world.eventually('its end is known', async () => assert.ok((await world.types(session.id)).includes('error')))
  await service.interrupt(orgId, session.id, 'u1')
  assert.deepEqual(await world.subtypes(session.id), ['interrupted'])
  await assertWhole(world, session.id)
})

test('an interrupt while the first message waits for the boot ends its turn at once; no agent hears of it', async () => {
  const service = world.serve({ timings })
  const boot = Promise.withResolvers<void>()
  world.sandboxes.beforeCreate = () => boot.promise
  const { session } = await service.create(orgId, simple)
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await service.interrupt(orgId, session.id, 'u1')
  assert.deepEqual(await world.subtypes(session.id), ['interrupted'])
  boot.resolve()
  await world.until(session.id, 'idle')
  assert.deepEqual(await world.subtypes(session.id), ['interrupted', 'success'])
  const heard = world.sandboxes.agent.commands.filter(({ type }) => type !== 'configure')
  assert.deepEqual(
    heard.map(({ content }) => content),
    ['b'],
  )
  await assertWhole(world, session.id)
})

test('an interrupt while the only message waits for the boot leaves an idle session that nothing holds awake', async () => {
  const service = world.serve({ timings })
  const boot = Promise.withResolvers<void>()
  world.sandboxes.beforeCreate = () => boot.promise
  const { session } = await service.create(orgId, simple)
  await service.interrupt(orgId, session.id, 'u1')
  const before = await world.types(session.id)
  await service.interrupt(orgId, session.id, 'u1')
  assert.deepEqual(await world.types(session.id), before)
  boot.resolve()
  await world.until(session.id, 'idle')
  await world.eventually('nothing holds it awake', () => assert.equal(world.sandboxes.holds.get(session.sandboxId), 0))
  await assertWhole(world, session.id)
})

test('an interrupt of a message that waits for its sandbox to wake ends its turn at once', async () => {
  const service = world.serve({ timings })
  const session = await world.idle(service)
  const asleep = Promise.withResolvers<void>()
  world.sandboxes.beforeAttach = () => asleep.promise
  await world.hibernate(session)
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await service.interrupt(orgId, session.id, 'u1')
  assert.deepEqual(await world.subtypes(session.id), ['success', 'interrupted'])
  await world.until(session.id, 'idle')
  asleep.resolve()
  await world.turn(service, session.id, 'c')
  assert.deepEqual(await world.subtypes(session.id), ['success', 'interrupted', 'success'])
  await assertWhole(world, session.id)
})

test('an interrupt of a session that failed does nothing: its messages wait for the next one', async () => {
  const service = world.serve({ timings })
  world.sandboxes.beforeCreate = () => Promise.reject(new ServiceError('patch_failed', 'no'))
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'failed')
  const before = await world.eventTypes(session.id)
  await service.interrupt(orgId, session.id, 'u1')
  assert.deepEqual(await world.eventTypes(session.id), before)
  assert.deepEqual(
    (await world.store.messages(session.id)).map(({ state }) => state),
    ['queued'],
  )
})

test('a wish to interrupt outlives the server that took it', async () => {
  const first = world.serve({ timings: { interruptAskMs: 60_000 } })
  world.sandboxes.script = stubborn({ interrupt: () => false, signal: () => false })
  const { session } = await first.create(orgId, simple)
  await thinking(session.id)
  await first.interrupt(orgId, session.id, 'u1')
  await first.close()
  assert.deepEqual(await world.subtypes(session.id), [])
  const second = world.serve({ timings })
  await second.start()
  await world.until(session.id, 'idle')
  assert.deepEqual(await world.subtypes(session.id), ['interrupted'])
  await assertWhole(world, session.id)
})

test('a silent agent keeps nobody waiting: messages queue, an interrupt ends its turn, a deletion the session', async () => {
  const service = world.serve({ timings })
  world.sandboxes.script = { turn: () => {}, interrupt: () => false, signal: () => false }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the turn', () => assert.equal(world.sandboxes.agent?.commands.length, 2))
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await service.interrupt(orgId, session.id, 'u1')
  await world.eventually('the next turn', () => assert.equal(world.sandboxes.agent.commands.at(-1)?.content, 'b'))
  await service.delete(orgId, session.id)
  assert.deepEqual(await world.subtypes(session.id), ['interrupted', 'interrupted'])
  await assertWhole(world, session.id)
})

for (const mode of ['before', 'after'] as const) {
  test(`a server that dies ${mode} any of its calls while it interrupts loses no wish that it confirmed`, async () => {
    await everyCall(30, (at) => surviveCrashOfInterrupt(at, mode))
  })
}

/** False when the first server came to the end without that many calls. */
async function surviveCrashOfInterrupt(at: number, mode: 'before' | 'after'): Promise<boolean> {
  await world.reset()
  const quick = { interruptAskMs: 1, interruptSigintMs: 1 }
  const crash = new Crash(at, mode)
  const first = world.serve({ timings: quick }, crash.wrap, true)
  world.sandboxes.script = stubborn({ interrupt: () => false, signal: () => false })
  let confirmed = false
  const happened = await crash.within(async () => {
    const { session } = await first.create(orgId, simple)
    await crash.until(async () => (await world.types(session.id)).includes('assistant'))
    await first.interrupt(orgId, session.id, 'u1')
    confirmed = true
    await crash.until(async () => (await world.store.session(session.id))?.activity === 'idle')
  })
  await world.afterDeath()
  const second = world.serve({ timings: quick })
  await second.start()
  const [session] = await world.store.sessionsIn('running')
  if (session) {
    await thinking(session.id)
    if (!confirmed) await second.interrupt(orgId, session.id, 'u1')
    await world.until(session.id, 'idle')
    assert.deepEqual(await world.subtypes(session.id), ['interrupted'])
    await assertWhole(world, session.id)
  }
  return happened
}
