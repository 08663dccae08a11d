/** Requests of the Sessions API that are repeated under their key, after faults of the database and ends of the server at each call. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { CreateOptions } from '../../src/lib/creation.ts'
import { everyCall } from '../../src/lib/testing/thorough.ts'
import type { Session, Sessions, SessionView } from '../../src/session/index.ts'
import { Crash } from '../../src/session/testing/crash.ts'
import { assertWhole, orgId, simple, World } from '../../src/session/testing/world.ts'
import type { Store } from '../../src/store/index.ts'
import { openFreshStore } from '../support/database.ts'
import { Calls, Fault, type Mode, Request } from '../support/faults.ts'

interface Story {
  name: string
  /** Of the session that there is, which is idle. */
  prepare?(world: World, service: Sessions, session: Session): Promise<void>
  work(service: Sessions, id: string, options: CreateOptions): Promise<SessionView>
  /** Throws unless the request had its effect once. */
  check(world: World, id: string, answered: string): Promise<void>
}

let opened: Store
before(async () => {
  opened = await openFreshStore()
  await opened.organisations.insertOrganisation({ id: orgId, name: 'test' })
})
after(() => opened.close())

const modes = ['before', 'after'] as const

async function running({ store }: World): Promise<Session[]> {
  const found = await Promise.all((await store.sessionsIn('running')).map(({ id }) => store.session(id)))
  return found.filter((session) => session !== undefined)
}

const stories: Story[] = [
  {
    name: 'a session is created',
    work: (service, _id, options) => service.create(orgId, { ...simple, userId: 'u2' }, options),
    async check(world, _id, answered) {
      const created = (await running(world)).filter(({ userId }) => userId === 'u2')
      assert.deepEqual(
        created.map(({ id }) => id),
        [answered],
      )
    },
  },
  {
    name: 'a message is sent',
    work: (service, id, options) => service.sendMessage(orgId, id, { message: 'once', userId: 'u1' }, options),
    async check(world, id, answered) {
      assert.equal(answered, id)
      const sent = (await world.store.messages(id)).filter(({ content }) => content === 'once')
      assert.deepEqual(
        sent.map(({ state }) => state),
        ['consumed'],
      )
    },
  },
  {
    name: 'a session is forked',
    work: (service, id, options) => service.fork(orgId, id, 'u1', options),
    async check(world, id, answered) {
      const forks = (await running(world)).filter(({ forkedFrom }) => forkedFrom === id)
      assert.deepEqual(
        forks.map((fork) => fork.id),
        [answered],
      )
    },
  },
  {
    name: 'a session is restarted',
    async prepare(world, service, { id, sandboxId }) {
      world.sandboxes.set(sandboxId, 'error', 'oom')
      await world.until(id, 'failed')
      assert.equal((await service.get(orgId, id)).session.activity, 'failed')
    },
    work: (service, id, options) => service.restart(orgId, id, { userId: 'u1' }, options),
    async check(world, id, answered) {
      assert.equal(answered, id)
      const restarts = (await world.store.events(id)).filter(({ message }) => message.includes('in a new sandbox'))
      assert.equal(restarts.length, 1)
    },
  },
]

interface Done {
  world: World
  service: Sessions
  id: string
  answered: string
}

/** Each session becomes idle, with one sandbox that runs and nothing of nobody. */
async function checkAll({ world, service, id, answered }: Done, story: Story): Promise<void> {
  for (const session of await running(world)) await becomeIdle(world, service, session)
  await story.check(world, id, answered)
  await assertWhole(world, id)
  const sessions = await running(world)
  const alive = [...world.sandboxes.machines.values()].filter(({ sandbox }) => sandbox.status !== 'stopped')
  assert.deepEqual(
    alive.map(({ sandbox }) => sandbox.id).toSorted(),
    sessions.map(({ sandboxId }) => sandboxId).toSorted(),
  )
  await world.eventually('no checkpoint is left', () => assert.equal(world.sandboxes.checkpoints.size, 0))
}

/** A fault may have met its boot rather than the request: then the next message boots again, as everywhere. */
async function becomeIdle(world: World, service: Sessions, { id, userId }: Session): Promise<void> {
  const { activity } = await world.eventually('it rests', async () => {
    const session = await world.store.session(id)
    assert.ok(session?.activity === 'idle' || session?.activity === 'failed', session?.activity)
    return session
  })
  if (activity === 'failed') await service.sendMessage(orgId, id, { message: 'go on', userId })
  await world.until(id, 'idle')
}

async function prepared(store: Store, story: Story): Promise<{ world: World; id: string }> {
  const world = new World(store.sessions)
  const service = world.serve()
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
  await story.prepare?.(world, service, session)
  await service.close()
  return { world, id: session.id }
}

async function endAll(world: World, service: Sessions): Promise<void> {
  for (const { id } of await running(world)) await service.delete(orgId, id)
}

const answerOf = ({ session }: SessionView): { id: string } => ({ id: session.id })

/** Returns false when the request is done without that many calls. */
async function surviveFault(store: Store, story: Story, at: number, mode: Mode): Promise<boolean> {
  const { world, id } = await prepared(store, story)
  const fault = new Fault(at, mode)
  const service = world.serve({}, (port) => (port === world.store ? fault.wrap(port) : port))
  const request = new Request(orgId, async (creation) => answerOf(await story.work(service, id, { creation })))
  try {
    const { body } = await request.insist(fault.wrap(store.idempotency))
    const { happened } = fault
    fault.disarm()
    await checkAll({ world, service, id, answered: body.id }, story)
    await endAll(world, service)
    return happened
  } finally {
    await world.close()
  }
}

async function surviveEnd(store: Store, story: Story, at: number, mode: Mode): Promise<boolean> {
  const { world, id } = await prepared(store, story)
  const [crash, calls] = [new Crash(at, mode), new Calls()]
  const wrap = <Port extends object>(port: Port) =>
    crash.wrap((port as object) === world.store ? calls.wrap(port) : port)
  const first = world.serve({}, wrap, true)
  const request = new Request(orgId, async (creation) => answerOf(await story.work(first, id, { creation })))
  const happened = await crash.within(() => request.insist(crash.wrap(calls.wrap(store.idempotency))))
  await calls.ended()
  for (const { sandbox } of world.sandboxes.machines.values()) world.sandboxes.breakConnections(sandbox.id)
  const second = world.serve()
  try {
    await second.start()
    const again = new Request(orgId, async (creation) => answerOf(await story.work(second, id, { creation })), request)
    const { body } = await again.insist(store.idempotency)
    await checkAll({ world, service: second, id, answered: body.id }, story)
    await endAll(world, second)
    return happened
  } finally {
    await world.close()
  }
}

type Survive = (store: Store, story: Story, at: number, mode: Mode) => Promise<boolean>

const troubles: [when: string, survive: Survive][] = [
  ['a call of the database fails', surviveFault],
  ['the server ends at one of its calls', surviveEnd],
]

for (const story of stories) {
  for (const mode of modes) {
    for (const [when, survive] of troubles) {
      test(`${story.name} once when ${when}, ${mode} it has happened`, async () => {
        await everyCall(4, (at) => survive(opened, story, at, mode))
      })
    }
  }
}
