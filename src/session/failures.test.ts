import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../errors.ts'
import type { SandboxService } from '../sandbox/index.ts'
import type { SessionStore } from './store.ts'
import { assertWhole, orgId, refused, simple, useWorld } from './testing/world.ts'

const world = useWorld()

test('a failed boot is told, and the next message tries again under the same id', async () => {
  const service = world.serve()
  world.sandboxes.beforeCreate = () => Promise.reject(new ServiceError('patch_failed', 'the patch exits with 1'))
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'failed')
  const [error] = await world.streamed(session.id)
  assert.deepEqual(error?.data, {
    type: 'error',
    code: 'patch_failed',
    message: 'The sandbox could not be started: the patch exits with 1.',
    fatal: false,
  })
  assert.deepEqual(await world.eventTypes(session.id), ['session_started', 'session_failed'])
  world.sandboxes.beforeCreate = async () => {}
  await world.turn(service, session.id, 'again')
  const messages = world.sandboxes.agent.commands.filter(({ type }) => type === 'message')
  assert.deepEqual(
    messages.map(({ content }) => content),
    ['a page', 'again'],
  )
  assert.equal((await world.store.session(session.id))?.sandboxId, session.sandboxId)
  await assertWhole(world, session.id)
})

test('an agent that refuses its configuration fails the session until the next message', async () => {
  const service = world.serve()
  const script = world.sandboxes.script
  world.sandboxes.script = {
    ...script,
    configure: (agent) => {
      agent.emit({ type: 'error', message: 'no such model', code: 'configure_failed', fatal: false })
      return false
    },
  }
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'failed')
  await world.eventually('the kill', () => assert.equal(world.sandboxes.agents[0]!.process.exitCode, 137))
  world.sandboxes.script = script
  await world.turn(service, session.id, 'again')
  await assertWhole(world, session.id)
})

test('an agent that does not say a word is started three times, then the session has failed', async () => {
  const service = world.serve({ timings: { agentStartMs: 20 } })
  world.sandboxes.script = { ...world.sandboxes.script, configure: () => false }
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'failed')
  assert.equal(world.sandboxes.agents.length, 3)
  assert.equal((await world.eventTypes(session.id)).at(-1), 'session_failed')
})

test('an agent that does not start in time is killed, although it talks and the first attempt fails', async () => {
  let kills = 0
  const slow: SessionStore = {
    ...world.store,
    async commit(sessionId, change) {
      // The next line waits already when this one is written.
      if (change.session?.agentOffset) world.sandboxes.agent.emit({ type: 'ready', harness: 'pi', version: '1' })
      await new Promise((resolve) => setTimeout(resolve, 10))
      return await world.store.commit(sessionId, change)
    },
  }
  const service = world.serve({ timings: { agentStartMs: 50 } }, (port) => {
    if ((port as object) === world.store) return slow as typeof port
    const { exec } = port as unknown as SandboxService
    const { kill } = exec
    exec.kill = async (...args) => {
      kills += 1
      if (kills === 1) throw new ServiceError('unavailable', 'the guest is busy')
      return await kill(...args)
    }
    return port
  })
  world.sandboxes.script = { ...world.sandboxes.script, configure: () => false }
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'failed')
  assert.deepEqual(
    world.sandboxes.agents.map(({ process }) => process.exitCode),
    [137, 137, 137],
  )
  assert.ok(kills > 3)
})

test('a sandbox that does not say which ports listen does not keep a turn from ending', async () => {
  const service = world.serve()
  world.sandboxes.beforePorts = () => new Promise(() => {})
  const session = await world.idle(service)
  await world.turn(service, session.id, 'b')
  assert.equal((await world.eventTypes(session.id)).includes('preview_ready'), false)
  await assertWhole(world, session.id)
})

test('the next server reads no texts before it needs them, and configures its agents with them', async () => {
  const skills = { '/opt/x/SKILL.md': 'text' }
  const first = world.serve()
  const { session } = await first.create(orgId, { ...simple, agentConfig: { systemPrompt: 'Be brief.', skills } })
  await world.until(session.id, 'idle')
  const [configure] = world.sandboxes.agent.commands
  await first.close()
  let reads = 0
  const counting: SessionStore = {
    ...world.store,
    async instructions(...args) {
      reads += 1
      return await world.store.instructions(...args)
    },
    async skills(...args) {
      reads += 1
      return await world.store.skills(...args)
    },
  }
  const second = world.serve({}, (port) => ((port as object) === world.store ? (counting as typeof port) : port))
  await second.start()
  const { process } = world.sandboxes.agent
  await world.eventually('it is attached', () => assert.equal(process.attachmentCount, 1))
  process.write('garbage\n')
  await world.eventually('it is heard', async () => assert.ok((await world.types(session.id)).includes('error')))
  assert.equal(reads, 0)
  process.exit(137)
  await world.eventually('the next agent', () => assert.equal(world.sandboxes.agents.length, 2))
  await world.until(session.id, 'idle')
  assert.deepEqual(world.sandboxes.agent.commands[0], configure)
})

test('a killed agent is started again, and the turn goes on with one result', async () => {
  const service = world.serve()
  const { script } = world.sandboxes
  world.sandboxes.script = {
    turn: (agent, content, resumed) => (resumed ? script.turn(agent, content, resumed) : agent.say('begun')),
  }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the answer', async () => assert.ok((await world.types(session.id)).includes('assistant')))
  world.sandboxes.agent.process.exit(137)
  await world.until(session.id, 'idle')
  assert.equal(world.sandboxes.agents.length, 2)
  const errors = (await world.streamed(session.id)).filter(({ data }) => data.type === 'error')
  assert.deepEqual(
    errors.map(({ data }) => [data['code'], data['fatal']]),
    [['agent_exited', false]],
  )
  await assertWhole(world, session.id)
})

test('a turn that kills three agents ends with an error, and the next message is dealt with', async () => {
  const service = world.serve()
  const { script } = world.sandboxes
  world.sandboxes.script = {
    turn: (agent, content, resumed) =>
      content === 'good' ? script.turn(agent, content, resumed) : agent.process.exit(139),
  }
  const { session } = await service.create(orgId, simple)
  await world.turn(service, session.id, 'good')
  assert.deepEqual(await world.subtypes(session.id), ['error_during_execution', 'success'])
  await assertWhole(world, session.id)
})

test('agents that die before they are configured cost the turn nothing that waits for them', async () => {
  const service = world.serve()
  const { script } = world.sandboxes
  world.sandboxes.script = {
    turn: (agent, content, resumed) => (resumed ? script.turn(agent, content, resumed) : agent.process.exit(137)),
    configure: (agent) => {
      const { agents } = world.sandboxes
      if (agent === agents[1] || agent === agents[2]) agent.process.exit(137)
      return agent.process.exitCode === undefined
    },
  }
  const session = await world.idle(service)
  assert.equal(world.sandboxes.agents.length, 4)
  const ends = (await world.streamed(session.id)).filter(({ data }) => ['error', 'result'].includes(data.type))
  assert.deepEqual(
    ends.map(({ data }) => data['code'] ?? data['subtype']),
    ['agent_exited', 'success'],
  )
  await assertWhole(world, session.id)
})

test('an agent that dies between result and turn_complete leaves a complete turn', async () => {
  const service = world.serve()
  world.sandboxes.script = {
    turn: (agent) => {
      agent.result()
      agent.process.exit(1)
    },
  }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the end', async () => assert.ok((await world.types(session.id)).includes('turn_complete')))
  await assertWhole(world, session.id)
  assert.equal((await world.types(session.id)).includes('error'), false)
})

test('a broken attachment is made again by offset: nothing lost, nothing twice', async () => {
  const service = world.serve()
  world.sandboxes.script = { turn: () => {} }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the turn', () => assert.equal(world.sandboxes.agent?.commands.length, 2))
  const { agent } = world.sandboxes
  const said: string[] = []
  for (let n = 0; n < 30; n++) {
    said.push(`line ${n}`)
    agent.say(`line ${n}`)
    if (n % 5 === 0) agent.process.breakAttachments()
    if (n % 3 === 0) await new Promise((resolve) => setImmediate(resolve))
  }
  agent.finish()
  await world.until(session.id, 'idle')
  const texts = (await world.streamed(session.id)).filter(({ data }) => data.type === 'assistant')
  assert.deepEqual(
    texts.map(({ data }) => (data['message'] as { content: { text: string }[] }).content[0]!.text),
    said,
  )
  await assertWhole(world, session.id)
})

test('garbage and endless lines give one warning and stop nothing', async () => {
  const service = world.serve()
  const { script } = world.sandboxes
  world.sandboxes.script = {
    turn: (agent, content, resumed) => {
      agent.process.write('garbage\n{"type":\n')
      agent.process.write(Buffer.alloc(10_000, 120))
      agent.process.write('x\n')
      agent.process.write('to the operator\n', 'stderr')
      script.turn(agent, content, resumed)
    },
  }
  const session = await world.idle(service)
  assert.deepEqual(await world.errors(session.id), ['agent_output_invalid'])
  await assertWhole(world, session.id)
  const { process } = world.sandboxes.agent
  await world.eventually('all is acknowledged', () => assert.equal(process.acknowledged, process.log.length))
})

test('events out of order are left out: a second result, a foreign turn_complete, talk between turns', async () => {
  const service = world.serve()
  const { script } = world.sandboxes
  const result = { type: 'result', subtype: 'success', result: '', num_turns: 0, duration_ms: 0, session_id: 's' }
  world.sandboxes.script = {
    turn: (agent, content, resumed) => {
      agent.emit({ type: 'turn_complete', message_id: 'msg_other', session_id: 's' })
      script.turn(agent, content, resumed)
      agent.emit(result)
      agent.say('still here')
    },
  }
  const { session } = await service.create(orgId, simple)
  await world.turn(service, session.id, 'b')
  await assertWhole(world, session.id)
})

test('the sandbox hibernates and a message wakes it, its agent with it', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  await world.hibernate(session)
  // Nobody attaches again and wakes it.
  await new Promise((resolve) => setTimeout(resolve, 50))
  assert.equal(world.sandboxes.machine(session.sandboxId).sandbox.status, 'hibernated')
  await world.turn(service, session.id, 'wake up')
  assert.equal(world.sandboxes.agents.length, 1)
  assert.deepEqual((await world.eventTypes(session.id)).slice(-4), [
    'sandbox_hibernated',
    'sandbox_resumed',
    'turn_started',
    'turn_completed',
  ])
  await assertWhole(world, session.id)
})

test('a sandbox that wakes without its processes gets a new agent with the next message', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  world.sandboxes.hibernateWithoutMemory(session.sandboxId)
  await world.eventually('the event', async () => {
    assert.equal((await world.eventTypes(session.id)).at(-1), 'sandbox_hibernated')
  })
  world.sandboxes.set(session.sandboxId, 'running')
  await world.eventually('the event', async () => {
    assert.equal((await world.eventTypes(session.id)).at(-1), 'sandbox_resumed')
  })
  await world.turn(service, session.id, 'wake up')
  assert.equal(world.sandboxes.agents.length, 2)
  await assertWhole(world, session.id)
})

test('a lost sandbox fails the session with its reason and ends the turn', async () => {
  const service = world.serve()
  world.sandboxes.script = { turn: (agent) => agent.say('thinking') }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the answer', async () => assert.ok((await world.types(session.id)).includes('assistant')))
  world.sandboxes.set(session.sandboxId, 'error', 'oom')
  await world.until(session.id, 'failed')
  const told = (await world.streamed(session.id)).find(({ data }) => data.type === 'error')
  assert.equal(told?.data['code'], 'oom')
  assert.deepEqual(
    (await world.eventTypes(session.id)).filter((type) => type === 'session_failed'),
    ['session_failed'],
  )
  await assertWhole(world, session.id)
  await assert.rejects(service.sendMessage(orgId, session.id, { message: 'more', userId: 'u1' }), refused('conflict'))
  await service.delete(orgId, session.id)
})

test('the loss of a sandbox that could not be written down is told when it can be', async () => {
  let broken = false
  let failures = 0
  const flaky: SessionStore = {
    ...world.store,
    async commit(sessionId, change) {
      const tells = change.addEvents?.some(({ type }) => type === 'session_failed') ?? false
      if (!broken || !tells) return await world.store.commit(sessionId, change)
      failures += 1
      throw new ServiceError('unavailable', 'the database is away')
    },
  }
  const service = world.serve({}, (port) => ((port as object) === world.store ? (flaky as typeof port) : port))
  world.sandboxes.script = { turn: (agent) => agent.say('thinking') }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the answer', async () => assert.ok((await world.types(session.id)).includes('assistant')))
  broken = true
  world.sandboxes.set(session.sandboxId, 'stopped')
  await world.eventually('it was tried', () => assert.ok(failures > 2))
  broken = false
  await world.until(session.id, 'failed')
  assert.equal((await world.eventTypes(session.id)).filter((type) => type === 'session_failed').length, 1)
  await assertWhole(world, session.id)
})

test('a deletion that cannot kill the sandbox is told, and the session goes on', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  world.sandboxes.beforeDelete = () => Promise.reject(new ServiceError('unavailable', 'the machine is busy'))
  await assert.rejects(service.delete(orgId, session.id), refused('unavailable'))
  await world.turn(service, session.id, 'still there?')
  await assertWhole(world, session.id)
  world.sandboxes.beforeDelete = async () => {}
  await service.delete(orgId, session.id)
  assert.equal((await world.store.session(session.id))?.status, 'ended')
})

test('a message that comes while the hibernation is being told still wakes the sandbox', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  for (let round = 0; round < 5; round++) {
    world.sandboxes.set(session.sandboxId, 'hibernated')
    for (let turn = 0; turn < round; turn++) await new Promise((resolve) => setImmediate(resolve))
    await world.turn(service, session.id, `wake ${round}`)
  }
  await assertWhole(world, session.id)
})

test('a turn that was hibernated by hand stays asleep until something wakes the sandbox', async () => {
  const service = world.serve()
  world.sandboxes.script = { turn: (agent) => agent.say('thinking') }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the answer', async () => assert.ok((await world.types(session.id)).includes('assistant')))
  world.sandboxes.set(session.sandboxId, 'hibernated')
  await new Promise((resolve) => setTimeout(resolve, 50))
  assert.equal(world.sandboxes.machine(session.sandboxId).sandbox.status, 'hibernated')
  world.sandboxes.set(session.sandboxId, 'running')
  world.sandboxes.agent.finish()
  await world.until(session.id, 'idle')
  await assertWhole(world, session.id)
})

test('another server goes on with what waited, and leaves ended sessions alone', async () => {
  const first = world.serve()
  world.sandboxes.script = { turn: () => {} }
  const { session } = await first.create(orgId, simple)
  await first.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await world.eventually('the turn', () => assert.equal(world.sandboxes.agent?.commands.length, 2))
  await first.close()
  await assert.rejects(first.create(orgId, simple), refused('unavailable'))
  // What the agent says while no server is there.
  world.sandboxes.agent.say('alone')
  world.sandboxes.agent.finish()
  const second = world.serve()
  await second.start()
  await world.eventually('the next message', () => {
    assert.equal(world.sandboxes.agent.commands.at(-1)?.content, 'b')
  })
  world.sandboxes.agent.finish()
  await world.until(session.id, 'idle')
  assert.equal((await world.types(session.id)).filter((type) => type === 'assistant').length, 1)
  await assertWhole(world, session.id)
})
