/** Repeats of sandbox API requests under their key, after a database fault or an end of the server at each call. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { Idempotency } from '../../src/http/server/idempotency.ts'
import type { Creation } from '../../src/lib/creation.ts'
import { sha256 } from '../../src/lib/secret.ts'
import type { CheckpointService } from '../../src/sandbox/index.ts'
import { everyCall } from '../../src/lib/testing/thorough.ts'
import type { Store } from '../../src/store/index.ts'
import { Crash } from '../../src/session/testing/crash.ts'
import { openFreshStore } from '../support/database.ts'
import { Calls, Fault, type Mode, Request } from '../support/faults.ts'
import { makeWorld } from './world.ts'

type World = Awaited<ReturnType<typeof makeWorld>>

interface Story {
  name: string
  /** Makes the state before the request and returns an id for it. */
  prepare(world: World): Promise<string>
  work(world: World, id: string, creation: Creation): Promise<unknown>
  /** Throws unless the request had its effect once and its answer shows it. */
  check(world: World, id: string, answer: unknown): Promise<void>
}

let opened: Store
before(async () => {
  opened = await openFreshStore()
})
after(() => opened.close())

const previewAuth = { scheme: 'bearer' } as const
const diskOnly = { kind: 'disk_only' } as const

async function listed({ service, orgId }: World, but = ''): Promise<string[]> {
  const { items } = await service.list(orgId, {})
  const others = items.filter(({ id }) => id !== but)
  for (const { id, status, reasonMessage } of others) assert.equal(status, 'running', `${id}: ${reasonMessage}`)
  return others.map(({ id }) => id).toSorted()
}

function machines(world: World, but = ''): string[] {
  return [...world.machines.machines.keys()].filter((id) => id !== but).toSorted()
}

function ids(all: readonly unknown[]): string[] {
  return all.map((one) => (one as { id: string }).id)
}

async function sandbox({ service, orgId }: World): Promise<string> {
  return (await service.create(orgId, {})).sandbox.id
}

/** Of a stopped sandbox, so that all listed sandboxes are started from it. */
async function checkpoint(world: World): Promise<string> {
  const { service, orgId } = world
  const id = await sandbox(world)
  const { id: checkpointId } = await service.checkpoints.create(orgId, id, { name: 'a', ...diskOnly })
  assert.equal((await service.checkpoints.settled(orgId, checkpointId)).status, 'ready')
  await service.delete(orgId, id)
  return checkpointId
}

const stories: Story[] = [
  {
    name: 'sandbox',
    prepare: async () => '',
    work: ({ service, orgId }, _id, creation) => service.create(orgId, { previewAuth }, { creation }),
    async check(world, _id, answer) {
      const { sandbox: made, previewAuthToken = '' } = answer as Awaited<ReturnType<World['service']['create']>>
      assert.deepEqual([await listed(world), machines(world)], [[made.id], [made.id]])
      const found = await world.service.get(world.orgId, made.id)
      assert.equal(found.previewTokenHash, sha256(previewAuthToken))
    },
  },
  {
    name: 'start from a checkpoint',
    prepare: checkpoint,
    work: ({ service, orgId }, id, creation) => service.checkpoints.start(orgId, id, {}, { creation }),
    async check(world, _id, answer) {
      const { sandbox: made } = answer as Awaited<ReturnType<CheckpointService['start']>>
      assert.deepEqual([await listed(world), machines(world)], [[made.id], [made.id]])
    },
  },
  {
    name: 'three starts from a checkpoint',
    prepare: checkpoint,
    work: ({ service, orgId }, id, creation) => service.checkpoints.startMany(orgId, id, {}, 3, { creation }),
    async check(world, _id, answer) {
      const results = answer as Awaited<ReturnType<CheckpointService['startMany']>>
      const made = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value.sandbox.id] : []))
      // What failed was answered as a failure, and nothing is left of it.
      assert.ok(results.length === 3 && made.length >= 2)
      assert.deepEqual([await listed(world), machines(world)], [made.toSorted(), made.toSorted()])
    },
  },
  {
    name: 'checkpoint',
    prepare: sandbox,
    work: ({ service, orgId }, id, creation) =>
      service.checkpoints.create(orgId, id, { name: 'a', ...diskOnly }, { creation }),
    async check({ service, orgId, machines: park }, id, answer) {
      const { id: made } = answer as Awaited<ReturnType<CheckpointService['create']>>
      const { status } = await service.checkpoints.settled(orgId, made)
      // One that could not be recorded has failed, and is not taken a second time.
      assert.ok(park.checkpoints.size <= 1 && (status === 'failed' || park.checkpoints.has(made)), status)
      assert.deepEqual(ids(await service.checkpoints.list(orgId, id)), [made])
    },
  },
  {
    name: 'sandbox that writes a volume',
    prepare: async ({ service, orgId }) => (await service.volumes.create(orgId, { name: 'v' })).id,
    work: ({ service, orgId }, _id, creation) =>
      service.create(orgId, { volumes: [{ name: 'v', path: '/v' }] }, { creation }),
    async check(world, _id, answer) {
      const { sandbox: made } = answer as Awaited<ReturnType<World['service']['create']>>
      assert.deepEqual([await listed(world), machines(world)], [[made.id], [made.id]])
      const { attachments } = await world.service.volumes.get(world.orgId, 'v')
      assert.deepEqual(
        attachments.map(({ sandboxId }) => sandboxId),
        [made.id],
      )
    },
  },
  {
    name: 'volume',
    prepare: async () => '',
    work: ({ service, orgId }, _id, creation) => service.volumes.create(orgId, { name: 'v' }, { creation }),
    async check({ service, orgId, machines: park }, _id, answer) {
      assert.deepEqual(ids(await service.volumes.list(orgId)), ids([answer]))
      for (const id of ids([answer])) assert.ok(park.volumes.has(id))
    },
  },
  {
    name: 'snapshot of a volume',
    prepare: async ({ service, orgId }) => (await service.volumes.create(orgId, { name: 'v' })).id,
    work: ({ service, orgId }, _id, creation) => service.volumes.createSnapshot(orgId, 'v', 's', { creation }),
    async check({ service, orgId, machines: park }, _id, answer) {
      assert.deepEqual(ids(await service.volumes.listSnapshots(orgId, 'v')), ids([answer]))
      for (const id of ids([answer])) assert.ok(park.volumes.has(id))
    },
  },
  {
    name: 'patch',
    prepare: checkpoint,
    work: ({ service, orgId }, id, creation) => service.patches.create(orgId, id, { script: 'true' }, { creation }),
    async check({ service, orgId }, id, answer) {
      const patches = await service.patches.list(orgId, id)
      assert.deepEqual(ids(patches), ids([answer]))
    },
  },
  {
    name: 'preview',
    prepare: sandbox,
    work: ({ service, orgId }, id, creation) =>
      service.previews.put(orgId, id, { port: 80, auth: previewAuth, domain: `${id}.example.com` }, { creation }),
    async check({ service, orgId }, id, answer) {
      const { preview, created, token = '' } = answer as Awaited<ReturnType<World['service']['previews']['put']>>
      assert.deepEqual(ids(await service.previews.list(orgId, id)), ids([preview]))
      assert.ok(created)
      assert.equal(preview.tokenHash, sha256(token))
    },
  },
]

/** Returns false when the request is done without that many calls. */
async function surviveFault(store: Store, story: Story, at: number, mode: Mode): Promise<boolean> {
  const calm = await makeWorld(store)
  const id = await story.prepare(calm)
  await calm.service.close()
  const fault = new Fault(at, mode)
  const world = await makeWorld({ ...store, sandboxes: fault.wrap(store.sandboxes) }, {}, calm)
  const request = new Request(calm.orgId, (creation) => story.work(world, id, creation))
  const { body } = await request.insist(fault.wrap(store.idempotency))
  fault.disarm()
  await story.check(world, id, body)
  await world.service.close()
  return fault.happened
}

async function surviveEnd(store: Store, story: Story, at: number, mode: Mode): Promise<boolean> {
  const calm = await makeWorld(store)
  const id = await story.prepare(calm)
  await calm.service.close()
  const crash = new Crash(at, mode)
  const calls = new Calls()
  const first = await makeWorld({ ...store, sandboxes: crash.wrap(calls.wrap(store.sandboxes)) }, {}, calm)
  const request = new Request(calm.orgId, (creation) => story.work(first, id, creation))
  const happened = await crash.within(() => request.insist(crash.wrap(calls.wrap(store.idempotency))))
  await calls.ended()
  const second = await makeWorld(store, {}, calm)
  second.machines.report = { running: machines(second) }
  await second.service.start()
  for (const abandoned of second.machines.opened?.abandoned.sandboxIds ?? []) second.machines.machines.delete(abandoned)
  const again = new Request(calm.orgId, (creation) => story.work(second, id, creation), request)
  const { body } = await again.insist(store.idempotency)
  await story.check(second, id, body)
  await second.service.close()
  return happened
}

for (const story of stories) {
  for (const mode of ['before', 'after'] as const) {
    for (const [event, survive] of [
      ['a database call fails', surviveFault],
      ['the server ends at a database call', surviveEnd],
    ] as const) {
      test(`${story.name}: it is made once when ${event}, ${mode} the call has happened`, async () => {
        await everyCall(4, (at) => survive(opened, story, at, mode))
      })
    }
  }
}

test('process: it is started once under its key, while the sandbox knows it', async () => {
  const world = await makeWorld(opened)
  const { service, orgId } = world
  const id = await sandbox(world)
  const starts = [
    (creation: Creation) => service.exec.runAsync(orgId, id, { cmd: 'true' }, { creation }),
    (creation: Creation) => service.exec.start(orgId, id, { cmd: 'true' }, { creation }),
    (creation: Creation) => service.exec.startPty(orgId, id, { cols: 80, rows: 24 }, { creation }),
  ]
  for (const start of starts) {
    const earlier = world.machines.scripts.length
    let told: unknown
    const request = new Request(orgId, async (creation) => {
      const started = await start(creation)
      if (told === undefined) {
        told = started
        throw new ServiceError('unavailable', 'the guest does not answer')
      }
      return started
    })
    const { body } = await request.insist(opened.idempotency)
    assert.deepEqual(idOf(body), idOf(told))
    assert.equal(world.machines.scripts.length, earlier + 1)
  }
  await service.close()
})

test('process: a refused repeat keeps the key, and the next one finds the process of the first', async () => {
  const world = await makeWorld(opened)
  const { service, orgId } = world
  const id = await sandbox(world)
  const failures = [new ServiceError('unavailable', 'no answer'), new ServiceError('rate_limited', 'no place')]
  const request = new Request(orgId, async (creation) => {
    if (failures.length === 1) throw failures.pop()!
    const started = await service.exec.start(orgId, id, { cmd: 'true' }, { creation })
    const failure = failures.shift()
    if (failure) throw failure
    return started
  })
  const idempotency = new Idempotency(opened.idempotency)
  const earlier = world.machines.scripts.length
  await assert.rejects(request.send(idempotency), /no answer/)
  await assert.rejects(request.send(idempotency), /no place/)
  await request.send(idempotency)
  assert.equal(world.machines.scripts.length, earlier + 1)
  await service.close()
})

function idOf(started: unknown): unknown {
  const { id, execId } = started as { id?: string; execId?: string }
  return id ?? execId
}

test('sandbox: a refused or undone creation can be repeated under its key', async () => {
  const world = await makeWorld(opened)
  const { service, orgId, machines: park } = world
  const request = new Request(orgId, (creation) => service.create(orgId, {}, { creation }))
  const idempotency = new Idempotency(opened.idempotency)
  park.before.create = () => Promise.reject(new ServiceError('unavailable', 'the machine refuses'))
  for (let attempt = 0; attempt < 3; attempt++) await assert.rejects(request.send(idempotency), /refuses/)
  assert.deepEqual(await listed(world), [])
  delete park.before.create
  const { body } = await request.send(idempotency)
  assert.deepEqual(await listed(world), [body.sandbox.id])
  await service.close()
})
