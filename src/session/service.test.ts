import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../errors.ts'
import type { StreamEvent } from './session.ts'
import type { StreamBatch } from './stream.ts'
import { assertWhole, orgId, refused, simple, useWorld } from './testing/world.ts'

const world = useWorld()

test('a session and its fields come back from the database as they were', async () => {
  const service = world.serve()
  const { session } = await service.create(orgId, {
    ...simple,
    userEmail: 'u@example.com',
    userName: 'U',
    agentConfig: { skills: { 'a/SKILL.md': 'text' }, allowedTools: ['bash'], maxTurns: 5, maxTokens: 1000 },
  })
  await world.until(session.id, 'idle')
  await assertWhole(world, session.id)
  const view = await service.get(orgId, session.id)
  const { skills, ...config } = session.agentConfig
  assert.deepEqual(view.session.agentConfig, { ...config, skills: {} })
  assert.deepEqual(await world.store.skills(session.id), skills)
  assert.equal(view.session.userEmail, 'u@example.com')
  assert.deepEqual(view.session.artifacts, [{ path: '/workspace/app/a page.html', summary: 'a page' }])
})

test('of two sessions with one name one is made, and its end frees the name', async () => {
  const service = world.serve()
  const named = { ...simple, name: 'chat' }
  const [first, second] = await Promise.allSettled([service.create(orgId, named), service.create(orgId, named)])
  const [made, other] = first.status === 'fulfilled' ? [first, second] : [second, first]
  assert.ok(made.status === 'fulfilled' && other.status === 'rejected')
  assert.ok(isServiceError(other.reason, 'conflict'))
  assert.equal(other.reason.details['field'], 'name')
  assert.equal(made.value.session.name, 'chat')
  assert.equal((await service.get(orgId, made.value.session.id)).session.name, 'chat')
  await assert.rejects(service.create(orgId, named), refused('conflict'))
  await service.delete(orgId, made.value.session.id)
  assert.equal((await service.create(orgId, named)).session.name, 'chat')
  await assert.rejects(service.create(orgId, { ...simple, name: 'session-1' }), refused('invalid_request'))
})

test('a session becomes a finished turn: its events, its message, its project', async () => {
  const service = world.serve()
  const { session, messages, events, previewUrl } = await service.create(orgId, {
    ...simple,
    prompt: '\n  a page\nand more',
    agentConfig: {
      systemPrompt: 'Be brief.',
      skills: { 'web/SKILL.md': 'relative', '/opt/x/SKILL.md': 'absolute' },
      envs: { COLOUR: 'red' },
    },
  })
  assert.equal(session.status, 'running')
  assert.equal(session.activity, 'starting')
  assert.equal(session.title, 'a page')
  assert.equal(previewUrl, `http://${session.sandboxId}-p3000.preview.test:4100`)
  assert.deepEqual(
    messages.map(({ role, state }) => [role, state]),
    [['user', 'queued']],
  )
  assert.deepEqual(
    events.map(({ type }) => type),
    ['session_started'],
  )
  await world.until(session.id, 'idle')

  const types = await world.types(session.id)
  assert.deepEqual(types, [
    'ready',
    'configured',
    'assistant',
    'tool_use_summary',
    'assistant',
    'result',
    'turn_complete',
  ])
  await assertWhole(world, session.id)
  const after = await service.get(orgId, session.id)
  assert.deepEqual(
    after.messages.map(({ role, state }) => [role, state]),
    [
      ['user', 'consumed'],
      ['assistant', undefined],
    ],
  )
  assert.match(after.messages[1]!.content, /^working on [\s\S]*\n\ndone with /)
  assert.deepEqual(
    after.events.map(({ type }) => type),
    ['session_started', 'sandbox_ready', 'agent_ready', 'turn_started', 'turn_completed'],
  )
  const { files } = world.sandboxes.machine(session.sandboxId)
  assert.equal(files.get('/workspace/agent/web/SKILL.md'), 'relative')
  assert.equal(files.get('/opt/x/SKILL.md'), 'absolute')
  assert.ok(files.has('/workspace/app/'))
  assert.deepEqual(world.sandboxes.created, [{ id: session.sandboxId, envs: { COLOUR: 'red' } }])
  const [configure] = world.sandboxes.agent.commands
  assert.deepEqual(configure, {
    type: 'configure',
    sessionId: session.id,
    harness: 'pi',
    model: { provider: 'demo', id: 'demo' },
    cwd: '/workspace/app',
    systemPrompt: 'Be brief.',
    skillFiles: ['/opt/x/SKILL.md'],
  })
  assert.equal(world.sandboxes.agent.process.argv.at(-1), 'pi')
})

test('the token of the gateway is in the agent alone, known by its hash, and dead with the session', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  const { createHash } = await import('node:crypto')
  const token = world.sandboxes.agent.process.envs['ATOLL_GATEWAY_TOKEN']!
  const hash = createHash('sha256').update(token).digest('hex')
  assert.equal((await world.store.meteredByGatewayToken(hash))?.id, session.id)
  assert.equal(JSON.stringify(await service.get(orgId, session.id)).includes(token), false)
  await service.delete(orgId, session.id)
  assert.equal(await world.store.meteredByGatewayToken(hash), undefined)
})

test('messages wait their turn in order, each with a turn of its own', async () => {
  const service = world.serve()
  const script = world.sandboxes.script
  world.sandboxes.script = {
    turn: (agent, content, resumed) => setTimeout(() => script.turn(agent, content, resumed), 3),
  }
  const { session } = await service.create(orgId, simple)
  for (const message of ['b', 'c', 'd']) await service.sendMessage(orgId, session.id, { message, userId: 'u1' })
  await world.until(session.id, 'idle')
  const messages = world.sandboxes.agent.commands.filter(({ type }) => type === 'message')
  assert.deepEqual(
    messages.map(({ content }) => content),
    ['a page', 'b', 'c', 'd'],
  )
  await assertWhole(world, session.id)
  const view = await service.get(orgId, session.id)
  assert.deepEqual(
    view.session.artifacts.map(({ path }) => path),
    ['/workspace/app/d.html', '/workspace/app/c.html', '/workspace/app/b.html', '/workspace/app/a page.html'],
  )
})

test('a message is refused when blank, too long, of another user, or after the end', async () => {
  const service = world.serve({ limits: { messageBytesMax: 10 } })
  const { session } = await service.create(orgId, simple)
  const send = (message: string, userId = 'u1') => service.sendMessage(orgId, session.id, { message, userId })
  await assert.rejects(send(' \n'), refused('invalid_request'))
  await assert.rejects(send('ééééééé'), refused('too_large'))
  await assert.rejects(send('hello', 'u2'), refused('forbidden'))
  await assert.rejects(service.sendMessage('org_2', session.id, { message: 'x', userId: 'u1' }), refused('not_found'))
  await service.delete(orgId, session.id)
  await assert.rejects(send('hello'), refused('conflict'))
})

test('the queue is bounded', async () => {
  const service = world.serve({ limits: { queuedMessagesMax: 2 } })
  world.sandboxes.script = { turn: () => {} }
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'working')
  await world.eventually('the turn', async () => {
    assert.equal((await world.store.messages(session.id))[0]!.state, 'started')
  })
  for (const message of ['1', '2']) await service.sendMessage(orgId, session.id, { message, userId: 'u1' })
  await assert.rejects(service.sendMessage(orgId, session.id, { message: '3', userId: 'u1' }), refused('rate_limited'))
})

test('another owner sees nothing, and may not interrupt', async () => {
  const service = world.serve()
  const { session } = await service.create(orgId, simple)
  const missing = (error: unknown) => isServiceError(error, 'not_found')
  await assert.rejects(service.get(orgId, session.id, 'u2'), missing)
  await assert.rejects(service.get('org_2', session.id), missing)
  await assert.rejects(service.delete(orgId, session.id, 'u2'), missing)
  const signal = new AbortController().signal
  await assert.rejects(service.stream(orgId, session.id, { after: 0, signal, userId: 'u2' }), missing)
  await assert.rejects(service.interrupt(orgId, session.id, 'u2'), refused('forbidden'))
  assert.equal((await service.list(orgId, { userId: 'u2' })).items.length, 0)
  assert.equal((await service.list(orgId, { userId: 'u1' })).items.length, 1)
})

test('an interrupt ends the running turn once, and does nothing without one', async () => {
  const service = world.serve()
  world.sandboxes.script = { turn: (agent) => agent.say('thinking') }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the answer', async () => assert.ok((await world.types(session.id)).includes('assistant')))
  await service.interrupt(orgId, session.id, 'u1')
  await world.until(session.id, 'idle')
  const result = (await world.streamed(session.id)).find(({ data }) => data.type === 'result')
  assert.equal(result?.data['subtype'], 'interrupted')
  const before = await world.types(session.id)
  await service.interrupt(orgId, session.id, 'u1')
  assert.deepEqual(await world.types(session.id), before)
  assert.equal(world.sandboxes.agent.commands.filter(({ type }) => type === 'interrupt').length, 1)
  await assertWhole(world, session.id)
})

test('a turn holds the sandbox awake; an idle agent does not', async () => {
  const service = world.serve()
  world.sandboxes.script = { turn: (agent) => agent.say('thinking') }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the answer', async () => assert.ok((await world.types(session.id)).includes('assistant')))
  const { holds } = world.sandboxes
  assert.equal(holds.get(session.sandboxId), 1)
  world.sandboxes.agent.finish()
  await world.eventually('the release', () => assert.equal(holds.get(session.sandboxId), 0))
})

test('a deletion kills the sandbox, cancels what waits, ends the turn and closes streams', async () => {
  const service = world.serve()
  world.sandboxes.script = { turn: (agent) => agent.say('thinking') }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the answer', async () => assert.ok((await world.types(session.id)).includes('assistant')))
  await service.sendMessage(orgId, session.id, { message: 'waiting', userId: 'u1' })
  const stream = await service.stream(orgId, session.id, { after: 0, signal: new AbortController().signal })
  assert.equal(stream.exhausted, false)
  const reading = collect(stream, ({ data }) => data.type)
  await service.delete(orgId, session.id)
  assert.deepEqual((await reading).slice(-2), ['result', 'turn_complete'])
  await service.delete(orgId, session.id)
  const view = await service.get(orgId, session.id)
  assert.deepEqual([view.session.status, view.session.activity], ['ended', 'ended'])
  assert.deepEqual(
    view.messages.filter(({ role }) => role === 'user').map(({ state }) => state),
    ['consumed', 'cancelled'],
  )
  assert.equal(view.events.at(-1)?.type, 'session_ended')
  assert.equal(
    view.events.some(({ type }) => type === 'session_failed'),
    false,
  )
  assert.equal(world.sandboxes.machine(session.sandboxId).sandbox.status, 'stopped')
  const last = await world.store.lastSequence(session.id)
  const again = await service.stream(orgId, session.id, { after: last, signal: new AbortController().signal })
  assert.equal(again.exhausted, true)
  assert.equal((await collect(again)).length, 0)
  await assertWhole(world, session.id)
})

test('a place beyond the newest event is that of the newest: what is said from then on arrives', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  const last = await world.store.lastSequence(session.id)
  const stream = await service.stream(orgId, session.id, { after: 5000, signal: new AbortController().signal })
  assert.equal(stream.exhausted, false)
  const reading = collect(stream, ({ sequence }) => sequence)
  await world.turn(service, session.id, 'b')
  await service.delete(orgId, session.id)
  const seen = await reading
  assert.equal(seen[0], last + 1)
  assert.equal(seen.at(-1), await world.store.lastSequence(session.id))
  const after = await service.stream(orgId, session.id, { after: 5000, signal: new AbortController().signal })
  assert.equal(after.exhausted, true)
})

test('a deletion during the boot leaves no sandbox behind', async () => {
  const service = world.serve()
  const booting = Promise.withResolvers<void>()
  const go = Promise.withResolvers<void>()
  world.sandboxes.beforeCreate = () => {
    booting.resolve()
    return go.promise
  }
  const { session } = await service.create(orgId, simple)
  await booting.promise
  const deleted = service.delete(orgId, session.id)
  go.resolve()
  await deleted
  assert.equal(world.sandboxes.machine(session.sandboxId).sandbox.status, 'stopped')
  assert.equal((await world.store.session(session.id))?.status, 'ended')
})

test('the preview is announced once when its port listens, and the framework is known with the turn', async () => {
  const service = world.serve()
  const { script } = world.sandboxes
  world.sandboxes.script = {
    turn: (agent, content, resumed) => {
      const machine = [...world.sandboxes.machines.values()][0]!
      machine.files.set('/workspace/app/package.json', '{"dependencies":{"react":"19"},"devDependencies":{"vite":"7"}}')
      script.turn(agent, content, resumed)
      setTimeout(() => machine.ports.push(3000), 8)
    },
  }
  const { session } = await service.create(orgId, simple)
  await world.eventually('turn_complete', async () => {
    assert.equal((await world.types(session.id)).at(-1), 'turn_complete')
  })
  assert.equal((await world.store.session(session.id))?.framework, 'react')
  await world.eventually('preview', async () => {
    assert.ok((await world.eventTypes(session.id)).includes('preview_ready'))
  })
  await world.turn(service, session.id, 'more')
  assert.equal((await world.eventTypes(session.id)).filter((type) => type === 'preview_ready').length, 1)
})

test('a checkpoint is started from; one that does not exist is not found at once', async () => {
  const service = world.serve()
  await assert.rejects(service.create(orgId, { ...simple, checkpointId: 'cp-unknown' }), refused('not_found'))
  const { session } = await service.create(orgId, { ...simple, checkpointId: 'cp-1' })
  await world.until(session.id, 'idle')
  assert.equal(world.sandboxes.created[0]?.checkpointId, 'cp-1')
})

test('an agent begins in the folder that the image of its checkpoint names', async () => {
  const service = world.serve()
  world.sandboxes.commandDefaults = { cwd: '/srv/app' }
  const { session } = await service.create(orgId, { ...simple, checkpointId: 'cp-1' })
  assert.equal(session.agentConfig.cwd, '/srv/app')
  const given = { ...simple, agentConfig: { cwd: '/given' }, checkpointId: 'cp-1' }
  assert.equal((await service.create(orgId, given)).session.agentConfig.cwd, '/given')
})

test('a stream joins what is stored and what comes, from any number on', async () => {
  const service = world.serve()
  world.sandboxes.script = { turn: () => {} }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the turn', () => assert.equal(world.sandboxes.agent?.commands.length, 2))
  const readers = [0, 1, 2].map(async (after) => {
    const stream = await service.stream(orgId, session.id, { after, signal: new AbortController().signal })
    return await collect(stream, ({ sequence }) => sequence)
  })
  const { agent } = world.sandboxes
  for (let n = 0; n < 100; n++) {
    agent.say(`line ${n}`)
    if (n % 10 === 0) await new Promise((resolve) => setImmediate(resolve))
  }
  agent.finish()
  await world.until(session.id, 'idle')
  await service.delete(orgId, session.id)
  const all = (await world.streamed(session.id)).map(({ sequence }) => sequence)
  for (const [index, reader] of readers.entries()) assert.deepEqual(await reader, all.slice(index))
})

test('replays of a long history leave the server time for other work', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  await world.store.commit(session.id, { addStream: Array.from({ length: 1600 }, () => ({ type: 'ready' })) })
  await service.delete(orgId, session.id)
  let ticks = 0
  let done = false
  const tick = () => {
    ticks += 1
    if (!done) setImmediate(tick)
  }
  setImmediate(tick)
  const signal = new AbortController().signal
  const readers = Array.from({ length: 8 }, async () =>
    collect(await service.stream(orgId, session.id, { after: 0, signal }), ({ sequence }) => sequence),
  )
  for (const read of await Promise.all(readers)) {
    assert.deepEqual(
      read,
      Array.from({ length: 1607 }, (_, index) => index + 1),
    )
  }
  done = true
  // Eight times forty-six full pages, a few at a time; the newest events need none.
  assert.ok(ticks >= 92, `only ${ticks}`)
})

test('a stream ends when its signal aborts, and when the service closes', async () => {
  const service = world.serve()
  const session = await world.idle(service)
  const leaving = new AbortController()
  const opened = await Promise.all(
    [leaving.signal, new AbortController().signal].map((signal) =>
      service.stream(orgId, session.id, { after: 0, signal }),
    ),
  )
  const [one, two] = opened.map((stream) => stream[Symbol.asyncIterator]())
  for (const reader of [one!, two!]) {
    const { value: events } = (await reader.next()) as IteratorYieldResult<readonly StreamEvent[]>
    assert.deepEqual(
      events.map(({ sequence }) => sequence),
      [1, 2, 3, 4, 5, 6, 7],
    )
  }
  const [oneEnds, twoEnds] = [one!.next(), two!.next()]
  leaving.abort()
  assert.equal((await oneEnds).done, true)
  await service.close()
  assert.equal((await twoEnds).done, true)
})

async function collect<Value = StreamEvent>(
  stream: AsyncIterable<StreamBatch>,
  map: (event: StreamEvent) => Value = (event) => event as Value,
): Promise<Value[]> {
  const values: Value[] = []
  for await (const batch of stream) if (!('text' in batch)) values.push(...batch.map(map))
  return values
}

test('a token outlives the server that made it, opens its own session alone, and ends with it but for the stream', async () => {
  const first = world.serve()
  const { session } = await first.create(orgId, simple)
  const { session: other } = await first.create(orgId, simple)
  await world.until(session.id, 'idle')
  const { token: read } = await first.createToken(orgId, session.id, { userId: 'u1', scope: 'read' })
  const { token: steer, expiresAt } = await first.createToken(orgId, session.id, { userId: 'u1', scope: 'steer' })
  await assert.rejects(first.createToken(orgId, session.id, { userId: 'u2', scope: 'read' }), refused('forbidden'))
  await first.close()
  const second = world.serve()
  await second.start()
  assert.deepEqual(await second.access(steer, session.id, 'steer'), { orgId, expiresAt })
  await second.access(read, session.id, 'read')
  await assert.rejects(second.access(read, session.id, 'steer'), refused('forbidden'))
  await assert.rejects(second.access(read, other.id, 'read'), refused('not_found'))
  for (const forged of [
    '',
    '.',
    'st.read',
    `${read}A`,
    read.replace('.read.', '.steer.'),
    read.replace(session.id, other.id),
  ]) {
    for (const id of [session.id, other.id]) {
      await assert.rejects(second.access(forged, id, 'read'), refused('unauthorized'))
    }
  }
  await second.delete(orgId, session.id)
  await second.access(read, session.id, 'stream')
  for (const use of ['read', 'steer'] as const) {
    await assert.rejects(second.access(steer, session.id, use), refused('unauthorized'))
  }
  await assert.rejects(second.createToken(orgId, session.id, { userId: 'u1', scope: 'read' }), refused('conflict'))
})
