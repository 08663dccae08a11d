/** Sandboxes that clients put back to a checkpoint in place, with an agent of the past in their memory. */
import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import type { RunningSessionService } from './service.ts'
import type { Session } from './session.ts'
import { FakeAgent } from './testing/fake-agent.ts'
import { FakeProcess } from './testing/fake-process.ts'
import { assertWhole, orgId, simple, World } from './testing/world.ts'

let world: World
let service: RunningSessionService
beforeEach(() => {
  world = new World()
  service = world.serve()
})
afterEach(() => world.close())

/** The checkpoint of a sandbox, and the agent that it holds: one with this id that has said this much and not begun a turn. */
async function checkpoint(sandboxId: string, agentId: string): Promise<{ id: string; agent: FakeProcess }> {
  const { id } = await world.sandboxes.service().checkpoints.create(orgId, sandboxId, { name: 'then' })
  const process = new FakeProcess(agentId, ['node'], {})
  const agent = new FakeAgent(process, new Map(), world.sandboxes.script)
  agent.say('a word of the past')
  world.sandboxes.inCheckpoint = [process]
  return { id, agent: process }
}

async function idle(): Promise<Session> {
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
  return (await world.store.session(session.id))!
}

async function dealtWith(sessionId: string): Promise<void> {
  await world.eventually('every message is dealt with', async () => {
    const messages = await world.store.messages(sessionId)
    assert.ok(messages.every(({ role, state }) => role !== 'user' || state === 'consumed'))
  })
  await world.until(sessionId, 'idle')
  await assertWhole(world, sessionId)
}

async function subtypes(sessionId: string): Promise<unknown[]> {
  const events = await world.streamed(sessionId)
  return events.filter(({ data }) => data.type === 'result').map(({ data }) => data['subtype'])
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
    const session = await idle()
    const then = await checkpoint(session.sandboxId, agentOf(session))
    world.sandboxes.restore(session.sandboxId, then.id)
    await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
    await dealtWith(session.id)
    assert.deepEqual(await subtypes(session.id), ['success', 'success'])
    await assertFresh(session.id, then.agent)
  })

  test(`a turn whose sandbox is restored to ${which} agent ends once, and the next message gets a fresh one`, async () => {
    const { script } = world.sandboxes
    const session = await idle()
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
    assert.deepEqual(await subtypes(session.id), ['success', 'error_during_execution', 'success'])
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
  const session = await idle()
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
  const session = await idle()
  const then = await checkpoint(session.sandboxId, session.agentProcessId!)
  const old = world.sandboxes.agent
  old.process.onLine = () => old.say('thinking')
  await service.sendMessage(orgId, session.id, { message: 'a2', userId: 'u1' })
  await world.eventually('the answer', async () => {
    assert.match(JSON.stringify(await world.streamed(session.id)), /thinking/)
  })
  world.sandboxes.set(session.sandboxId, 'hibernated')
  await world.eventually('the event', async () => {
    assert.equal((await world.eventTypes(session.id)).at(-1), 'sandbox_hibernated')
  })
  world.sandboxes.script = script
  world.sandboxes.restore(session.sandboxId, then.id)
  await world.eventually('the end', async () => {
    assert.deepEqual(await subtypes(session.id), ['success', 'error_during_execution'])
  })
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await dealtWith(session.id)
  await assertFresh(session.id, then.agent)
})
