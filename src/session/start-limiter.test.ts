import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import { answering } from './testing/fake-agent.ts'
import { orgId, simple, World } from './testing/world.ts'

let world: World

beforeEach(() => {
  world = new World()
})

afterEach(() => world.close())

const configuredLine = { type: 'configured', model: 'demo', tools: ['bash'], cwd: '/workspace/app' }

test('agents start a few at a time; each that is ready lets the next one begin', async () => {
  const service = world.serve({ limits: { agentStartsAtOnce: 2 } })
  const asked: { emit(event: object): void }[] = []
  world.sandboxes.script = {
    ...answering,
    configure: (agent) => {
      asked.push(agent)
      return false
    },
  }
  const created = await Promise.all(Array.from({ length: 7 }, () => service.create(orgId, simple)))
  for (let ready = 0; ready < created.length; ready += 1) {
    await world.eventually('the next agent', () => assert.ok(asked.length > ready))
    await world.eventually('the others in their places', async () => {
      const activities = await Promise.all(created.map(async ({ session }) => (await world.types(session.id)).length))
      assert.equal(activities.filter((events) => events > 0).length, Math.min(ready + 2, created.length))
    })
    assert.equal(world.sandboxes.agents.length, Math.min(ready + 2, created.length))
    asked[ready]?.emit(configuredLine)
  }
  for (const { session } of created) await world.until(session.id, 'idle')
})

test('a sandbox that takes no files does not hold up the agents of others', async () => {
  const service = world.serve({ limits: { agentStartsAtOnce: 1 }, timings: { agentStartTurnMs: 50 } })
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

test('agents that hang do not hold up those of others, and a session that waits for its place ends at once', async () => {
  const service = world.serve({ limits: { agentStartsAtOnce: 1 }, timings: { agentStartTurnMs: 300 } })
  world.sandboxes.script = { ...answering, configure: () => false }
  const hanging = await service.create(orgId, simple)
  await world.eventually('the first agent', () => assert.equal(world.sandboxes.agents.length, 1))
  world.sandboxes.script = answering
  const [leaving, waiting] = [await service.create(orgId, simple), await service.create(orgId, simple)]
  await world.eventually('both sandboxes', () => assert.equal(world.sandboxes.machines.size, 3))
  await service.delete(orgId, leaving.session.id)
  assert.equal(world.sandboxes.agents.length, 1)
  await world.until(waiting.session.id, 'idle')
  assert.equal((await world.store.session(hanging.session.id))?.activity, 'starting')
  assert.equal(world.sandboxes.agents.length, 2)
})
