/** Boots, wakes and starts of agents that lack something for the moment. */
import assert from 'node:assert/strict'
import { beforeEach, test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ErrorCode, ServiceError } from '../errors.ts'
import { defaultSessionLimits } from './config.ts'
import type { Sessions } from './service.ts'
import type { Session } from './session.ts'
import { assertWhole, orgId, simple, useWorld } from './testing/world.ts'

const world = useWorld()
let service: Sessions
beforeEach(() => {
  service = world.serve()
})

const full = (code: ErrorCode = 'no_capacity', details = {}) => new ServiceError(code, `no ${code} today`, { details })
const never = () => Promise.reject(full())

/** Fails the first calls with these codes, then does nothing; counts them. */
function lacking(...codes: ErrorCode[]) {
  const calls = { count: 0 }
  const call = async () => {
    const code = codes[calls.count]
    calls.count += 1
    if (code) throw full(code)
  }
  return Object.assign(call, { calls })
}

async function create(): Promise<Session> {
  return (await service.create(orgId, simple)).session
}

async function asleep(): Promise<Session> {
  const session = await world.idle(service)
  await world.hibernate(session)
  return session
}

async function warnings(sessionId: string): Promise<string[]> {
  const events = await world.store.events(sessionId)
  return events.filter(({ level }) => level === 'warning').map(({ type, message }) => `${type}: ${message}`)
}

async function told(sessionId: string): Promise<unknown[]> {
  const events = await world.streamed(sessionId)
  return events.filter(({ data }) => data.type === 'error').map(({ data }) => [data['code'], data['fatal']])
}

async function waits(sessionId: string): Promise<void> {
  await world.eventually('it waits', async () => {
    assert.notEqual((await world.store.session(sessionId))?.waitingFor, undefined)
  })
}

async function waitsForNothing(sessionId: string): Promise<void> {
  const session = await world.store.session(sessionId)
  assert.deepEqual([session?.waitingFor, session?.waitingSince], [undefined, undefined])
}

for (const code of ['no_capacity', 'rate_limited', 'unavailable'] as const) {
  test(`a session whose boot meets ${code} says so once, stays starting, and starts when it has passed`, async () => {
    let lacks = true
    let attempts = 0
    world.sandboxes.beforeCreate = async () => {
      attempts += 1
      if (lacks) throw full(code)
    }
    const { id } = await create()
    await world.eventually('attempts', () => assert.ok(attempts > 3))
    const waiting = await service.get(orgId, id)
    assert.deepEqual([waiting.session.status, waiting.session.activity], ['running', 'starting'])
    const [warning, ...others] = await warnings(id)
    assert.match(
      warning!,
      new RegExp(`^session_started: The sandbox could not be started yet: no ${code} today. It is tried again until 2`),
    )
    assert.deepEqual(others, [])
    assert.deepEqual(await told(id), [[code, false]])
    lacks = false
    await world.until(id, 'idle')
    assert.deepEqual((await world.eventTypes(id)).slice(0, 3), ['session_started', 'session_started', 'sandbox_ready'])
    await waitsForNothing(id)
    await assertWhole(world, id)
  })
}

test('a fork waits for room, and keeps its checkpoint until it stands', async () => {
  const source = await world.idle(service)
  const boot = lacking('rate_limited', 'rate_limited')
  world.sandboxes.beforeCreate = boot
  const { session: fork } = await service.fork(orgId, source.id, 'u1')
  await world.until(fork.id, 'idle')
  assert.equal(boot.calls.count, 3)
  assert.equal((await warnings(fork.id)).length, 1)
  await world.eventually('no checkpoint is left', () => assert.equal(world.sandboxes.checkpoints.size, 0))
})

test('a restart waits for room, with the message that waits', async () => {
  const session = await world.idle(service)
  world.sandboxes.set(session.sandboxId, 'error', 'oom')
  await world.until(session.id, 'failed')
  world.sandboxes.beforeCreate = lacking('no_capacity', 'no_capacity')
  await service.restart(orgId, session.id, { userId: 'u1' })
  await world.turn(service, session.id, 'b')
  assert.equal((await warnings(session.id)).length, 1)
  await assertWhole(world, session.id)
})

test('the start of an agent waits, and whoever may have been started is ended', async () => {
  let attempts = 0
  await service.close()
  service = world.serve({}, (port) => {
    if ('exec' in port) {
      const { exec } = world.sandboxes.service()
      ;(port as { exec: typeof exec }).exec.start = async (...given) => {
        const started = await exec.start(...given)
        attempts += 1
        if (attempts < 4) throw full('unavailable')
        return started
      }
    }
    return port
  })
  const { id } = await create()
  await world.until(id, 'idle')
  assert.match((await warnings(id)).join(), /^sandbox_ready: The agent could not be started yet: no unavailable today/)
  assert.deepEqual(
    world.sandboxes.agents.map(({ process }) => process.exitCode),
    [137, 137, 137, undefined],
  )
  await waitsForNothing(id)
  await assertWhole(world, id)
})

for (const code of ['rate_limited', 'no_capacity', 'unavailable'] as const) {
  test(`a message whose sandbox cannot be woken for ${code} stays queued, and is dealt with when it can`, async () => {
    const { id, sandboxId } = await asleep()
    let lacks = true
    let attempts = 0
    world.sandboxes.beforeWake = async () => {
      attempts += 1
      if (lacks) throw full(code)
    }
    await service.sendMessage(orgId, id, { message: 'b', userId: 'u1' })
    // Beyond what fails a session whose agent cannot be reached.
    await world.eventually('attempts', () => assert.ok(attempts > 14))
    const view = await service.get(orgId, id)
    assert.equal(view.session.activity, 'working')
    assert.equal(view.messages.at(-1)?.state, 'queued')
    assert.match((await warnings(id)).join(), /^sandbox_hibernated: The sandbox does not wake yet: no \w+ today[^,]*$/)
    lacks = false
    await world.until(id, 'idle')
    assert.equal(world.sandboxes.machine(sandboxId).sandbox.status, 'running')
    assert.equal(world.sandboxes.agents.length, 1)
    assert.equal((await warnings(id)).length, 1)
    await waitsForNothing(id)
    await assertWhole(world, id)
  })
}

test('a wait is over at its deadline: the session has failed, and the next message waits anew', async () => {
  await service.close()
  service = world.serve({ limits: { shortageWaitMs: 60 } })
  world.sandboxes.beforeCreate = never
  const { id } = await create()
  await world.until(id, 'failed')
  const { session, events } = await service.get(orgId, id)
  assert.equal(session.status, 'running')
  assert.equal(events.at(-1)?.type, 'session_failed')
  assert.equal(events.at(-1)?.message, 'The sandbox could not be started: no no_capacity today.')
  await waitsForNothing(id)
  // Three attempts may take longer than that deadline.
  await service.close()
  service = world.serve()
  let attempts = 0
  world.sandboxes.beforeCreate = async () => {
    attempts += 1
    if (attempts < 3) throw full()
  }
  await world.turn(service, id, 'b')
  assert.equal(attempts, 3)
  await assertWhole(world, id)
})

test('a wake that fails until the deadline fails the session, and the next message tries it anew', async () => {
  await service.close()
  service = world.serve({ limits: { shortageWaitMs: 60 } })
  const { id } = await asleep()
  world.sandboxes.beforeWake = () => Promise.reject(full('rate_limited'))
  await service.sendMessage(orgId, id, { message: 'b', userId: 'u1' })
  await world.until(id, 'failed')
  assert.match(
    (await service.get(orgId, id)).events.at(-1)!.message,
    /The sandbox does not wake: no rate_limited today/,
  )
  world.sandboxes.beforeWake = async () => {}
  await world.turn(service, id, 'c')
  await assertWhole(world, id)
})

test('another reason is told too', async () => {
  world.sandboxes.beforeCreate = lacking('no_capacity', 'no_capacity', 'unavailable', 'unavailable', 'rate_limited')
  const { id } = await create()
  await world.until(id, 'idle')
  assert.deepEqual(await told(id), [
    ['no_capacity', false],
    ['unavailable', false],
    ['rate_limited', false],
  ])
})

const slow = { shortageFirstMs: 60_000, shortageMaxMs: 60_000 }

test('a deletion during the wait acts at once and leaves nothing', async () => {
  await service.close()
  service = world.serve({ limits: slow })
  const sleeping = await asleep()
  world.sandboxes.beforeCreate = never
  world.sandboxes.beforeWake = never
  // Two in line, one that waits alone, and one that cannot be woken.
  const waiting = [await create(), await create()]
  world.sandboxes.beforeCreate = () => Promise.reject(full('unavailable'))
  const other = await service.create('org_2', simple)
  await service.sendMessage(orgId, sleeping.id, { message: 'b', userId: 'u1' })
  for (const { id } of [...waiting, other.session, sleeping]) await waits(id)
  const before = performance.now()
  for (const { id, orgId: owner } of [...waiting, other.session, sleeping]) {
    await service.delete(owner, id)
    assert.equal((await world.store.session(id))?.status, 'ended')
    await waitsForNothing(id)
  }
  assert.ok(performance.now() - before < slow.shortageFirstMs / 2)
  for (const { sandbox } of world.sandboxes.machines.values()) assert.equal(sandbox.status, 'stopped')
  for (const count of world.sandboxes.holds.values()) assert.equal(count, 0)
})

test('an interrupt during the wait ends the turn at once, of a sandbox that sleeps in a turn too', async () => {
  await service.close()
  service = world.serve({ limits: slow })
  const { script } = world.sandboxes
  const sleeping = await world.idle(service)
  const { agent } = world.sandboxes
  agent.process.onLine = () => agent.say('thinking')
  await service.sendMessage(orgId, sleeping.id, { message: 'b', userId: 'u1' })
  await world.eventually('the answer', async () => {
    assert.match(JSON.stringify(await world.streamed(sleeping.id)), /thinking/)
  })
  await world.hibernate(sleeping)
  world.sandboxes.beforeCreate = never
  world.sandboxes.beforeWake = never
  const starting = await create()
  await service.sendMessage(orgId, sleeping.id, { message: 'c', userId: 'u1' })
  for (const { id } of [starting, sleeping]) {
    await waits(id)
    await service.interrupt(orgId, id, 'u1')
    const results = (await world.streamed(id)).filter(({ data }) => data.type === 'result')
    assert.equal(results.at(-1)?.data['subtype'], 'interrupted')
  }
  // The agent that slept in the turn is not let go on with it.
  world.sandboxes.script = script
  world.sandboxes.beforeWake = async () => {}
  world.sandboxes.set(sleeping.sandboxId, 'running')
  await world.until(sleeping.id, 'idle')
  assert.equal(agent.process.exitCode, 137)
  await assertWhole(world, sleeping.id)
})

test('the next server goes on waiting, tells it once, and counts from the beginning', async () => {
  world.sandboxes.beforeCreate = never
  const { id } = await create()
  await waits(id)
  const since = (await world.store.session(id))!.waitingSince
  await service.close()
  let attempts = 0
  world.sandboxes.beforeCreate = async () => {
    attempts += 1
    await never()
  }
  service = world.serve()
  await service.start()
  await world.eventually('attempts', () => assert.ok(attempts > 2))
  assert.deepEqual((await world.store.session(id))!.waitingSince, since)
  await service.close()
  service = world.serve({ limits: { shortageWaitMs: 60 } })
  await service.start()
  await world.until(id, 'failed')
  const events = await world.store.events(id)
  assert.deepEqual(
    events.map(({ type, level }) => [type, level]),
    [
      ['session_started', 'info'],
      ['session_started', 'warning'],
      ['session_failed', 'error'],
    ],
  )
  await assertWhole(world, id)
})

/** Lets more time pass than a session waits. A deadline so short that a test can wait for it would pass before the test has looked. */
function passDeadline(t: TestContext): void {
  t.mock.timers.enable({ apis: ['Date'], now: Date.now() + defaultSessionLimits.shortageWaitMs + 1 })
}

test('a server that comes back behind the deadline tries once more', async (t) => {
  await service.close()
  service = world.serve({ limits: slow })
  world.sandboxes.beforeCreate = never
  const { id } = await create()
  await waits(id)
  await service.close()
  passDeadline(t)
  world.sandboxes.beforeCreate = async () => {}
  service = world.serve()
  await service.start()
  await world.until(id, 'idle')
})

test('an attempt is not made before the time that the refusal named', async () => {
  const times: number[] = []
  world.sandboxes.beforeCreate = async () => {
    times.push(performance.now())
    if (times.length === 1) throw full('rate_limited', { retryAfterSeconds: 0.2 })
    if (times.length === 2) throw full('unavailable', { retryAfterSeconds: 0.3 })
  }
  const { id } = await create()
  await world.until(id, 'idle')
  assert.ok(times[1]! - times[0]! >= 199 && times[2]! - times[1]! >= 299, JSON.stringify(times))
})

test('of many that wait one tries at a time, each has its chance, and who comes later waits behind them', async () => {
  await service.close()
  service = world.serve({ limits: { shortageFirstMs: 5, shortageMaxMs: 5 } })
  let room = 0
  let trying = 0
  let most = 0
  let attempts = 0
  const served: number[] = []
  world.sandboxes.beforeCreate = async () => {
    attempts += 1
    trying += 1
    most = Math.max(most, trying)
    await sleep(1)
    trying -= 1
    if (room === 0) throw full('rate_limited')
    room -= 1
    served.push(attempts)
  }
  const first = await create()
  await waits(first.id)
  const others: Session[] = []
  for (let count = 0; count < 20; count++) others.push(await create())
  for (const { id } of others) await waits(id)
  const before = attempts
  await sleep(200)
  assert.ok(attempts - before < 45, `${attempts - before} attempts`)
  most = 0
  room = 10
  const newcomer = await create()
  await waits(newcomer.id)
  await world.eventually('the room is used', () => assert.equal(room, 0))
  assert.equal((await world.store.session(newcomer.id))?.activity, 'starting')
  room = 12
  for (const { id } of [first, ...others, newcomer]) await world.until(id, 'idle')
  assert.equal(most, 1)
  for (const { id } of [first, ...others, newcomer]) assert.equal((await warnings(id)).length, 1)
  // Nobody waits any more: the next one tries at once.
  room = 1
  const last = await create()
  await world.until(last.id, 'idle')
  assert.deepEqual(await warnings(last.id), [])
})

test('organisations do not wait for each other, nor do sessions whose own sandbox does not answer', async () => {
  await service.close()
  service = world.serve({ limits: slow })
  world.sandboxes.beforeCreate = never
  const waiting = await create()
  await waits(waiting.id)
  world.sandboxes.beforeCreate = async () => {}
  const other = await service.create('org_2', simple)
  await world.until(other.session.id, 'idle')
  world.sandboxes.beforeCreate = () => Promise.reject(full('unavailable'))
  const { session: mute } = await service.create('org_3', simple)
  await waits(mute.id)
  world.sandboxes.beforeCreate = async () => {}
  const { session: next } = await service.create('org_3', simple)
  await world.until(next.id, 'idle')
})

test('an attempt that hangs does not hold up the others for long', async () => {
  await service.close()
  service = world.serve({ timings: { shortageAttemptMs: 20 } })
  world.sandboxes.beforeCreate = never
  const [hanging, other] = [await create(), await create()]
  for (const { id } of [hanging, other]) await waits(id)
  const go = Promise.withResolvers<void>()
  let held = false
  world.sandboxes.beforeCreate = async () => {
    if (held) return
    held = true
    await go.promise
  }
  await world.eventually('one is ready', async () => {
    const activities = await Promise.all(
      [hanging, other].map(async ({ id }) => (await world.store.session(id))?.activity),
    )
    assert.ok(activities.includes('idle'))
  })
  go.resolve()
  for (const { id } of [hanging, other]) await world.until(id, 'idle')
})

test('a message taken back ends the wait for its wake; the next one has a wait of its own', async (t) => {
  const { id, sandboxId } = await asleep()
  world.sandboxes.beforeWake = never
  const { messages } = await service.sendMessage(orgId, id, { message: 'b', userId: 'u1' })
  await waits(id)
  await service.cancelMessage(orgId, id, messages.at(-1)!.id)
  await world.eventually('it sleeps on', () => waitsForNothing(id))
  assert.equal((await world.store.session(id))?.activity, 'idle')
  assert.equal(world.sandboxes.holds.get(sandboxId), 0)
  passDeadline(t)
  world.sandboxes.beforeWake = lacking('rate_limited', 'rate_limited', 'rate_limited')
  await world.turn(service, id, 'c')
  assert.equal((await world.eventTypes(id)).includes('session_failed'), false)
  await assertWhole(world, id)
})

test('a sandbox that wakes by itself during the wait is gone on with at once', async () => {
  await service.close()
  service = world.serve({ limits: slow })
  const { id, sandboxId } = await asleep()
  world.sandboxes.beforeWake = never
  await service.sendMessage(orgId, id, { message: 'b', userId: 'u1' })
  await waits(id)
  world.sandboxes.set(sandboxId, 'running')
  await world.until(id, 'idle')
  await waitsForNothing(id)
})
