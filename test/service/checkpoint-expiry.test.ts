import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import { newSession } from '../store/kit.ts'
import { forgetSandboxes, hold, throwsCode, worlds } from './world.ts'

const { makeSandbox, sharedStore } = worlds()

afterEach(() => forgetSandboxes(sharedStore()))

/** A sandbox, and what makes checkpoints whose time is over. */
async function expiryWorld() {
  const world = await makeSandbox()
  const { service, orgId, store, sandbox } = world
  const ids = async () => {
    const { items } = await service.checkpoints.page(orgId, { limit: 1000 })
    return items.map(({ checkpoint }) => checkpoint.id)
  }
  return {
    ...world,
    ids,
    expire: (id: string) => store.sandboxes.updateCheckpoint(id, { expiresAt: new Date(Date.now() - 1) }),
    async expired(name: string) {
      const { id } = await world.checkpoint(name, { expiresInSeconds: 60 })
      await this.expire(id)
      return id
    },
    /** What is there after a run of the rule. */
    async deleteExpired() {
      await service.deleteExpiredCheckpoints(new AbortController().signal)
      return await ids()
    },
    start: async (id: string, more: object = {}) => (await service.checkpoints.start(orgId, id, more)).sandbox,
    restore: (id: string) => service.checkpoints.restore(orgId, sandbox.id, id),
  }
}

test('checkpoint expiry: one is deleted once its time is over, with its data, and the log says why', async () => {
  const world = await expiryWorld()
  const { service, machines, orgId, store } = world
  const [stays, later] = [await world.checkpoint('stays'), await world.checkpoint('later', { expiresInSeconds: 60 })]
  assert.equal(stays.expiresAt, undefined)
  assert.equal(later.expiresAt?.getTime(), later.createdAt.getTime() + 60_000)
  const gone = await world.expired('gone')
  machines.before.checkpoint = () => Promise.reject(new Error('no'))
  const failed = await world.expired('failed')
  assert.equal((await service.checkpoints.get(orgId, failed)).checkpoint.status, 'failed')
  assert.deepEqual(await world.deleteExpired(), [later.id, stays.id])
  assert.deepEqual([...machines.checkpoints].toSorted(), [later.id, stays.id].toSorted())
  const { events } = await store.events.page(orgId, { after: 0, limit: 100, filter: { types: ['checkpoint.deleted'] } })
  const told = events.map(({ subject, data }) => `${subject} ${String(data['reason'])}`)
  assert.deepEqual(told.toSorted(), [`${failed} expired`, `${gone} expired`].toSorted())
})

test('checkpoint expiry: one stays while it is made, and while a sandbox is started from it or restored to it', async () => {
  const world = await expiryWorld()
  const { service, machines, orgId, sandbox } = world
  const dump = hold(machines, 'checkpoint')
  const { id } = await service.checkpoints.create(orgId, sandbox.id, { name: 'one', kind: 'disk_only' })
  await dump.begun
  await world.expire(id)
  assert.deepEqual(await world.deleteExpired(), [id])
  // Each of these waits for the dump, before there is a row of a fork.
  const early = world.start(id)
  dump.release()
  await service.checkpoints.settled(orgId, id)
  const forked = await early
  for (const [step, use] of [
    ['create', world.start],
    ['restore', world.restore],
  ] as const) {
    const held = hold(machines, step)
    const using = use(id)
    await held.begun
    assert.deepEqual(await world.deleteExpired(), [id])
    held.release()
    await using
  }
  assert.deepEqual(await world.deleteExpired(), [])
  await assert.rejects(world.start(id), throwsCode('not_found'))
  // A fork goes on without it.
  await service.hibernate(orgId, forked.id)
  assert.equal((await service.wake(orgId, forked.id)).status, 'running')
})

test('checkpoint expiry: a start that comes in the middle of the deletion finds no checkpoint', async () => {
  const world = await expiryWorld()
  const { service, machines } = world
  const id = await world.expired('one')
  const begun = Promise.withResolvers<void>()
  const held = Promise.withResolvers<void>()
  machines.before.deleteCheckpoint = async () => {
    begun.resolve()
    await held.promise
  }
  const deletion = service.deleteExpiredCheckpoints(new AbortController().signal)
  await begun.promise
  const start = assert.rejects(world.start(id), throwsCode('not_found'))
  held.resolve()
  await Promise.all([start, deletion])
})

test('checkpoint expiry: one stays for a session without a sandbox, and for patches that wakes run', async () => {
  const world = await expiryWorld()
  const { service, orgId, store } = world
  const [forSession, patched, patchedOnce] = [
    await world.expired('session'),
    await world.expired('patched'),
    await world.expired('patched once'),
  ]
  const session = await newSession(store, orgId, { checkpointId: forSession })
  await service.patches.create(orgId, patched, { script: 'true', strategy: 'on_resume' })
  await service.patches.create(orgId, patchedOnce, { script: 'true' })
  const fork = await world.start(patched)
  await world.start(patchedOnce)
  await service.hibernate(orgId, fork.id)
  assert.deepEqual((await world.deleteExpired()).toSorted(), [forSession, patched].toSorted())
  assert.deepEqual((await service.checkpoints.get(orgId, patched)).dependents, {
    ...{ sandboxes: 1, sessions: 0, images: 0, checkpoints: 0 },
  })
  assert.equal((await service.checkpoints.get(orgId, forSession)).dependents.sessions, 1)
  await service.create(orgId, { id: session.sandboxId })
  await service.delete(orgId, fork.id)
  assert.deepEqual(await world.deleteExpired(), [])
})

test('checkpoint expiry: a change moves it or takes it away; those of images and sessions have none', async () => {
  const world = await expiryWorld()
  const { service, orgId, sandbox } = world
  const { checkpoints } = service
  const [moved, kept] = [await world.expired('moved'), await world.expired('kept')]
  const { checkpoint } = await checkpoints.setExpiry(orgId, moved, 3600)
  assert.ok(checkpoint.expiresAt!.getTime() > Date.now() + 3_500_000)
  assert.equal((await checkpoints.setExpiry(orgId, kept, undefined)).checkpoint.expiresAt, undefined)
  assert.deepEqual((await world.deleteExpired()).toSorted(), [moved, kept].toSorted())
  for (const owner of ['image', 'session'] as const) {
    const { id } = await world.checkpoint(owner, { owner })
    await assert.rejects(checkpoints.setExpiry(orgId, id, 60), throwsCode('conflict', new RegExp(owner)))
  }
  for (const expiresInSeconds of [0, 1.5, 31_536_001]) {
    const wrong = throwsCode('invalid_request', /^expiresInSeconds/)
    await assert.rejects(checkpoints.setExpiry(orgId, moved, expiresInSeconds), wrong)
    await assert.rejects(checkpoints.create(orgId, sandbox.id, { name: 'x', expiresInSeconds }), wrong)
  }
  await assert.rejects(checkpoints.setExpiry(newId('org_'), moved, 60), throwsCode('not_found'))
})
