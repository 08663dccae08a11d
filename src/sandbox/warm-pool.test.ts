import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setImmediate as nextLoop } from 'node:timers/promises'
import { ServiceError } from '../errors.ts'
import { silentLog } from '../lib/log.ts'
import { refuses } from '../lib/testing/refuses.ts'
import type { SandboxSpec } from './ports/runtime-driver.ts'
import { startDefaults } from './sandbox.ts'
import { WarmPool, type WarmPoolOptions } from './warm-pool.ts'

const gib = 1024 ** 3
const fromCheckpoint = (checkpointId: string) => ({ ...startDefaults, from: { checkpointId } })

/** Machines that start at once, and a clock of the test's own. */
class World implements AsyncDisposable {
  readonly prepared = new Map<string, SandboxSpec>()
  readonly deleted: string[] = []
  readonly pool: WarmPool
  freeBytes = 8 * gib
  isBusy = false
  failures = 0
  /** How many fit, prepared or not. */
  room = Infinity
  /** An image that is gone. */
  missing = ''
  /** Those that do not fit any more. */
  readonly stale = new Set<string>()
  isStuck = false
  /** Holds a start until it resolves, or is aborted. */
  gate: Promise<void> | undefined

  constructor(t: TestContext, options: Partial<WarmPoolOptions> = {}) {
    t.mock.timers.enable({ apis: ['setInterval', 'Date'], now: 1 })
    this.pool = new WarmPool({
      driver: {
        prepare: async (spec, signal) => {
          const aborted = new Promise((resolve) => signal?.addEventListener('abort', resolve))
          this.take()
          try {
            await Promise.race([this.gate, aborted])
            signal?.throwIfAborted()
            if (spec.image === this.missing) throw new ServiceError('not_found', 'there is no such image')
          } catch (error) {
            this.room += 1
            throw error
          }
          if (this.failures > 0) {
            this.failures -= 1
            throw new Error('no')
          }
          this.prepared.set(spec.id, spec)
        },
        isPrepared: async ({ id }) => this.prepared.has(id) && !this.stale.has(id),
        delete: async (id) => {
          await nextLoop()
          this.deleted.push(id)
          if (this.isStuck) throw new Error('stuck')
          if (this.prepared.delete(id)) this.room += 1
        },
      },
      size: 3,
      first: startDefaults,
      isBusy: () => this.isBusy,
      log: silentLog,
      memory: () => ({ free: this.freeBytes, total: 10 * gib }),
      ...options,
    })
    this.pool.open()
  }

  /** What a start needs first. */
  take(): void {
    if (this.room === 0) throw new ServiceError('no_capacity', 'no room')
    this.room -= 1
  }

  /** Lets time pass, and the pool do all that it begins in it. */
  async pass(t: TestContext, ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 250) {
      t.mock.timers.tick(Math.min(left, 250))
      for (let turns = 0; turns < 30; turns += 1) await nextLoop()
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.pool.close()
  }
}

test('warm pool: it fills, reserves each once, and replaces what was taken', async (t) => {
  await using world = new World(t)
  await world.pass(t, 1000)
  assert.deepEqual(world.pool.countReady(), { base: 3 })
  const first = world.pool.reserve(startDefaults, 'org_1') ?? assert.fail('none was reserved')
  const second = world.pool.reserve(startDefaults, 'org_1') ?? assert.fail('none was reserved')
  assert.notEqual(first, second)
  assert.equal(world.pool.take(first), true)
  assert.equal(world.pool.take(first), false)
  assert.equal(world.pool.take('sb-unknown'), false)
  await world.pass(t, 1000)
  assert.deepEqual(world.pool.countReady(), { base: 2 }, 'a reserved one counts until it is taken')
  assert.equal(world.prepared.has(first), true)
})

test('warm pool: of size 0 it has none', async (t) => {
  await using world = new World(t, { size: 0 })
  await world.pass(t, 1000)
  assert.equal(world.pool.reserve(startDefaults, 'org_1'), undefined)
  assert.equal(world.prepared.size, 0)
})

test('warm pool: closed, it has none', async (t) => {
  await using world = new World(t)
  await world.pass(t, 1000)
  const id = world.pool.reserve(startDefaults, 'org_1') ?? assert.fail('none was reserved')
  world.pool.take(id)
  await world.pool.close()
  assert.deepEqual([...world.prepared.keys()], [id], 'only what has an owner is left')
  assert.equal(world.pool.reserve(startDefaults, 'org_1'), undefined)
})

test('warm pool: a close in the middle of a start leaves nothing', async (t) => {
  await using world = new World(t)
  const gate = Promise.withResolvers<void>()
  world.gate = gate.promise
  await world.pass(t, 500)
  const closed = world.pool.close()
  gate.resolve()
  await closed
  assert.equal(world.prepared.size, 0)
})

test('warm pool: nothing is added while clients wait for starts, nor while memory is short', async (t) => {
  await using world = new World(t)
  world.isBusy = true
  await world.pass(t, 1000)
  assert.equal(world.prepared.size, 0)
  world.isBusy = false
  world.freeBytes = 0.9 * gib
  await world.pass(t, 1000)
  assert.equal(world.prepared.size, 0)
  world.freeBytes = 2 * gib
  await world.pass(t, 1000)
  assert.equal(world.prepared.size, 3)
  const id = world.pool.reserve(startDefaults, 'org_1') ?? assert.fail('none was reserved')
  world.freeBytes = 0.4 * gib
  await world.pass(t, 3000)
  assert.deepEqual([...world.prepared.keys()], [id], 'what is promised stays')
})

test('warm pool: old ones are recycled, and reservations that nobody uses end', async (t) => {
  await using world = new World(t)
  await world.pass(t, 1000)
  const before = [...world.prepared.keys()]
  const promised = world.pool.reserve(startDefaults, 'org_1') ?? assert.fail('none was reserved')
  await world.pass(t, 50_000)
  assert.equal(world.prepared.has(promised), true)
  await world.pass(t, 15_000)
  assert.equal(world.pool.take(promised), false)
  assert.equal(world.prepared.has(promised), false)
  await world.pass(t, 8 * 60_000)
  assert.deepEqual(
    before.filter((id) => world.prepared.has(id)),
    [],
  )
  assert.equal(world.prepared.size, 3)
})

test('warm pool: what is started often is kept, in the latest sizes, and no more than there is room for', async (t) => {
  await using world = new World(t, { size: 4 })
  await world.pass(t, 1000)
  for (let count = 0; count < 2; count += 1)
    assert.equal(world.pool.reserve(fromCheckpoint('cp-a'), 'org_1'), undefined)
  await world.pass(t, 3000)
  assert.deepEqual(world.pool.countReady(), { base: 4 }, 'twice is not often')
  for (let count = 0; count < 4; count += 1) world.pool.reserve({ ...fromCheckpoint('cp-a'), memoryMb: 4096 }, 'org_1')
  await world.pass(t, 5000)
  assert.deepEqual(world.pool.countReady(), { base: 1, 'cp-a': 3 })
  const id = world.pool.reserve(fromCheckpoint('cp-a'), 'org_1') ?? assert.fail('none was reserved')
  assert.equal(world.prepared.get(id)?.memoryMb, 4096)
  await world.pass(t, 11 * 60_000)
  assert.deepEqual(world.pool.countReady(), { base: 4 }, 'demand is forgotten')
})

test('warm pool: failures make it wait longer, and it goes on', async (t) => {
  await using world = new World(t, { size: 1 })
  world.failures = 4
  await world.pass(t, 14_000)
  assert.equal(world.prepared.size, 0)
  await world.pass(t, 3000)
  assert.equal(world.prepared.size, 1)
})

test('warm pool: one that ended by itself is removed and is no exit of a client', async (t) => {
  await using world = new World(t)
  await world.pass(t, 1000)
  const [id = ''] = world.prepared.keys()
  assert.equal(world.pool.removeLost(id), true)
  assert.equal(world.pool.removeLost('sb-other'), false)
  await world.pass(t, 1000)
  assert.deepEqual(world.deleted, [id])
  assert.equal(world.prepared.size, 3)
})

test('warm pool: all that are not promised go for a start without room', async (t) => {
  await using world = new World(t)
  await world.pass(t, 1000)
  const id = world.pool.reserve(startDefaults, 'org_1') ?? assert.fail('none was reserved')
  assert.equal(await world.pool.clear(), true)
  assert.deepEqual([...world.prepared.keys()], [id])
  assert.equal(await world.pool.clear(), false)
})

test('warm pool: none of many starts without room fails while warm sandboxes have some', async (t) => {
  await using world = new World(t)
  world.room = 3
  await world.pass(t, 1000)
  assert.equal(world.prepared.size, 3)
  const start = async (cleanUpLoops: number) => {
    try {
      world.take()
    } catch (error) {
      for (let loop = 0; loop < cleanUpLoops; loop += 1) await nextLoop()
      throw error
    }
  }
  // The second fails while the first makes room, the third when it has.
  await Promise.all([0, 1, 20].map((cleanUpLoops) => world.pool.withRoom(() => start(cleanUpLoops))))
  assert.deepEqual([world.prepared.size, world.room], [0, 0])
  await refuses(
    world.pool.withRoom(() => start(0)),
    'no_capacity',
  )
})

test('warm pool: a start of its own makes room too, and the next one comes later', async (t) => {
  await using world = new World(t, { size: 1 })
  world.room = 1
  const gate = Promise.withResolvers<void>()
  world.gate = gate.promise
  await world.pass(t, 500)
  assert.equal(world.room, 0)
  await world.pool.withRoom(async () => world.take())
  assert.equal(world.prepared.size, 0)
  gate.resolve()
  world.room = 1
  await world.pass(t, 9000)
  assert.equal(world.prepared.size, 0)
  await world.pass(t, 2000)
  assert.equal(world.prepared.size, 1)
})

test('warm pool: work that fails for another reason is not repeated and costs no warm sandbox', async (t) => {
  await using world = new World(t)
  await world.pass(t, 1000)
  let calls = 0
  const work = async () => {
    calls += 1
    throw new ServiceError('unavailable', 'no guest')
  }
  await refuses(world.pool.withRoom(work), 'unavailable')
  assert.deepEqual([calls, world.prepared.size], [1, 3])
})

test('warm pool: an image that is gone is given up, and others are added', async (t) => {
  await using world = new World(t)
  world.missing = 'gone'
  for (let count = 0; count < 20; count += 1) world.pool.reserve({ ...startDefaults, image: 'gone' }, 'org_1')
  await world.pass(t, 3000)
  assert.deepEqual(world.pool.countReady(), { base: 3 })
})

test('warm pool: one that cannot be removed is left alone once its id has an owner', async (t) => {
  await using world = new World(t, { size: 1 })
  await world.pass(t, 1000)
  const id = world.pool.reserve(startDefaults, 'org_1') ?? assert.fail('none was reserved')
  world.isStuck = true
  assert.equal(world.pool.removeLost(id), true)
  assert.equal(world.pool.take(id), false)
  await world.pass(t, 1000)
  world.isStuck = false
  await world.pass(t, 70_000)
  assert.deepEqual(
    world.deleted.filter((deleted) => deleted === id),
    [id],
  )
})

test('warm pool: one that cannot be removed is removed later', async (t) => {
  await using world = new World(t, { size: 1 })
  await world.pass(t, 1000)
  const [id = ''] = world.prepared.keys()
  world.isStuck = true
  assert.equal(world.pool.removeLost(id), true)
  await world.pass(t, 1000)
  world.isStuck = false
  await world.pass(t, 70_000)
  assert.equal(world.prepared.has(id), false)
})

test('warm pool: those that do not fit any more are replaced, but for reserved ones', async (t) => {
  await using world = new World(t)
  await world.pass(t, 1000)
  const promised = world.pool.reserve(startDefaults, 'org_1') ?? assert.fail('none was reserved')
  for (const id of world.prepared.keys()) world.stale.add(id)
  await world.pass(t, 3000)
  assert.deepEqual(
    [...world.prepared.keys()].filter((id) => world.stale.has(id)),
    [promised],
  )
  assert.equal(world.prepared.size, 3)
})

test('warm pool: the last one is left to an organisation that has taken fewer, and one is kept while clients wait', async (t) => {
  await using world = new World(t)
  const reserve = (orgId: string) => world.pool.reserve(startDefaults, orgId)
  await world.pass(t, 1000)
  world.isBusy = true
  const greedy = ['org_1', 'org_1'].map(reserve)
  assert.ok(!greedy.includes(undefined), 'alone it has what is there')
  const first = reserve('org_2') ?? assert.fail('the last one was not for the other')
  for (const id of [...greedy, first]) world.pool.take(id ?? '')
  await world.pass(t, 1000)
  assert.deepEqual(world.pool.countReady(), { base: 1 }, 'one is added although clients wait')
  assert.equal(reserve('org_1'), undefined)
  const second = reserve('org_2') ?? assert.fail('it was not kept for the other')
  world.pool.take(second)
  await world.pass(t, 1000)
  assert.ok(reserve('org_3'), 'who has had none may take it')
})
