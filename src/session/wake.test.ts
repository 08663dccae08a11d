/** Messages to sandboxes that hibernate at the same moment: no wake-up is lost. */
import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import type { SandboxService } from '../sandbox/index.ts'
import { assertWhole, orgId, simple, World } from './testing/world.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world.close())

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
    const { session } = await service.create(orgId, simple)
    await world.until(session.id, 'idle')
    armed = true
    world.sandboxes.agent.process.breakAttachments()
    await sent.promise
    await dealtWith(session.id)
    assert.equal(world.sandboxes.agents.length, 1)
  })
}

test('a turn of a later message that is hibernated by hand stays asleep until something wakes the sandbox', async () => {
  const service = world.serve()
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
  const { agent } = world.sandboxes
  agent.process.onLine = (line) => {
    if (line.includes('"b"')) agent.say('thinking')
  }
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await world.eventually('the answer', async () => {
    assert.match(JSON.stringify(await world.streamed(session.id)), /thinking/)
  })
  world.sandboxes.set(session.sandboxId, 'hibernated')
  await world.eventually('the event', async () => {
    assert.equal((await world.eventTypes(session.id)).at(-1), 'sandbox_hibernated')
  })
  await ticks()
  assert.equal(world.sandboxes.machine(session.sandboxId).sandbox.status, 'hibernated')
  world.sandboxes.set(session.sandboxId, 'running')
  const [, second] = (await world.store.messages(session.id)).filter(({ role }) => role === 'user')
  agent.emit({ type: 'turn_complete', message_id: second!.id, session_id: 'agent-1' })
  await dealtWith(session.id)
})

test('message: one that comes while its session is forked wakes the sandbox that hibernates before the fork is made', async () => {
  const service = world.serve()
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
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
