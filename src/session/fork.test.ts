import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { ServiceError } from '../errors.ts'
import type { Sessions } from './service.ts'
import type { Session } from './session.ts'
import { assertWhole, orgId, refused, simple, useWorld } from './testing/world.ts'

const world = useWorld()
let service: Sessions
beforeEach(() => {
  service = world.serve()
})

test('a fork has a name of its own or none; one that is taken is refused before a checkpoint is made', async () => {
  const { session } = await service.create(orgId, { ...simple, name: 'chat' })
  await world.until(session.id, 'idle')
  const { session: unnamed } = await service.fork(orgId, session.id, 'u1')
  assert.equal(unnamed.name, undefined)
  await world.until(unnamed.id, 'idle')
  const checkpoints = world.sandboxes.checkpoints.size
  await assert.rejects(service.fork(orgId, session.id, 'u1', { name: 'chat' }), refused('conflict'))
  await assert.rejects(service.fork(orgId, session.id, 'u1', { name: 'A' }), refused('invalid_request'))
  assert.equal(world.sandboxes.checkpoints.size, checkpoints)
  const { session: named } = await service.fork(orgId, session.id, 'u1', { name: 'chat-2' })
  assert.equal(await service.idNamed(orgId, 'chat-2'), named.id)
  assert.equal(await service.idNamed(orgId, 'chat'), session.id)
  await service.delete(orgId, session.id)
  await assert.rejects(service.idNamed(orgId, 'chat'), refused('not_found'))
})

test('a fork has copies of messages, files and project, and sandbox, stream, token and budget of its own', async () => {
  const source = await world.idle(service)
  world.sandboxes.machine(source.sandboxId).files.set('/workspace/app/x', 'old')
  const tokens = { inputTokens: 9, cacheReadTokens: 2, cacheWriteTokens: 3, outputTokens: 4 }
  await world.store.commit(source.id, { usage: { ...tokens, costNanoUsd: 5 } })
  const before = await service.get(orgId, source.id)
  const boot = Promise.withResolvers<void>()
  world.sandboxes.beforeCreate = () => boot.promise
  const view = await service.fork(orgId, source.id, 'u1')
  const { session: fork } = view
  assert.equal(fork.activity, 'starting')
  world.sandboxes.beforeCreate = async () => {}
  boot.resolve()
  const shape = (messages: typeof view.messages) => messages.map(({ role, content, state }) => [role, content, state])
  assert.deepEqual(shape(view.messages), shape(before.messages))
  assert.ok(view.messages.every(({ id }) => !before.messages.some((message) => message.id === id)))
  assert.deepEqual([fork.title, fork.artifacts], [source.title, before.session.artifacts])
  for (const counter of [...Object.keys(tokens), 'costNanoUsd'] as (keyof typeof tokens)[])
    assert.equal(fork[counter], 0)
  assert.notEqual(fork.sandboxId, source.sandboxId)
  await world.until(fork.id, 'idle')
  assert.deepEqual(await world.types(fork.id), ['ready', 'configured'])
  assert.equal(world.sandboxes.machine(fork.sandboxId).files.get('/workspace/app/x'), 'old')
  const hashes = await Promise.all(
    [source.id, fork.id].map(async (id) => (await world.store.session(id))?.gatewayTokenHash),
  )
  assert.notEqual(hashes[0], hashes[1])
  assert.equal(world.sandboxes.checkpoints.size, 0)
  const kept = await world.store.session(fork.id)
  assert.deepEqual([kept?.checkpointId, kept?.forkCheckpointOf, kept?.forkedFrom], [undefined, undefined, source.id])

  for (const { id } of [fork, source]) {
    await world.turn(service, id, `in ${id}`)
  }
  await assertWhole(world, source.id)
  const ends = (await world.types(fork.id)).filter((type) => type === 'turn_complete')
  assert.equal(ends.length, 1)
  assert.equal((await world.store.messages(fork.id)).at(-1)?.content.includes(source.id), false)
  await service.delete(orgId, source.id)
  await service.delete(orgId, fork.id)
  for (const count of world.sandboxes.holds.values()) assert.equal(count, 0)
})

test('skills are not written again over what the source made of them', async () => {
  const { session } = await service.create(orgId, { ...simple, agentConfig: { skills: { 'a/SKILL.md': 'text' } } })
  await world.until(session.id, 'idle')
  world.sandboxes.machine(session.sandboxId).files.set('/workspace/agent/a/SKILL.md', 'better')
  const { session: fork } = await service.fork(orgId, session.id, 'u1')
  await world.until(fork.id, 'idle')
  assert.equal(world.sandboxes.machine(fork.sandboxId).files.get('/workspace/agent/a/SKILL.md'), 'better')
  assert.deepEqual(await world.store.skills(fork.id), session.agentConfig.skills)
})

test('a page that a fork serves from the beginning is announced before its first work', async () => {
  const source = await world.idle(service)
  world.sandboxes.machine(source.sandboxId).ports.push(3000)
  const { session: fork } = await service.fork(orgId, source.id, 'u1')
  await world.eventually('preview', async () => {
    assert.equal((await world.eventTypes(fork.id)).at(-1), 'preview_ready')
  })
})

test('a message that comes while the fork is made waits, and is the source’s alone', async () => {
  const source = await world.idle(service)
  const go = Promise.withResolvers<void>()
  const begun = Promise.withResolvers<void>()
  world.sandboxes.beforeCheckpoint = () => (begun.resolve(), go.promise)
  const forking = service.fork(orgId, source.id, 'u1')
  await begun.promise
  await service.sendMessage(orgId, source.id, { message: 'b', userId: 'u1' })
  const turns = () => world.sandboxes.agent.commands.filter(({ type }) => type === 'message').length
  for (let tick = 0; tick < 50; tick++) await new Promise((resolve) => setImmediate(resolve))
  assert.equal(turns(), 1)
  go.resolve()
  const { session: fork, messages } = await forking
  assert.equal(messages.length, 2)
  await world.until(source.id, 'idle')
  await world.until(fork.id, 'idle')
  await assertWhole(world, source.id)
  assert.deepEqual(
    (await world.store.messages(source.id)).filter(({ role }) => role === 'user').map(({ state }) => state),
    ['consumed', 'consumed'],
  )
})

test('only the owner forks, and only an idle session', async () => {
  world.sandboxes.script = { turn: () => {} }
  const { session } = await service.create(orgId, simple)
  await assert.rejects(service.fork(orgId, session.id, 'u1'), refused('conflict'))
  await world.eventually('the turn', () => assert.equal(world.sandboxes.agent?.commands.length, 2))
  await assert.rejects(service.fork(orgId, session.id, 'u1'), refused('conflict'))
  world.sandboxes.agent.finish()
  await world.until(session.id, 'idle')
  await assert.rejects(service.fork(orgId, session.id, 'u2'), refused('forbidden'))
  await assert.rejects(service.fork('org_2', session.id, 'u1'), refused('not_found'))
  await service.delete(orgId, session.id)
  await assert.rejects(service.fork(orgId, session.id, 'u1'), refused('conflict'))
  assert.equal(world.sandboxes.checkpoints.size, 0)
})

test('without a full checkpoint the disk alone is forked; without any nothing is left, and the source goes on', async () => {
  const source = await world.idle(service)
  const kinds: string[] = []
  world.sandboxes.beforeCheckpoint = async (kind) => {
    kinds.push(kind)
    if (kind === 'full') throw new ServiceError('full_checkpoint_unavailable', 'no CRIU')
  }
  const { session: fork } = await service.fork(orgId, source.id, 'u1')
  await world.until(fork.id, 'idle')
  assert.deepEqual(kinds, ['full', 'disk_only'])
  world.sandboxes.beforeCheckpoint = () => Promise.reject(new ServiceError('no_capacity', 'the disk is full'))
  await assert.rejects(service.fork(orgId, source.id, 'u1'), refused('no_capacity'))
  assert.equal((await service.list(orgId, {})).items.length, 2)
  await world.turn(service, source.id, 'b')
  await assertWhole(world, source.id)
})

test('the checkpoint goes with a fork that is deleted before it has started, and with one whose server died', async () => {
  const source = await world.idle(service)
  const boot = Promise.withResolvers<void>()
  world.sandboxes.beforeCreate = () => boot.promise
  const { session: first } = await service.fork(orgId, source.id, 'u1')
  const deleted = service.delete(orgId, first.id)
  boot.resolve()
  await deleted
  assert.equal(world.sandboxes.checkpoints.size, 0)
  assert.ok(
    [...world.sandboxes.machines.values()].every(
      ({ sandbox }) => sandbox.id === source.sandboxId || sandbox.status === 'stopped',
    ),
  )

  world.sandboxes.beforeCreate = () => Promise.reject(new ServiceError('patch_failed', 'no'))
  const { session: second } = await service.fork(orgId, source.id, 'u1')
  await world.until(second.id, 'failed')
  assert.equal(world.sandboxes.checkpoints.size, 1)
  // One that a server made and did not live to write down.
  const service2 = world.sandboxes.service()
  await service2.checkpoints.create(orgId, source.sandboxId, { id: 'cp-lost', owner: 'session', name: 'one' })
  await service.close()
  world.sandboxes.beforeCreate = async () => {}
  service = world.serve()
  await service.start()
  await world.turn(service, second.id, 'b')
  const { session: third } = await service.fork(orgId, source.id, 'u1')
  await world.until(third.id, 'idle')
  assert.equal(world.sandboxes.checkpoints.size, 0)
})

test('checkpoints of clients stay, whatever their names', async () => {
  const source = await world.idle(service)
  const { checkpoints } = world.sandboxes.service()
  const names = ['fork before refactor', 'fork session_lost', `fork ${source.id}`, 'forks of mine']
  for (const name of names) await checkpoints.create(orgId, source.sandboxId, { name })
  const { session: fork } = await service.fork(orgId, source.id, 'u1')
  await world.until(fork.id, 'idle')
  assert.deepEqual(
    [...world.sandboxes.checkpoints.values()].map(({ name }) => name),
    names,
  )
})

test('a fork can be forked', async () => {
  let session = await world.idle(service)
  for (let generation = 0; generation < 3; generation++) {
    session = (await service.fork(orgId, session.id, 'u1')).session
    await world.until(session.id, 'idle')
    await world.turn(service, session.id, `generation ${generation}`)
  }
  const users = (await world.store.messages(session.id)).filter(({ role }) => role === 'user')
  assert.deepEqual(
    users.map(({ content }) => content),
    ['a page', 'generation 0', 'generation 1', 'generation 2'],
  )
})

async function nextServer(): Promise<void> {
  await service.close()
  service = world.serve()
  await service.start()
  await service.sweepForkCheckpoints()
}

async function noneLeft(): Promise<void> {
  await world.eventually('no checkpoint is left', () => assert.equal(world.sandboxes.checkpoints.size, 0))
}

const storeAway = () => Promise.reject(new Error('the database is away'))
const busy = () => Promise.reject(new ServiceError('unavailable', 'the machine is busy'))

/** One that a server made, and did not live to write down what for. */
async function abandoned({ sandboxId }: Session): Promise<void> {
  const { checkpoints } = world.sandboxes.service()
  await checkpoints.create(orgId, sandboxId, { id: 'cp-lost', owner: 'session', name: 'one' })
}

test('the next server removes a checkpoint that nobody wrote down, also when the source has ended', async () => {
  const [first, second] = [await world.idle(service), await world.idle(service)]
  await abandoned(first)
  await service.delete(orgId, first.id)
  await nextServer()
  await noneLeft()
  await abandoned(second)
  await nextServer()
  await noneLeft()
})

test('a server that runs on removes it too', async () => {
  const source = await world.idle(service)
  await abandoned(source)
  await service.sweepForkCheckpoints()
  await noneLeft()
})

test('a fork whose checkpoint cannot be looked at leaves none', async () => {
  const source = await world.idle(service)
  world.sandboxes.beforeSettled = storeAway
  await assert.rejects(service.fork(orgId, source.id, 'u1'), /the database is away/)
  world.sandboxes.beforeSettled = async () => {}
  await noneLeft()
  const { session: fork } = await service.fork(orgId, source.id, 'u1')
  await world.until(fork.id, 'idle')
  await noneLeft()
})

test('a fork that fails says why, and what it could not remove goes with the next server', async () => {
  const source = await world.idle(service)
  world.sandboxes.beforeSettled = storeAway
  world.sandboxes.beforeCheckpointDelete = busy
  await assert.rejects(service.fork(orgId, source.id, 'u1'), /the database is away/)
  assert.equal(world.sandboxes.checkpoints.size, 1)
  world.sandboxes.beforeSettled = async () => {}
  world.sandboxes.beforeCheckpointDelete = async () => {}
  await nextServer()
  await noneLeft()
})

test('a fork that was deleted while its checkpoint could not be removed has none after the next start', async () => {
  const source = await world.idle(service)
  world.sandboxes.beforeCreate = () => Promise.reject(new ServiceError('conflict', 'it does not start'))
  const { session: fork } = await service.fork(orgId, source.id, 'u1')
  await world.until(fork.id, 'failed')
  world.sandboxes.beforeCheckpointDelete = busy
  await service.delete(orgId, fork.id)
  assert.equal(world.sandboxes.checkpoints.size, 1)
  world.sandboxes.beforeCheckpointDelete = async () => {}
  await nextServer()
  await noneLeft()
})

test('a fork that stands and whose checkpoint could not be removed has none after the next start', async () => {
  const source = await world.idle(service)
  world.sandboxes.beforeCheckpointDelete = busy
  const { session: fork } = await service.fork(orgId, source.id, 'u1')
  await world.until(fork.id, 'idle')
  assert.equal(world.sandboxes.checkpoints.size, 1)
  world.sandboxes.beforeCheckpointDelete = async () => {}
  await nextServer()
  await noneLeft()
})

test('a checkpoint that a fork is made of, or still needs, stays', async () => {
  const source = await world.idle(service)
  const { checkpoints } = world.sandboxes
  const swept = async () => {
    await service.sweepForkCheckpoints()
    assert.equal(checkpoints.size, 1)
  }
  const go = Promise.withResolvers<void>()
  world.sandboxes.beforeSettled = () => go.promise
  world.sandboxes.beforeCreate = () => Promise.reject(new ServiceError('conflict', 'it does not start'))
  const forking = service.fork(orgId, source.id, 'u1')
  await world.eventually('the checkpoint', () => assert.equal(checkpoints.size, 1))
  await swept()
  go.resolve()
  const { session: fork } = await forking
  await world.until(fork.id, 'failed')
  await swept()
  world.sandboxes.beforeCreate = async () => {}
  await world.turn(service, fork.id, 'again')
  await noneLeft()
})
