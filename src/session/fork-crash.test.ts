import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newId } from '../lib/id.ts'
import { everyCall } from '../lib/testing/thorough.ts'
import type { ForkRequest, ForkResult } from './fork-at.ts'
import type { Sessions } from './service.ts'
import { Crash } from './testing/crash.ts'
import { creationOf } from './testing/store.ts'
import { assertWhole, orgId, simple, World } from './testing/world.ts'

const config = { checkpoints: 'turn' } as const
const variants = [{ message: 'x' }, { message: 'y' }, {}]

/**
 * A session is forked three times by one request, on a server that dies at its nth call of a port; another one takes over, to which the client
 * repeats the request. Whatever the moment, there are three forks, each with its message once, and no checkpoint is left that no session names.
 * Returns false when the first server came to the end without that many calls.
 */
async function surviveCrash(at: number, mode: 'before' | 'after', isAtPoint: boolean): Promise<boolean> {
  const world = new World()
  const { store } = world
  const idle = async (id: string, points: number) =>
    await world.eventually('a checkpoint of each turn', async () => {
      assert.equal((await store.points(id)).length, points)
      assert.equal((await store.head(id))?.activity, 'idle')
    })
  const zeroth = world.serve(config)
  const { session } = await zeroth.create(orgId, { ...simple, prompt: 'a' })
  await idle(session.id, 1)
  await zeroth.close()
  const messageId = (await store.messages(session.id))[0]!.id
  const request: ForkRequest = { userId: 'u1', variants, ...(isAtPoint ? { at: { messageId } } : {}) }
  const key = newId('key_')
  const fork = async (service: Sessions): Promise<ForkResult[]> =>
    await service.forks.make(orgId, session.id, request, { creation: await creationOf(key) })

  const crash = new Crash(at, mode)
  const dying = world.serve(config, crash.wrap, true)
  const happened = await crash.within(async () => {
    await dying.start()
    await fork(dying)
    await crash.until(async () => (await activities(world)).every((activity) => activity === 'idle'))
  })
  await world.afterDeath()

  const next = world.serve(config)
  await next.start()
  await world.until(session.id, 'idle')
  const results = await fork(next)
  const ids = results.map((result) => ('error' in result ? assert.fail(String(result.error)) : result.view.session.id))
  assert.deepEqual((await store.sessionsIn('running')).map(({ id }) => id).toSorted(), [session.id, ...ids].toSorted())
  assert.equal(new Set(results.map((result) => 'place' in result && result.place.checkpointId)).size, 1)
  for (const [index, id] of ids.entries()) {
    const { message } = variants[index]!
    await idle(id, message === undefined ? 0 : 1)
    const users = (await store.messages(id)).filter(({ role }) => role === 'user')
    assert.deepEqual(
      users.map(({ content, state }) => [content, state]),
      [['a', 'consumed'], ...(message === undefined ? [] : [[message, 'consumed']])],
    )
    assert.equal((await world.subtypes(id)).length, message === undefined ? 0 : 1)
  }
  await assertWhole(world, session.id)
  await next.sweepForkCheckpoints()
  await world.assertCheckpointsNamed()
  await world.close()
  return happened
}

async function activities({ store }: World): Promise<unknown[]> {
  return await Promise.all((await store.sessionsIn('running')).map(async ({ id }) => (await store.head(id))?.activity))
}

for (const isAtPoint of [false, true]) {
  for (const mode of ['before', 'after'] as const) {
    const place = isAtPoint ? 'at a point' : 'in the present'
    test(`fork: a server that dies ${mode} any of its calls ${place} leaves forks that a repeat completes`, async () => {
      await everyCall(20, (at) => surviveCrash(at, mode, isAtPoint), { stride: 9 })
    })
  }
}
