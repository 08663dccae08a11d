import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../errors.ts'
import { refuses } from '../lib/testing/refuses.ts'
import type { SessionLimits } from './config.ts'
import type { ForkRequest, ForkResult } from './fork-at.ts'
import type { Sessions } from './service.ts'
import { answering } from './testing/fake-agent.ts'
import { creationOf } from './testing/store.ts'
import { orgId, refused, simple, useWorld, type Wrap } from './testing/world.ts'

const world = useWorld()
const serve = (limits: Partial<SessionLimits> = {}, wrap?: Wrap): Sessions =>
  world.serve({ checkpoints: 'turn', models: ['demo', 'openai/gpt-5'], limits }, wrap)

/** A session that has had a turn for each message, with a checkpoint after each. */
async function turns(service: Sessions, ...texts: string[]): Promise<{ id: string; messages: string[] }> {
  const { id } = await world.turns(service, texts)
  const users = (await world.store.messages(id)).filter(({ role }) => role === 'user')
  return { id, messages: users.map((message) => message.id) }
}

const viewsOf = (results: ForkResult[]) =>
  results.map((result) => ('error' in result ? assert.fail(String(result.error)) : result.view))

const said = async (id: string) =>
  (await world.store.messages(id)).filter(({ role }) => role === 'user').map(({ content }) => content)

test('fork: one at a message has what was said up to the end of its turn, and begins from its checkpoint', async () => {
  const service = serve()
  const { id, messages } = await turns(service, 'a', 'b', 'c')
  const request: ForkRequest = { userId: 'u1', at: { messageId: messages[1]! } }
  const [result] = await service.forks.make(orgId, id, request)
  assert.ok(result !== undefined && 'view' in result)
  const { session } = result.view
  const point = await world.store.pointOfTurn(id, messages[1]!)
  assert.deepEqual(result.place, {
    atEvent: point?.afterEvent,
    afterEvent: point?.afterEvent,
    isExact: true,
    checkpointId: point?.checkpointId,
    messageId: messages[1],
  })
  assert.deepEqual(
    [session.forkedFrom, session.forkPoint, session.checkpointId],
    [id, messages[1], point?.checkpointId],
  )
  assert.deepEqual(await said(session.id), ['a', 'b'])
  await world.until(session.id, 'idle')
  await world.turn(service, session.id, 'd')
  assert.deepEqual(await said(id), ['a', 'b', 'c'])
  assert.deepEqual(
    (await world.store.forksOf(id, { turnIds: messages, limit: 5 })).map((fork) => fork.id),
    [session.id],
  )
})

test('fork: an event inside of a turn counts as the checkpoint before it, which is told', async () => {
  const service = serve()
  const { id } = await turns(service, 'a', 'b')
  const inside = (await world.streamed(id)).filter(({ data }) => data.type === 'tool_use_summary')[1]!
  const [result] = await service.forks.make(orgId, id, { userId: 'u1', at: { eventId: inside.sequence } })
  assert.ok(result !== undefined && 'place' in result)
  assert.equal(result.place.isExact, false)
  assert.equal(result.place.atEvent, inside.sequence)
  assert.ok(result.place.afterEvent < inside.sequence)
  assert.deepEqual(await said(result.view.session.id), ['a'])
})

test('fork: what a rewind has left does not come back', async () => {
  const service = serve()
  const { id, messages } = await turns(service, 'a', 'b')
  await service.rewinds.rewind(orgId, id, { userId: 'u1', to: { messageId: messages[0]! }, what: 'all' })
  await world.until(id, 'idle')
  const plain = await service.fork(orgId, id, 'u1')
  assert.deepEqual(await said(plain.session.id), ['a'])
  const state = (await world.store.session(plain.session.id))!
  assert.deepEqual([state.headTurnId, state.unsavedTurnId, state.pendingRewind], [undefined, undefined, undefined])
  // What was left can be forked all the same.
  const [left] = viewsOf(await service.forks.make(orgId, id, { userId: 'u1', at: { messageId: messages[1]! } }))
  assert.deepEqual(await said(left!.session.id), ['a', 'b'])
})

test('fork: several variants get their messages and configuration, from one checkpoint of the present', async () => {
  const service = serve()
  const { id } = await turns(service, 'a')
  const before = world.sandboxes.checkpoints.size
  const variants = [
    { message: 'x' },
    { message: 'y', agentConfig: { model: 'openai/gpt-5', systemPrompt: 'be brief', envs: { A: '1' } } },
    {},
  ]
  const views = viewsOf(await service.forks.make(orgId, id, { userId: 'u1', variants }))
  for (const { session } of views) await world.until(session.id, 'idle')
  assert.equal(new Set(views.map(({ session }) => session.checkpointId)).size, 1)
  assert.deepEqual(await Promise.all(views.map(({ session }) => said(session.id))), [['a', 'x'], ['a', 'y'], ['a']])
  const config = (await world.store.session(views[1]!.session.id))!.agentConfig
  assert.deepEqual([config.model, config.envs], ['openai/gpt-5', { A: '1' }])
  assert.equal((await world.store.instructions(views[1]!.session.id))?.systemPrompt, 'be brief')
  const { created } = world.sandboxes
  assert.deepEqual(
    views.map(({ session }) => created.find((one) => one.id === session.sandboxId)?.envs),
    [{}, { A: '1' }, {}],
  )
  // One of the source, and those of the turns of the forks.
  await world.eventually('checkpoints', () => assert.equal(world.sandboxes.checkpoints.size, before + 1 + 2))
  // Nobody needs that of the present any more.
  await service.sweepForkCheckpoints()
  assert.equal(world.sandboxes.checkpoints.size, before + 2)
  assert.equal((await world.store.head(id))?.activity, 'idle')
})

test('fork: at a point it works while the source does, and after its end', async () => {
  const service = serve()
  world.sandboxes.script = {
    turn: (agent, content, resumed) => (content === 'hang' ? undefined : answering.turn(agent, content, resumed)),
  }
  const { id, messages } = await turns(service, 'a')
  await service.sendMessage(orgId, id, { message: 'hang', userId: 'u1' })
  const at = { messageId: messages[0]! }
  await assert.rejects(service.forks.make(orgId, id, { userId: 'u1', count: 1 }), refused('conflict'))
  const [busy] = viewsOf(await service.forks.make(orgId, id, { userId: 'u1', at, count: 1 }))
  await world.until(busy!.session.id, 'idle')
  await service.delete(orgId, id)
  const [late] = viewsOf(await service.forks.make(orgId, id, { userId: 'u1', at, count: 1 }))
  await world.until(late!.session.id, 'idle')
  assert.equal(late!.session.status, 'running')
})

test('fork: bad input names the field', async () => {
  const service = serve()
  const { id, messages } = await turns(service, 'a')
  const at = { messageId: messages[0]! }
  const fieldOf = async (request: Partial<ForkRequest>) =>
    await service.forks.make(orgId, id, { userId: 'u1', at, ...request }).then(
      () => 'nothing',
      (error: { details: { field: string } }) => error.details.field,
    )
  assert.equal(await fieldOf({ count: 2, variants: [{}] }), 'count')
  assert.equal(await fieldOf({ count: 2, name: 'one' }), 'name')
  assert.equal(await fieldOf({ variants: [{}, { agentConfig: { model: 'other/model' } }] }), 'variants[1].model')
  assert.equal(await fieldOf({ variants: [{ message: ' ' }] }), 'variants[0].message')
  assert.equal(await fieldOf({ at: { messageId: 'msg_none' } }), 'at.message_id')
  await assert.rejects(service.forks.make(orgId, id, { userId: 'u2', at }), refused('forbidden'))
  assert.equal((await world.store.sessionsIn('running')).length, 1)
})

/** A store that refuses the second fork. */
const refusingSecond = (error: Error): Wrap => {
  let asked = 0
  return (port) =>
    new Proxy(port, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name)
        if (name !== 'createSession' || typeof value !== 'function') return value
        return async (...all: unknown[]) => {
          asked += 1
          // The first is the source.
          if (asked === 3) throw error
          return await (value as (...all: unknown[]) => Promise<unknown>).apply(target, all)
        }
      },
    })
}

test('fork: one that fails is told in its place, and the others go on', async () => {
  for (const error of [new ServiceError('rate_limited', 'too many sessions'), new Error('the disk is full')]) {
    const service = serve({}, refusingSecond(error))
    const { id, messages } = await turns(service, 'a')
    const request = { userId: 'u1', at: { messageId: messages[0]! }, count: 3 }
    const results = await service.forks.make(orgId, id, request)
    assert.equal(results.length, 3)
    assert.deepEqual(
      results.flatMap((result) => ('error' in result ? [result.error] : [])),
      [error],
    )
    const made = await world.store.forksOf(id, { limit: 5 })
    assert.equal(made.length, 2)
    for (const fork of made) await world.until(fork.id, 'idle')
  }
})

test('fork: the checkpoint that several start from stays until the last one has started or was ended', async () => {
  const service = world.serve()
  const source = await world.idle(service)
  const { sandboxes } = world
  const left = async () => {
    await service.sweepForkCheckpoints()
    return sandboxes.checkpoints.size
  }
  sandboxes.beforeCreate = () => Promise.reject(new ServiceError('conflict', 'it does not start'))
  const views = viewsOf(await service.forks.make(orgId, source.id, { userId: 'u1', count: 3 }))
  for (const { session } of views) await world.until(session.id, 'failed')
  assert.equal(await left(), 1)
  sandboxes.beforeCreate = async () => {}
  await world.turn(service, views[0]!.session.id, 'again')
  await world.turn(service, views[1]!.session.id, 'again')
  assert.equal(await left(), 1)
  await service.delete(orgId, views[2]!.session.id)
  assert.equal(await left(), 0)
  assert.deepEqual(await said(views[1]!.session.id), ['a page', 'again'])
})

test('fork: a source that cannot be saved has none, and nothing is left', async () => {
  const service = world.serve()
  const source = await world.idle(service)
  world.sandboxes.beforeCheckpoint = () => Promise.reject(new ServiceError('no_capacity', 'the disk is full'))
  await refuses(service.forks.make(orgId, source.id, { userId: 'u1', count: 3 }), 'no_capacity')
  assert.equal((await world.store.sessionsIn('running')).length, 1)
  world.sandboxes.beforeCheckpoint = async () => {}
  await world.turn(service, source.id, 'b')
})

test('fork: a point from which one starts is kept while later ones replace it', async () => {
  const service = serve({ turnCheckpointsMax: 1 })
  const { id, messages } = await turns(service, 'a')
  const at = { messageId: messages[0]! }
  const boot = Promise.withResolvers<void>()
  world.sandboxes.beforeCreate = () => boot.promise
  const [view] = viewsOf(await service.forks.make(orgId, id, { userId: 'u1', at, count: 1 }))
  const turn = async (message: string, kept: number) => {
    await world.turn(service, id, message)
    await world.eventually('the points', async () => assert.equal((await world.store.points(id)).length, kept))
  }
  await turn('b', 2)
  world.sandboxes.beforeCreate = async () => {}
  boot.resolve()
  await world.until(view!.session.id, 'idle')
  await turn('c', 1)
  await refuses(service.forks.make(orgId, id, { userId: 'u1', at }), 'not_found')
})

test('fork: a source that sleeps, has failed or is a fork itself can be forked at a point, and is left as it is', async () => {
  const service = serve()
  const { id, messages } = await turns(service, 'a', 'b')
  const at = { messageId: messages[0]! }
  const sleeping = (await world.store.session(id))!
  await world.hibernate(sleeping)
  const [first] = viewsOf(await service.forks.make(orgId, id, { userId: 'u1', at }))
  await world.until(first!.session.id, 'idle')
  assert.equal(world.sandboxes.machine(sleeping.sandboxId).sandbox.status, 'hibernated')
  world.sandboxes.set(sleeping.sandboxId, 'error', 'oom')
  await world.until(id, 'failed')
  const [second] = viewsOf(await service.forks.make(orgId, id, { userId: 'u1', at }))
  const fork = second!.session
  await world.until(fork.id, 'idle')
  // What came with a fork belongs to no turn of it.
  await world.turn(service, fork.id, 'own')
  await world.eventually('its point', async () => assert.equal((await world.store.points(fork.id)).length, 1))
  const [own] = await world.store.turns(fork.id, { limit: 1 })
  const [third] = viewsOf(await service.forks.make(orgId, fork.id, { userId: 'u1', at: { messageId: own!.messageId } }))
  assert.deepEqual(await said(third!.session.id), ['a', 'own'])
  const copied = (await world.store.messages(fork.id))[0]!
  await refuses(
    service.forks.make(orgId, fork.id, { userId: 'u1', at: { messageId: copied.id } }),
    'not_found',
    /no turn of message/,
  )
})

test('fork: the state before a rewind can be forked, with what the rewind has left', async () => {
  const service = serve()
  const { id, messages } = await turns(service, 'a', 'b')
  const to = { messageId: messages[0]! }
  const { undoCheckpointId } = await service.rewinds.rewind(orgId, id, { userId: 'u1', to, what: 'all' })
  await world.until(id, 'idle')
  const at = { checkpointId: undoCheckpointId }
  const [undone] = viewsOf(await service.forks.make(orgId, id, { userId: 'u1', at }))
  assert.deepEqual(await said(undone!.session.id), ['a', 'b'])
  assert.equal((await world.store.messages(id, { limit: 9, branch: 'all' })).filter(({ isLeft }) => isLeft).length, 2)
})

test('fork: a volume that is written has one writer', async () => {
  const service = serve()
  const volumes = [{ name: 'v', path: '/v' }]
  const { session } = await service.create(orgId, { ...simple, volumes })
  await world.until(session.id, 'idle')
  const messageId = (await world.store.messages(session.id))[0]!.id
  await world.eventually('its point', async () => assert.equal((await world.store.points(session.id)).length, 1))
  const at = { messageId }
  const { sandbox } = world.sandboxes.machine(session.sandboxId)
  sandbox.volumes = [{ id: 'vol-1', name: 'v', path: '/v', readOnly: false }]
  const make = (request: Partial<ForkRequest>) => service.forks.make(orgId, session.id, { userId: 'u1', ...request })
  await refuses(make({ at }), 'conflict', /has one writer/)
  await refuses(make({ count: 2 }), 'conflict', /has one writer/)
  await service.delete(orgId, session.id)
  await refuses(make({ at, count: 2 }), 'conflict', /each fork would write/)
  const [one] = viewsOf(await make({ at }))
  await world.until(one!.session.id, 'idle')
  assert.equal((await world.store.sessionsIn('running')).length, 1)
})

test('fork: a repeat of the request makes none again, whatever became of the source', async () => {
  const service = serve()
  const { id, messages } = await turns(service, 'a')
  for (const at of [undefined, { messageId: messages[0]! }]) {
    const key = at === undefined ? 'present' : 'point'
    const request: ForkRequest = { userId: 'u1', variants: [{ message: 'x' }, { message: 'y' }], ...(at && { at }) }
    const made = await service.forks.make(orgId, id, request, { creation: await creationOf(key) })
    for (const { session } of viewsOf(made)) await world.until(session.id, 'idle')
    await service.sweepForkCheckpoints()
    if (at !== undefined) await service.delete(orgId, id)
    const again = await service.forks.make(orgId, id, request, { creation: await creationOf(key) })
    const ids = (results: ForkResult[]) => viewsOf(results).map(({ session }) => session.id)
    assert.deepEqual(ids(again), ids(made))
    assert.deepEqual(await Promise.all(ids(again).map(said)), [
      ['a', 'x'],
      ['a', 'y'],
    ])
  }
  assert.equal((await world.store.forksOf(id, { limit: 9 })).length, 4)
})

test('fork: the views of many take room for one of their source, until they are sent', async () => {
  const service = serve()
  const { id, messages } = await turns(service, 'a', 'b'.repeat(100_000))
  const request: ForkRequest = { userId: 'u1', at: { messageId: messages[1]! }, count: 6 }
  const sent = Array.from({ length: 3 }, () => Promise.withResolvers<void>())
  const make = async (index: number, key: string) =>
    await service.forks.make(orgId, id, request, { sent: sent[index]!.promise, creation: await creationOf(key) })
  const [first, second] = [viewsOf(await make(0, 'six')), viewsOf(await make(1, 'six'))]
  assert.deepEqual(
    second.map(({ session }) => session.id),
    first.map(({ session }) => session.id),
  )
  let isMade = false
  const third = make(2, 'six more').then((results) => ((isMade = true), results))
  for (let tick = 0; tick < 50; tick++) await new Promise((resolve) => setImmediate(resolve))
  assert.equal(isMade, false)
  sent[0]!.resolve()
  assert.equal(viewsOf(await third).length, 6)
  for (const one of sent) one.resolve()
})
