import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type AgentScript, answering, type FakeAgent } from './testing/fake-agent.ts'
import { assertWhole, orgId, refused, simple, useWorld, type World } from './testing/world.ts'

const world = useWorld()

const ready = { type: 'ready', harness: 'evil', version: '0' }
const failure = { type: 'error', message: 'again', code: 'agent_error', fatal: false }

/** Plays `flood` for the first prompt and answers all others. */
function flooding(flood: (agent: FakeAgent) => void): AgentScript {
  const { script } = world.sandboxes
  return {
    turn: (agent, content, resumed) =>
      content === simple.prompt ? flood(agent) : script.turn(agent, content, resumed),
  }
}

async function count(sessionId: string, type: string): Promise<number> {
  return (await world.types(sessionId)).filter((one) => one === type).length
}

/** The flood has ended its turn and its process, and the session deals with the next message. */
async function goesOn(service: ReturnType<World['serve']>, sessionId: string): Promise<void> {
  await world.until(sessionId, 'idle')
  const flooder = world.sandboxes.agents[0]!
  await world.eventually('the kill', () => assert.equal(flooder.process.exitCode, 137))
  assert.deepEqual(await world.errors(sessionId), ['output_limit'])
  await service.sendMessage(orgId, sessionId, { message: 'b', userId: 'u1' })
  await world.eventually('both turns', async () => assert.equal(await count(sessionId, 'turn_complete'), 2))
  assert.deepEqual(await world.subtypes(sessionId), ['error_during_execution', 'success'])
  assert.notEqual(world.sandboxes.agent, flooder)
  await assertWhole(world, sessionId)
}

test('a turn of too many lines ends with output_limit, and the next message gets a new agent', async () => {
  const service = world.serve({ limits: { turnLinesMax: 50 } })
  world.sandboxes.script = flooding((agent) => {
    for (let n = 0; n < 500; n++) agent.say(`line ${n}`)
  })
  const { session } = await service.create(orgId, simple)
  await goesOn(service, session.id)
  assert.ok((await count(session.id, 'assistant')) <= 52)
})

test('a turn of too many bytes ends with output_limit', async () => {
  const service = world.serve({ limits: { turnBytesMax: 10_000 } })
  world.sandboxes.script = flooding((agent) => {
    for (let n = 0; n < 50; n++) agent.say('x'.repeat(1000))
  })
  const { session } = await service.create(orgId, simple)
  await goesOn(service, session.id)
  assert.ok((await world.store.head(session.id))!.streamBytes < 20_000)
})

test('pieces of drafts are kept nowhere, and more than an answer has count as lines', async () => {
  const service = world.serve({ limits: { turnLinesMax: 50 } })
  const piece = { type: 'assistant_draft', offset: 0, text: 'x' }
  world.sandboxes.script = flooding((agent) => {
    const lines = `${JSON.stringify(piece)}\n`.repeat(1000)
    for (let n = 0; n < 21; n++) agent.process.write(lines)
  })
  const { session } = await service.create(orgId, simple)
  await goesOn(service, session.id)
  assert.equal(await count(session.id, 'assistant_draft'), 0)
})

test('lines that are left out count as well: ready in a turn, files that changed, garbage', async () => {
  const service = world.serve({ limits: { turnLinesMax: 50 } })
  const floods = [
    (agent: FakeAgent) => agent.emit(ready),
    (agent: FakeAgent) => agent.emit({ type: 'artifact', path: '/a', summary: 's' }),
    (agent: FakeAgent) => agent.process.write('garbage\n'),
  ]
  for (const flood of floods) {
    world.sandboxes.script = flooding((agent) => {
      for (let n = 0; n < 500; n++) flood(agent)
    })
    const { session } = await service.create(orgId, simple)
    const { agents } = world.sandboxes
    await world.eventually('the end', async () => assert.equal(await count(session.id, 'turn_complete'), 1))
    assert.equal((await world.errors(session.id)).at(-1), 'output_limit')
    // The next agent may have been started and said nothing yet.
    await world.eventually('one ready of each', async () =>
      assert.equal(await count(session.id, 'ready'), agents.length),
    )
    await service.delete(orgId, session.id)
    await assertWhole(world, session.id)
    agents.length = 0
  }
})

test('a process says ready once, and may not go on saying it without a turn', async () => {
  const service = world.serve({ limits: { idleLinesMax: 30 } })
  const session = await world.idle(service)
  const [flooder] = world.sandboxes.agents
  for (let n = 0; n < 500; n++) flooder!.emit(ready)
  await world.eventually('the kill', () => assert.equal(flooder!.process.exitCode, 137))
  await world.eventually('the next agent', () => assert.equal(world.sandboxes.agents.length, 2))
  await world.until(session.id, 'idle')
  assert.equal(await count(session.id, 'ready'), 2)
  assert.deepEqual(await world.errors(session.id), ['output_limit'])
  await assertWhole(world, session.id)
})

test('errors outside of turns are few: a process that goes on is killed, and soon none is started unasked', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  const { script } = world.sandboxes
  world.sandboxes.script = {
    ...script,
    configure: (agent) => {
      agent.emit({ type: 'configured', model: 'demo', tools: [], cwd: '/workspace/app' })
      for (let n = 0; n < 100; n++) agent.emit(failure)
      return false
    },
  }
  for (let n = 0; n < 20; n++) world.sandboxes.agent.emit(failure)
  await world.eventually('the errors', async () => assert.equal((await world.errors(session.id)).length, 20))
  assert.equal(world.sandboxes.agent.process.exitCode, undefined)
  world.sandboxes.agent.emit(failure)
  await world.eventually('three agents', () => {
    assert.deepEqual(
      world.sandboxes.agents.map(({ process }) => process.exitCode),
      [137, 137, 137],
    )
  })
  await new Promise((resolve) => setTimeout(resolve, 50))
  assert.equal(world.sandboxes.agents.length, 3)
  assert.equal((await world.errors(session.id)).filter((code) => code === 'output_limit').length, 3)
  world.sandboxes.script = script
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await world.eventually('its turn', async () => assert.equal(await count(session.id, 'turn_complete'), 2))
  await assertWhole(world, session.id)
})

test('an agent that floods before it is configured is started three times, then the session has failed', async () => {
  const service = world.serve({ limits: { idleLinesMax: 30 } })
  world.sandboxes.script = {
    ...world.sandboxes.script,
    configure: (agent) => {
      for (let n = 0; n < 500; n++) agent.emit(ready)
      return false
    },
  }
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'failed')
  assert.equal(world.sandboxes.agents.length, 3)
  assert.equal((await world.eventTypes(session.id)).at(-1), 'session_failed')
})

test('what a session says in all its turns is bounded, for the next server too', async () => {
  const limits = { streamBytesMax: 60_000 }
  const first = world.serve({ limits })
  world.sandboxes.script = {
    turn: (agent) => {
      for (let n = 0; n < 20; n++) agent.say('x'.repeat(1000))
      agent.finish()
    },
  }
  const session = await world.idle(first)
  await first.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await world.eventually('two turns', async () => assert.equal(await count(session.id, 'turn_complete'), 2))
  await first.close()

  const second = world.serve({ limits })
  await second.start()
  await second.sendMessage(orgId, session.id, { message: 'c', userId: 'u1' })
  await world.until(session.id, 'failed')
  await world.eventually('the kill', () => assert.equal(world.sandboxes.agent.process.exitCode, 137))
  assert.deepEqual(await world.errors(session.id), ['output_limit'])
  assert.equal((await world.eventTypes(session.id)).at(-1), 'session_failed')
  assert.ok((await world.store.head(session.id))!.streamBytes < 62_000)
  await assertWhole(world, session.id)
})

test('a session that has said all it may takes no message any more', async () => {
  const service = world.serve({ limits: { streamBytesMax: 600 } })
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'failed')
  await assert.rejects(service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' }), refused('conflict'))
  await assertWhole(world, session.id)
  await service.delete(orgId, session.id)
})

const configuredLine = { type: 'configured', model: 'demo', tools: ['bash'], cwd: '/workspace/app' }

test('agents start a few at a time; each that is ready lets the next one begin', async () => {
  const service = world.serve({ limits: { agentStartsAtOnce: 3 }, timings: { agentStartPermitMs: 600_000 } })
  const asked: { emit(event: object): void }[] = []
  world.sandboxes.script = {
    ...answering,
    configure: (agent) => {
      asked.push(agent)
      return false
    },
  }
  const created = await Promise.all(Array.from({ length: 7 }, () => service.create(orgId, simple)))
  for (let configured = 0; configured < created.length; configured += 1) {
    await world.eventually('the next agent', () => assert.ok(asked.length > configured))
    await world.eventually('the others in their places', async () => {
      const activities = await Promise.all(created.map(async ({ session }) => (await world.types(session.id)).length))
      assert.equal(activities.filter((events) => events > 0).length, Math.min(configured + 2, created.length))
    })
    assert.equal(world.sandboxes.agents.length, Math.min(configured + 2, created.length))
    asked[configured]?.emit(configuredLine)
  }
  for (const { session } of created) await world.until(session.id, 'idle')
})

test('agents of one organisation that hang leave a place for those of another', async () => {
  const service = world.serve({ limits: { agentStartsAtOnce: 2 }, timings: { agentStartPermitMs: 600_000 } })
  world.sandboxes.script = { ...answering, configure: () => false }
  await Promise.all(Array.from({ length: 3 }, () => service.create(orgId, simple)))
  await world.eventually('the first agent', () => assert.equal(world.sandboxes.agents.length, 1))
  world.sandboxes.script = answering
  const other = await service.create('org_2', simple)
  await world.until(other.session.id, 'idle')
})

test('a sandbox that takes no files does not hold up the agents of others', async () => {
  const service = world.serve({ limits: { agentStartsAtOnce: 1 }, timings: { agentStartPermitMs: 50 } })
  const files = Promise.withResolvers<void>()
  const asked = Promise.withResolvers<void>()
  world.sandboxes.beforeMkdir = async () => {
    asked.resolve()
    await files.promise
  }
  const slow = await service.create(orgId, simple)
  await asked.promise
  world.sandboxes.beforeMkdir = async () => {}
  const other = await service.create(orgId, simple)
  await world.until(other.session.id, 'idle')
  assert.equal(world.sandboxes.agents.length, 1)
  files.resolve()
  await world.until(slow.session.id, 'idle')
})

test('a session that waits for its place behind an agent that hangs ends at once', async () => {
  const service = world.serve({ limits: { agentStartsAtOnce: 1 }, timings: { agentStartPermitMs: 600_000 } })
  world.sandboxes.script = { ...answering, configure: () => false }
  await service.create(orgId, simple)
  await world.eventually('the first agent', () => assert.equal(world.sandboxes.agents.length, 1))
  const [hanging] = world.sandboxes.agents
  world.sandboxes.script = answering
  const [leaving, waiting] = [await service.create(orgId, simple), await service.create(orgId, simple)]
  await world.eventually('both sandboxes', () => assert.equal(world.sandboxes.machines.size, 3))
  await service.delete(orgId, leaving.session.id)
  assert.equal(world.sandboxes.agents.length, 1)
  hanging!.emit(configuredLine)
  await world.until(waiting.session.id, 'idle')
  assert.equal(world.sandboxes.agents.length, 2)
})

test('agents that hang do not hold up those of others', async () => {
  const service = world.serve({ limits: { agentStartsAtOnce: 1 }, timings: { agentStartPermitMs: 300 } })
  world.sandboxes.script = { ...answering, configure: () => false }
  const hanging = await service.create(orgId, simple)
  await world.eventually('the first agent', () => assert.equal(world.sandboxes.agents.length, 1))
  world.sandboxes.script = answering
  const waiting = await service.create(orgId, simple)
  await world.until(waiting.session.id, 'idle')
  assert.equal((await world.store.session(hanging.session.id))?.activity, 'starting')
  assert.equal(world.sandboxes.agents.length, 2)
})
