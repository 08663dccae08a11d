import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { everyCall } from '../lib/testing/thorough.ts'
import type { Sessions } from './service.ts'
import type { Session } from './session.ts'
import { Crash, surviveCrash } from './testing/crash.ts'
import { assertWhole, orgId, World } from './testing/world.ts'
import { callsEnded } from './testing/store.ts'

for (const mode of ['before', 'after'] as const) {
  test(`a server that dies ${mode} any of its calls loses nothing and repeats nothing`, async () => {
    // The story has at least a creation, a boot, commits and acknowledgements.
    await everyCall(30, (at) => surviveCrash(at, mode))
  })
}

async function running({ store }: World): Promise<Session[]> {
  const found = await Promise.all((await store.sessionsIn('running')).map(({ id }) => store.session(id)))
  return found.filter((session) => session !== undefined)
}

type Story = (service: Sessions, sessionId: string, world: World) => Promise<unknown>

/** Returns false when the server came to the end of the story without that many calls. */
async function survive(at: number, mode: 'before' | 'after', prepare: Story, story: Story): Promise<boolean> {
  const world = new World()
  const zeroth = world.serve()
  const session = await world.idle(zeroth)
  await prepare(zeroth, session.id, world)
  await zeroth.close()
  const crash = new Crash(at, mode)
  const first = world.serve({}, crash.wrap, true)
  const told = (async () => {
    await first.start()
    await story(first, session.id, world)
    const settled = async () => (await running(world)).every(({ activity }) => activity === 'idle')
    while (!crash.happened && !(await settled())) await sleep(5)
  })()
  told.catch(() => {})
  await Promise.race([told, crash.died])
  await callsEnded()
  if (!crash.happened) {
    await first.close()
    await world.close()
    return false
  }
  for (const { sandbox } of world.sandboxes.machines.values()) world.sandboxes.breakConnections(sandbox.id)

  const second = world.serve()
  await second.start()
  for (const { id, activity } of await running(world)) {
    if (activity === 'failed') await second.restart(orgId, id, { userId: 'u1' })
    await world.until(id, 'idle')
  }
  await world.eventually('no checkpoint is left', async () => {
    // As its clock of retention does.
    await second.sweepForkCheckpoints()
    assert.equal(world.sandboxes.checkpoints.size, 0)
  })
  const sessions = await world.store.sessionsIn('running')
  const machines = [...world.sandboxes.machines.values()].filter(({ sandbox }) => sandbox.status !== 'stopped')
  assert.deepEqual(
    machines.map(({ sandbox }) => sandbox.id).toSorted(),
    sessions.map((one) => one.sandboxId).toSorted(),
  )
  await assertWhole(world, session.id)
  await world.close()
  return true
}

test('a server that dies at any of its calls while it forks leaves whole sessions and nothing of nobody', async () => {
  for (const mode of ['before', 'after'] as const) {
    const fork: Story = (service, id) => service.fork(orgId, id, 'u1')
    await everyCall(10, (at) => survive(at, mode, async () => {}, fork))
  }
})

test('a server that dies at any of its calls while it restarts a session leaves one sandbox', async () => {
  for (const mode of ['before', 'after'] as const) {
    const restart: Story = (service, id) => service.restart(orgId, id, { userId: 'u1' })
    const lose: Story = async (service, id, { sandboxes }) => {
      const { session } = await service.get(orgId, id)
      sandboxes.set(session.sandboxId, 'error', 'oom')
      while ((await service.get(orgId, id)).session.activity !== 'failed') {
        await new Promise((resolve) => setImmediate(resolve))
      }
    }
    await everyCall(5, (at) => survive(at, mode, lose, restart))
  }
})
