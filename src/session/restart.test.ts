import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { ServiceError } from '../errors.ts'
import type { Sessions } from './service.ts'
import type { Session } from './session.ts'
import { FakeAgent } from './testing/fake-agent.ts'
import { FakeProcess } from './testing/fake-process.ts'
import { assertWhole, orgId, refused, simple, useWorld } from './testing/world.ts'

const world = useWorld()
let service: Sessions
beforeEach(() => {
  service = world.serve()
})

const owner = { userId: 'u1' }

async function lose(session: Session, status: 'stopped' | 'error' = 'error'): Promise<void> {
  world.sandboxes.set(session.sandboxId, status, 'oom')
  await world.until(session.id, 'failed')
}

test('a page that is served again in a new sandbox is announced again', async () => {
  const session = await world.idle(service)
  const announced = async (sandboxId: string, times: number) => {
    world.sandboxes.machine(sandboxId).ports.push(3000)
    await service.sendMessage(orgId, session.id, { message: 'serve', ...owner })
    await world.eventually('preview', async () => {
      assert.equal((await world.eventTypes(session.id)).filter((type) => type === 'preview_ready').length, times)
    })
    await world.until(session.id, 'idle')
  }
  await announced(session.sandboxId, 1)
  await lose(session)
  const restarted = await service.restart(orgId, session.id, owner)
  await world.until(session.id, 'idle')
  await announced(restarted.session.sandboxId, 2)
})

test('a session whose sandbox was lost goes on in a new one, with skills, agent, preview URL and stream', async () => {
  const { session } = await service.create(orgId, { ...simple, agentConfig: { skills: { 'a/SKILL.md': 'text' } } })
  await world.until(session.id, 'idle')
  const before = await service.get(orgId, session.id)
  await lose(session)
  await assert.rejects(service.sendMessage(orgId, session.id, { message: 'b', ...owner }), refused('conflict'))
  const restarted = await service.restart(orgId, session.id, owner)
  const { sandboxId } = restarted.session
  assert.notEqual(sandboxId, session.sandboxId)
  assert.notEqual(restarted.previewUrl, before.previewUrl)
  // It may be up by now.
  assert.notEqual(restarted.session.activity, 'failed')
  await world.until(session.id, 'idle')
  await world.turn(service, session.id, 'b')
  await assertWhole(world, session.id)
  assert.equal(world.sandboxes.machine(session.sandboxId).sandbox.status, 'stopped')
  assert.equal(world.sandboxes.machine(sandboxId).sandbox.status, 'running')
  assert.equal(world.sandboxes.machine(sandboxId).files.get('/workspace/agent/a/SKILL.md'), 'text')
  const types = (await world.types(session.id)).filter((type) => type === 'ready' || type === 'configured')
  assert.deepEqual(types, ['ready', 'configured', 'ready', 'configured'])
  const events = await world.eventTypes(session.id)
  assert.equal(events.filter((type) => type === 'sandbox_ready').length, 2)
  // What becomes of the new one is noticed too.
  world.sandboxes.set(sandboxId, 'error', 'oom')
  await world.until(session.id, 'failed')
  await service.restart(orgId, session.id, owner)
  await world.until(session.id, 'idle')
  await service.delete(orgId, session.id)
  const running = [...world.sandboxes.machines.values()].filter(({ sandbox }) => sandbox.status !== 'stopped')
  assert.deepEqual(running, [])
  for (const count of world.sandboxes.holds.values()) assert.equal(count, 0)
})

test('messages that waited when the sandbox was lost have their turns in the new one', async () => {
  world.sandboxes.script = { turn: () => {} }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the turn', () => assert.equal(world.sandboxes.agent?.commands.length, 2))
  for (const message of ['b', 'c']) await service.sendMessage(orgId, session.id, { message, ...owner })
  await lose(session, 'stopped')
  world.sandboxes.script = { turn: (agent, content) => (agent.say(content), agent.finish()) }
  await service.restart(orgId, session.id, owner)
  await world.until(session.id, 'idle')
  await assertWhole(world, session.id)
  const messages = await world.store.messages(session.id)
  assert.deepEqual(
    messages.filter(({ role }) => role === 'user').map(({ content, state }) => [content, state]),
    [
      ['a page', 'consumed'],
      ['b', 'consumed'],
      ['c', 'consumed'],
    ],
  )
  assert.deepEqual(
    messages.filter(({ role }) => role === 'assistant').map(({ content }) => content),
    ['b', 'c'],
  )
})

test('a restart may begin from a checkpoint, whose own agents are killed', async () => {
  const session = await world.idle(service)
  await lose(session)
  await assert.rejects(
    service.restart(orgId, session.id, { ...owner, checkpointId: 'cp-unknown' }),
    refused('not_found'),
  )
  const old = world.sandboxes.agent
  world.sandboxes.inCheckpoint = [old.process]
  old.process.exitCode = undefined
  const { session: restarted } = await service.restart(orgId, session.id, { ...owner, checkpointId: 'cp-1' })
  assert.equal(restarted.checkpointId, 'cp-1')
  await world.until(session.id, 'idle')
  assert.deepEqual(world.sandboxes.created.at(-1)?.checkpointId, 'cp-1')
  assert.equal(old.process.exitCode, 137)
  assert.notEqual(world.sandboxes.agent, old)
})

test('a restart is refused while the sandbox is there, to others, and after the end', async () => {
  const session = await world.idle(service)
  await assert.rejects(service.restart(orgId, session.id, owner), refused('conflict'))
  world.sandboxes.set(session.sandboxId, 'hibernated')
  await assert.rejects(service.restart(orgId, session.id, owner), refused('conflict'))
  await lose(session)
  await assert.rejects(service.restart(orgId, session.id, { userId: 'u2' }), refused('forbidden'))
  await assert.rejects(service.restart('org_2', session.id, owner), refused('not_found'))
  await service.delete(orgId, session.id)
  await assert.rejects(service.restart(orgId, session.id, owner), refused('conflict'))
})

test('of two restarts at once one wins, and no sandbox is left behind', async () => {
  const session = await world.idle(service)
  await lose(session)
  // Each restart has read the session before one of them changes it.
  const allBegun = Promise.withResolvers<void>()
  let begun = 0
  world.sandboxes.beforeDelete = async () => {
    if (++begun === 3) allBegun.resolve()
    await allBegun.promise
  }
  const results = await Promise.allSettled([1, 2, 3].map(() => service.restart(orgId, session.id, owner)))
  assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 1)
  await world.until(session.id, 'idle')
  const running = [...world.sandboxes.machines.values()].filter(({ sandbox }) => sandbox.status === 'running')
  assert.equal(running.length, 1)
})

test('restart: a second one is refused until the sandbox of the first exists', async () => {
  const session = await world.idle(service)
  await lose(session)
  const boot = Promise.withResolvers<void>()
  world.sandboxes.beforeCreate = () => boot.promise
  const first = await service.restart(orgId, session.id, owner)
  await assert.rejects(service.restart(orgId, session.id, owner), refused('conflict'))
  boot.resolve()
  await world.until(session.id, 'idle')
  assert.equal((await service.get(orgId, session.id)).session.sandboxId, first.session.sandboxId)
  assert.deepEqual([...world.sandboxes.machines.keys()], [session.sandboxId, first.session.sandboxId])
  assert.equal((await world.eventTypes(session.id)).filter((type) => type === 'session_failed').length, 1)
})

test('a restart whose boot fails is told, and the next message boots the new sandbox', async () => {
  const session = await world.idle(service)
  await lose(session)
  const boot = world.sandboxes.beforeCreate
  world.sandboxes.beforeCreate = () => Promise.reject(new ServiceError('patch_failed', 'no'))
  const { session: restarted } = await service.restart(orgId, session.id, owner)
  await world.until(session.id, 'failed')
  world.sandboxes.beforeCreate = boot
  await world.turn(service, session.id, 'b')
  assert.equal((await service.get(orgId, session.id)).session.sandboxId, restarted.sandboxId)
  await assertWhole(world, session.id)
})

test('a server that starts again knows which sandbox the session has', async () => {
  const session = await world.idle(service)
  await lose(session)
  await service.close()
  const second = world.serve()
  await second.start()
  const { session: restarted } = await second.restart(orgId, session.id, owner)
  await second.close()
  const third = world.serve()
  await third.start()
  await world.until(session.id, 'idle')
  assert.equal(world.sandboxes.machine(restarted.sandboxId).sandbox.status, 'running')
  assert.equal(world.sandboxes.agents.length, 2)
})

/** The checkpoint of a sandbox, and the agent that it holds: one with this id that has said this much and not begun a turn. */
async function checkpoint(sandboxId: string, agentId: string): Promise<{ id: string; agent: FakeProcess }> {
  const { id } = await world.sandboxes.service().checkpoints.create(orgId, sandboxId, { name: 'then' })
  const process = new FakeProcess(agentId, ['node'], {})
  const agent = new FakeAgent(process, new Map(), world.sandboxes.script)
  agent.say('a word of the past')
  world.sandboxes.inCheckpoint = [process]
  return { id, agent: process }
}

async function dealtWith(sessionId: string): Promise<void> {
  await world.eventually('every message is dealt with', async () => {
    const messages = await world.store.messages(sessionId)
    assert.ok(messages.every(({ role, state }) => role !== 'user' || state === 'consumed'))
  })
  await world.until(sessionId, 'idle')
  await assertWhole(world, sessionId)
}

/** The agent of the past is dead and unheard, and another one took its place. */
async function assertFresh(sessionId: string, revived: FakeProcess): Promise<void> {
  assert.equal(revived.exitCode, 137)
  assert.doesNotMatch(JSON.stringify(await world.streamed(sessionId)), /of the past/)
  assert.equal(world.sandboxes.agents.length, 2)
  const { process, commands } = world.sandboxes.agent
  assert.equal(process.exitCode, undefined)
  assert.deepEqual(
    commands.filter(({ type }) => type !== 'configure').map(({ content }) => content),
    ['b'],
  )
  const session = await world.store.session(sessionId)
  assert.equal(session?.agentProcessId, process.id)
  await world.eventually('all is acknowledged', () => assert.equal(process.acknowledged, process.log.length))
  assert.equal((await world.store.session(sessionId))?.agentOffset, process.log.length)
}

for (const which of ['the same', 'an earlier'] as const) {
  const agentOf = ({ agentProcessId }: Session) => (which === 'the same' ? agentProcessId! : 'ag-earlier')

  test(`an idle session whose sandbox is restored to ${which} agent goes on with a fresh one`, async () => {
    const session = await world.idle(service)
    const then = await checkpoint(session.sandboxId, agentOf(session))
    world.sandboxes.restore(session.sandboxId, then.id)
    await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
    await dealtWith(session.id)
    assert.deepEqual(await world.subtypes(session.id), ['success', 'success'])
    await assertFresh(session.id, then.agent)
  })

  test(`a turn whose sandbox is restored to ${which} agent ends once, and the next message gets a fresh one`, async () => {
    const { script } = world.sandboxes
    const session = await world.idle(service)
    world.sandboxes.script = { turn: (agent) => agent.say('thinking') }
    const then = await checkpoint(session.sandboxId, agentOf(session))
    const old = world.sandboxes.agent
    old.process.onLine = () => old.say('thinking')
    await service.sendMessage(orgId, session.id, { message: 'a2', userId: 'u1' })
    await world.eventually('the answer', async () => {
      assert.match(JSON.stringify(await world.streamed(session.id)), /thinking/)
    })
    world.sandboxes.script = script
    world.sandboxes.restore(session.sandboxId, then.id)
    // It goes on where it was then, beyond what the session has heard.
    for (let line = 0; line < 50; line++)
      then.agent.write('{"type":"result","subtype":"success","result":"of the past"}\n')
    await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
    await dealtWith(session.id)
    assert.deepEqual(await world.subtypes(session.id), ['success', 'error_during_execution', 'success'])
    await assertFresh(session.id, then.agent)
    const errors = (await world.streamed(session.id)).filter(({ data }) => data.type === 'error')
    assert.deepEqual(
      errors.map(({ data }) => [data['code'], data['fatal']]),
      [['sandbox_restored', false]],
    )
    const told = (await world.store.events(session.id)).filter(({ type }) => type === 'sandbox_resumed')
    assert.deepEqual(
      told.map(({ level }) => level),
      ['warning'],
    )
  })
}

test('the next server notices a restore that the one before did not live to notice', async () => {
  const session = await world.idle(service)
  const then = await checkpoint(session.sandboxId, session.agentProcessId!)
  await service.close()
  world.sandboxes.restore(session.sandboxId, then.id)
  then.agent.write('x'.repeat(5000))
  service = world.serve()
  await service.start()
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await dealtWith(session.id)
  await assertFresh(session.id, then.agent)
})

test('a restore of a sandbox that sleeps in a turn ends the turn and the agent of the past', async () => {
  const { script } = world.sandboxes
  const session = await world.idle(service)
  const then = await checkpoint(session.sandboxId, session.agentProcessId!)
  const old = world.sandboxes.agent
  old.process.onLine = () => old.say('thinking')
  await service.sendMessage(orgId, session.id, { message: 'a2', userId: 'u1' })
  await world.eventually('the answer', async () => {
    assert.match(JSON.stringify(await world.streamed(session.id)), /thinking/)
  })
  await world.hibernate(session)
  world.sandboxes.script = script
  world.sandboxes.restore(session.sandboxId, then.id)
  await world.eventually('the end', async () => {
    assert.deepEqual(await world.subtypes(session.id), ['success', 'error_during_execution'])
  })
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await dealtWith(session.id)
  await assertFresh(session.id, then.agent)
})
