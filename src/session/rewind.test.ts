import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../errors.ts'
import { answering } from './testing/fake-agent.ts'
import { assertWhole, orgId, refused, simple, useWorld } from './testing/world.ts'
import type { Sessions } from './service.ts'
import type { Message, Session } from './session.ts'

const world = useWorld()
const serve = (): Sessions => world.serve({ checkpoints: 'turn' })
const statePath = '/workspace/agent/.atoll/pi/conversation.jsonl'

/** A session that has had a turn for each of these messages, each of which wrote its text into two files. */
async function turns(service: Sessions, ...texts: string[]): Promise<Session> {
  world.sandboxes.script = {
    turn(agent, content, resumed) {
      if (content.startsWith('hang')) return
      const { files } = world.sandboxes.machines.values().find(({ processes }) => processes.has(agent.process.id))!
      files.set('/workspace/app/page', content)
      files.set(statePath, `${files.get(statePath) ?? ''}${content};`)
      answering.turn(agent, content, resumed)
    },
  }
  return await world.turns(service, texts)
}

const users = async (sessionId: string): Promise<Message[]> =>
  (await world.store.messages(sessionId)).filter(({ role }) => role === 'user')

const page = ({ sandboxId }: Session) => world.sandboxes.machine(sandboxId).files.get('/workspace/app/page')
const conversation = ({ sandboxId }: Session) => world.sandboxes.machine(sandboxId).files.get(statePath)

test('turn: each has a checkpoint, which is told with its place in the stream', async () => {
  const session = await turns(serve(), 'a', 'b')
  const [a, b] = await users(session.id)
  const events = await world.streamed(session.id)
  const told = events.filter(({ data }) => data.type === 'checkpoint_created')
  assert.deepEqual(
    told.map(({ data }) => data['message_id']),
    [a!.id, b!.id],
  )
  for (const { sequence, data } of told) assert.equal(data['after_event'], sequence - 1)
  const point = await world.store.pointOfTurn(session.id, b!.id)
  assert.equal(point?.checkpointId, told[1]!.data['checkpoint_id'])
  assert.equal(point?.afterEvent, told[1]!.data['after_event'])
  await assertWhole(world, session.id)
})

test('turn: a message that comes meanwhile begins after the checkpoint', async () => {
  const service = serve()
  const begun = Promise.withResolvers<void>()
  const goOn = Promise.withResolvers<void>()
  world.sandboxes.beforeCheckpoint = async () => {
    begun.resolve()
    await goOn.promise
  }
  const { session } = await service.create(orgId, simple)
  await begun.promise
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  assert.equal((await users(session.id))[1]?.state, 'queued')
  goOn.resolve()
  await world.saved(session.id, 2)
  const types = await world.types(session.id)
  assert.deepEqual(types.slice(types.indexOf('turn_complete')).slice(0, 2), ['turn_complete', 'checkpoint_created'])
})

test('turn: a checkpoint that fails is told, and the session goes on', async () => {
  world.sandboxes.beforeCheckpoint = async () => {
    throw new ServiceError('no_capacity', 'the disk pool is full')
  }
  const service = serve()
  const { session } = await service.create(orgId, simple)
  await world.eventually('the error', async () =>
    assert.deepEqual(await world.errors(session.id), ['checkpoint_failed']),
  )
  await service.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
  await world.eventually('both', async () => assert.equal((await world.subtypes(session.id)).length, 2))
})

test('rewind: machine and conversation go to the end of a turn, an undo takes them forward, and so on', async () => {
  const service = serve()
  const session = await turns(service, 'a', 'b', 'c')
  const [a, b, c] = await users(session.id)
  const to = { messageId: a!.id }
  const preview = await service.rewinds.preview(orgId, session.id, { userId: 'u1', to, what: 'all' })
  assert.deepEqual(preview.turnsLeft, [c!.id, b!.id])
  assert.equal(preview.restoredPrompt, 'b')
  assert.equal(page(session), 'c')

  const told = await service.rewinds.rewind(orgId, session.id, { userId: 'u1', to, what: 'all' })
  assert.equal(told.restoredPrompt, 'b')
  assert.equal(told.processes, 'restored')
  assert.equal(page(session), 'a')
  assert.deepEqual(
    (await users(session.id)).map(({ content }) => content),
    ['a'],
  )
  const all = await world.store.messages(session.id, { limit: 100, branch: 'all' })
  assert.deepEqual(
    all.filter(({ role }) => role === 'user').map(({ content, isLeft }) => [content, isLeft ?? false]),
    [
      ['a', false],
      ['b', true],
      ['c', true],
    ],
  )
  const last = (await world.streamed(session.id)).find(({ data }) => data.type === 'rewound')!
  assert.equal(last.data['from_event'], last.sequence - 1)
  await world.until(session.id, 'idle')

  const redone = { userId: 'u1', to: { checkpointId: told.undoCheckpointId }, what: 'all' } as const
  const forward = await service.rewinds.rewind(orgId, session.id, redone)
  assert.equal(forward.restoredPrompt, undefined)
  assert.equal(page(session), 'c')
  assert.deepEqual(
    (await users(session.id)).map(({ content }) => content),
    ['a', 'b', 'c'],
  )
  await world.until(session.id, 'idle')
  const back = { userId: 'u1', to: { checkpointId: forward.undoCheckpointId }, what: 'all' } as const
  await service.rewinds.rewind(orgId, session.id, back)
  assert.equal(page(session), 'a')
  await world.until(session.id, 'idle')
  await world.turn(service, session.id, 'd')
  assert.deepEqual(
    (await users(session.id)).map(({ content }) => content),
    ['a', 'd'],
  )
  assert.equal((await world.store.session(session.id))?.sandboxId, session.sandboxId)
})

test('rewind: the machine alone, and the conversation alone', async () => {
  const service = serve()
  const session = await turns(service, 'a', 'b')
  const [a] = await users(session.id)
  const to = { messageId: a!.id }
  const machine = await service.rewinds.rewind(orgId, session.id, { userId: 'u1', to, what: 'machine' })
  assert.equal(machine.restoredPrompt, undefined)
  assert.deepEqual([page(session), conversation(session)], ['a', 'a;b;'])
  assert.deepEqual(
    (await users(session.id)).map(({ content }) => content),
    ['a', 'b'],
  )
  await world.until(session.id, 'idle')
  const undo = { userId: 'u1', to: { checkpointId: machine.undoCheckpointId }, what: 'all' } as const
  await service.rewinds.rewind(orgId, session.id, undo)
  assert.deepEqual([page(session), conversation(session)], ['b', 'a;b;'])
  await world.until(session.id, 'idle')
  const talk = await service.rewinds.rewind(orgId, session.id, { userId: 'u1', to, what: 'conversation' })
  assert.equal(talk.processes, 'kept')
  assert.deepEqual([page(session), conversation(session)], ['b', 'a;'])
  assert.deepEqual(
    (await users(session.id)).map(({ content }) => content),
    ['a'],
  )
})

test('rewind: a running turn is interrupted, and messages that wait are cancelled', async () => {
  const service = serve()
  const session = await turns(service, 'a')
  const [a] = await users(session.id)
  await service.sendMessage(orgId, session.id, { message: 'hang', userId: 'u1' })
  await service.sendMessage(orgId, session.id, { message: 'c', userId: 'u1' })
  await world.until(session.id, 'working')
  const request = { userId: 'u1', to: { messageId: a!.id }, what: 'all' } as const
  const told = await service.rewinds.rewind(orgId, session.id, request)
  assert.equal(told.restoredPrompt, 'hang')
  assert.deepEqual(await world.subtypes(session.id), ['success', 'interrupted'])
  const all = await world.store.messages(session.id, { limit: 100, branch: 'all' })
  assert.deepEqual(all.find(({ content }) => content === 'c')?.state, 'cancelled')
  await world.until(session.id, 'idle')
})

test('rewind: one that the sandbox refuses leaves the present, and says why', async () => {
  const service = serve()
  const session = await turns(service, 'a', 'b')
  const [a] = await users(session.id)
  world.sandboxes.beforeRestore = async () => {
    throw new ServiceError('no_capacity', 'the disk pool is full')
  }
  const request = { userId: 'u1', to: { messageId: a!.id }, what: 'all' } as const
  await assert.rejects(service.rewinds.rewind(orgId, session.id, request), refused('no_capacity'))
  assert.equal(page(session), 'b')
  assert.deepEqual(
    (await users(session.id)).map(({ content }) => content),
    ['a', 'b'],
  )
  await world.until(session.id, 'idle')
  await world.turn(service, session.id, 'c')
})

test('rewind: of two at once one wins, and the other is told', async () => {
  const service = serve()
  const session = await turns(service, 'a', 'b')
  const [a] = await users(session.id)
  const request = { userId: 'u1', to: { messageId: a!.id }, what: 'all' } as const
  const isRefused = Promise.withResolvers<void>()
  // The one that wins is at its checkpoint of the present until the other has been told.
  world.sandboxes.beforeCheckpoint = () => isRefused.promise
  const calls = [1, 2].map(() => service.rewinds.rewind(orgId, session.id, request))
  for (const call of calls) call.catch(() => isRefused.resolve())
  const both = await Promise.allSettled(calls)
  assert.deepEqual(both.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected'])
  const lost = both.find((one) => one.status === 'rejected') as PromiseRejectedResult
  assert.ok(refused('conflict')(lost.reason))
})

test('rewind: points that are not there are refused', async () => {
  const service = serve()
  const session = await turns(service, 'a')
  const { lastSequence } = (await world.store.head(session.id))!
  const cases = [
    [{ messageId: 'msg_none' }, 'not_found'],
    [{ checkpointId: 'cp-none' }, 'not_found'],
    [{ eventId: lastSequence + 1 }, 'invalid_request'],
    [{ eventId: 3 }, 'not_found'],
  ] as const
  for (const [to, code] of cases)
    await assert.rejects(service.rewinds.rewind(orgId, session.id, { userId: 'u1', to, what: 'all' }), refused(code))
  const foreign = { userId: 'u2', to: { eventId: lastSequence }, what: 'all' } as const
  await assert.rejects(service.rewinds.rewind(orgId, session.id, foreign), refused('forbidden'))
  await world.turn(service, session.id, 'b')
  await world.saved(session.id, 2)
  const inside = { userId: 'u1', to: { eventId: lastSequence + 1 }, what: 'all' } as const
  await assert.rejects(service.rewinds.rewind(orgId, session.id, inside), refused('invalid_request'))
})

test('adopt: the turns, files and processes of a fork become those of the session, and an undo takes that back', async () => {
  const service = serve()
  const session = await turns(service, 'a', 'b')
  const [a] = await users(session.id)
  const variants = [{ message: 'x' }, { message: 'y' }]
  const made = await service.forks.make(orgId, session.id, { userId: 'u1', at: { messageId: a!.id }, variants })
  const [chosen, other] = made.map((one) => ('view' in one ? one.view.session : assert.fail(String(one.error))))
  for (const fork of [chosen!, other!]) {
    await world.saved(fork.id, 1)
    world.sandboxes.machine(fork.sandboxId).files.set('/workspace/app/page', `of ${fork.id}`)
  }
  const told = await service.rewinds.adopt(orgId, session.id, { userId: 'u1', from: chosen!.id })
  assert.equal(told.restoredPrompt, 'b')
  assert.equal(page(session), `of ${chosen!.id}`)
  const now = await users(session.id)
  assert.deepEqual(
    now.map(({ content }) => content),
    ['a', 'x'],
  )
  await world.until(session.id, 'idle')
  const point = await world.store.pointOfTurn(session.id, now[1]!.id)
  assert.ok(point !== undefined, 'the adopted turn can be gone back to')
  assert.match((await world.store.session(other!.id))?.archivedFor ?? '', /adopted/)
  assert.equal(world.sandboxes.machine(other!.sandboxId).sandbox.status, 'hibernated')

  const undo = { userId: 'u1', to: { checkpointId: told.undoCheckpointId }, what: 'all' } as const
  await service.rewinds.rewind(orgId, session.id, undo)
  assert.equal(page(session), 'b')
  assert.deepEqual(
    (await users(session.id)).map(({ content }) => content),
    ['a', 'b'],
  )
  await world.until(session.id, 'idle')
  await service.rewinds.rewind(orgId, session.id, { userId: 'u1', to: { messageId: now[1]!.id }, what: 'all' })
  assert.equal(page(session), `of ${chosen!.id}`)
})

test('adopt: what is no fork of the session, or works, or is of another user, is refused', async () => {
  const service = serve()
  const session = await turns(service, 'a')
  const { session: stranger } = await service.create(orgId, { prompt: 'z', userId: 'u1' })
  const { session: foreign } = await service.create(orgId, { prompt: 'z', userId: 'u2' })
  const adopt = (from: string, userId = 'u1') => service.rewinds.adopt(orgId, session.id, { userId, from })
  await assert.rejects(adopt(stranger.id), refused('conflict'))
  await assert.rejects(adopt(foreign.id), refused('not_found'))
  await assert.rejects(adopt(stranger.id, 'u2'), refused('forbidden'))
  const request = { userId: 'u1', variants: [{ message: 'hang' }] }
  const [busy] = await service.forks.make(orgId, session.id, request)
  assert.ok(busy !== undefined && 'view' in busy)
  await world.until(busy.view.session.id, 'working')
  await assert.rejects(adopt(busy.view.session.id), refused('conflict'))
  await service.delete(orgId, busy.view.session.id)
  await assert.rejects(adopt(busy.view.session.id), refused('conflict'))
})
