import assert from 'node:assert/strict'
import { test } from 'node:test'
import { everyCall } from '../lib/testing/thorough.ts'
import type { Sessions } from './service.ts'
import { Crash } from './testing/crash.ts'
import { answering } from './testing/fake-agent.ts'
import { orgId, World } from './testing/world.ts'

const config = { checkpoints: 'turn' } as const
const file = '/workspace/app/page'

/** Takes a session somewhere on a server that dies on the way, and has the next one carry out what was decided. */
async function takenOver(
  world: World,
  id: string,
  crash: Crash,
  travel: (dying: Sessions) => Promise<unknown>,
): Promise<{ happened: boolean; next: Sessions }> {
  const { store } = world
  const dying = world.serve(config, crash.wrap, true)
  const happened = await crash.within(async () => {
    await dying.start()
    await travel(dying)
    await crash.until(async () => (await store.head(id))?.activity === 'idle')
  })
  await world.afterDeath()
  const next = world.serve(config)
  await next.start()
  await world.eventually('nothing is decided', async () => {
    assert.equal((await store.session(id))?.pendingRewind, undefined)
  })
  await world.until(id, 'idle')
  return { happened, next }
}

/**
 * A session of two turns goes back to its first, on a server that dies at its nth call of a port; another one takes over. Whatever the
 * moment, files, messages and the branch in force are those before, or those after; no checkpoint is left that no session names; and a
 * message that was in the branch ran once. Returns false when the first server came to the end without that many calls.
 */
async function surviveCrash(at: number, mode: 'before' | 'after'): Promise<boolean> {
  const world = new World()
  const { store, sandboxes } = world
  sandboxes.script = {
    turn(agent, content, resumed) {
      for (const { files } of sandboxes.machines.values()) files.set(file, content)
      answering.turn(agent, content, resumed)
    },
  }
  const zeroth = world.serve(config)
  const { id, sandboxId } = await world.turns(zeroth, ['a', 'b'])
  await zeroth.close()
  const first = (await store.messages(id))[0]!

  const { happened, next } = await takenOver(world, id, new Crash(at, mode), (dying) =>
    dying.rewinds.rewind(orgId, id, { userId: 'u1', to: { messageId: first.id }, what: 'all' }),
  )
  const { headTurnId } = (await store.session(id))!
  const isBack = headTurnId === first.id
  const said = (await store.messages(id)).filter(({ role }) => role === 'user').map(({ content }) => content)
  assert.deepEqual(said, isBack ? ['a'] : ['a', 'b'])
  assert.equal(sandboxes.machine(sandboxId).files.get(file), isBack ? 'a' : 'b')
  const rewound = (await world.types(id)).filter((type) => type === 'rewound').length
  assert.equal(rewound, isBack ? 1 : 0)
  assert.deepEqual(await world.subtypes(id), ['success', 'success'])
  await next.sweepForkCheckpoints()
  await world.assertCheckpointsNamed()
  await world.turn(next, id, 'c')
  assert.equal(sandboxes.machine(sandboxId).files.get(file), 'c')
  await world.close()
  return happened
}

/**
 * A session adopts one of two forks, on a server that dies at its nth call of a port; another one takes over, and nobody repeats the call.
 * Whatever the moment, the session stands where it stood, or where the fork stands, and then the other fork is archived.
 */
async function surviveAdoption(at: number, mode: 'before' | 'after'): Promise<boolean> {
  const world = new World()
  const { store, sandboxes } = world
  const zeroth = world.serve(config)
  const { id, sandboxId } = await world.turns(zeroth, ['a', 'b'])
  const first = (await store.messages(id))[0]!
  const variants = [{ message: 'x' }, { message: 'y' }]
  const made = await zeroth.forks.make(orgId, id, { userId: 'u1', at: { messageId: first.id }, variants })
  const [chosen, other] = made.map((fork) => ('view' in fork ? fork.view.session : assert.fail(String(fork.error))))
  for (const fork of [chosen!, other!]) {
    await world.saved(fork.id, 1)
    sandboxes.machine(fork.sandboxId).files.set(file, `of ${fork.id}`)
  }
  await zeroth.close()

  const { happened, next } = await takenOver(world, id, new Crash(at, mode), (dying) =>
    dying.rewinds.adopt(orgId, id, { userId: 'u1', from: chosen!.id }),
  )
  const said = (await store.messages(id)).filter(({ role }) => role === 'user').map(({ content }) => content)
  const isAdopted = said.at(-1) === 'x'
  assert.deepEqual(said, isAdopted ? ['a', 'x'] : ['a', 'b'])
  assert.equal(sandboxes.machine(sandboxId).files.get(file), isAdopted ? `of ${chosen!.id}` : undefined)
  if (isAdopted) assert.match((await store.session(other!.id))?.archivedFor ?? '', /adopted/)
  assert.equal((await store.session(chosen!.id))?.archivedFor, undefined)
  await next.sweepForkCheckpoints()
  await world.assertCheckpointsNamed()
  for (const session of [id, chosen!.id, other!.id]) await world.turn(next, session, 'c')
  await world.close()
  return happened
}

for (const mode of ['before', 'after'] as const) {
  test(`adopt: a server that dies ${mode} any of its calls leaves the old state, or the new one with the other fork archived`, async () => {
    await everyCall(20, (at) => surviveAdoption(at, mode), { stride: 6 })
  })

  test(`rewind: a server that dies ${mode} any of its calls leaves the old state or the new one`, async () => {
    await everyCall(20, (at) => surviveCrash(at, mode))
  })
}
