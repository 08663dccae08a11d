import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextLoop } from 'node:timers/promises'
import { isServiceError } from '../errors.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import { Starts, type StartsOptions } from './starts.ts'

const mebibyte = 1024 ** 2
const limits = { startsWaitingMax: 100, startWaitMs: 60_000, startMemoryMb: 100, memoryReserveMb: 1000 }

class World {
  freeMb = 2000
  cleared = 0
  /** What clearing the warm sandboxes gives back. */
  warmMb = 0
  startsAtOnce = Infinity
  readonly permits: Semaphore
  readonly starts: Starts

  constructor({ permitsPerKey = 10, ...given }: Partial<StartsOptions['limits']> & { permitsPerKey?: number } = {}) {
    this.permits = new Semaphore({ permitsPerKey })
    const clear = async () => {
      this.cleared += 1
      this.freeMb += this.warmMb
      this.warmMb = 0
      return true
    }
    this.starts = new Starts({
      permits: this.permits,
      warm: { withRoom: (work) => work(), clear },
      limits: { ...limits, ...given },
      startsAtOnce: () => this.startsAtOnce,
      shareOf: () => 1,
      freeMemory: () => this.freeMb * mebibyte,
    })
  }

  /** A start that goes on until its `end` is called. */
  begin(orgId: string, memoryMb = 1024, signal?: AbortSignal) {
    const begun = Promise.withResolvers<void>()
    const ended = Promise.withResolvers<void>()
    const done = this.starts.run({ orgId, memoryMb, signal }, async () => {
      begun.resolve()
      await ended.promise
    })
    done.catch(begun.reject)
    begun.promise.catch(() => undefined)
    return { begun: begun.promise, done, end: () => ended.resolve() }
  }
}

const isNoCapacity = (error: unknown) =>
  isServiceError(error, 'no_capacity') && error.details['retryAfterSeconds'] === 5

test('starts: those under way count as if they had their memory already', async () => {
  const world = new World()
  world.freeMb = 1250
  const [first, second, third] = [world.begin('a'), world.begin('a'), world.begin('a')]
  await first.begun
  await second.begun
  let hasBegun = false
  void third.begun.then(() => (hasBegun = true))
  await nextLoop()
  assert.equal(hasBegun, false)
  first.end()
  await third.begun
  second.end()
  third.end()
  await Promise.all([first, second, third].map(({ done }) => done))
})

test('starts: a sandbox with a lower limit needs no more than that, and one that gives back as much needs nothing', async () => {
  const world = new World()
  world.freeMb = 1020
  const small = world.begin('a', 20)
  await small.begun
  const replaced = world.begin('a', 0)
  await replaced.begun
  small.end()
  replaced.end()
  await Promise.all([small.done, replaced.done])
})

test('starts: warm sandboxes give way before a client waits', async () => {
  const world = new World()
  world.freeMb = 1050
  world.warmMb = 500
  const start = world.begin('a')
  await start.begun
  assert.equal(world.cleared, 1)
  start.end()
  await start.done
})

test('starts: while memory is short organisations are served in turn, however many starts one of them has', async () => {
  const world = new World()
  world.freeMb = 0
  const order: string[] = []
  const begin = (orgId: string) => {
    const start = world.begin(orgId)
    void start.begun.then(() => {
      order.push(orgId)
      start.end()
    })
    return start.done
  }
  const greedy = Array.from({ length: 5 }, () => begin('greedy'))
  const modest = begin('modest')
  await nextLoop()
  world.freeMb = 1100
  await Promise.all([...greedy, modest])
  assert.ok(order.indexOf('modest') <= 1, order.join(' '))
})

test('starts: without memory in time it is `no_capacity` with the time of the next attempt, and the next in the queue is served', async () => {
  const world = new World({ startWaitMs: 20 })
  world.freeMb = 0
  await assert.rejects(world.begin('a').done, isNoCapacity)
  world.freeMb = 2000
  const next = world.begin('b')
  await next.begun
  next.end()
  await next.done
})

test('starts: without a permit in time it is `no_capacity` too', async () => {
  const world = new World({ startWaitMs: 20, permitsPerKey: 1 })
  const first = world.begin('a')
  await first.begun
  await assert.rejects(world.begin('a').done, isNoCapacity)
  first.end()
  await first.done
})

test('starts: a full queue refuses at once, and that of another organisation does not', async () => {
  const world = new World({ startsWaitingMax: 2, permitsPerKey: 1 })
  const [first, second] = [world.begin('a'), world.begin('a')]
  await assert.rejects(world.begin('a').done, (error) => isServiceError(error, 'rate_limited'))
  const other = world.begin('b')
  await other.begun
  for (const start of [first, second, other]) start.end()
  await Promise.all([first, second, other].map(({ done }) => done))
})

test('starts: the end of a wait by its caller has the reason of the caller, and leaves nothing claimed', async () => {
  const world = new World()
  world.freeMb = 0
  const ended = new AbortController()
  const start = world.begin('a', 1024, ended.signal)
  await nextLoop()
  ended.abort(new Error('deleted'))
  await assert.rejects(start.done, /deleted/)
  assert.equal(world.permits.isUsed, false)
  world.freeMb = 1100
  const next = world.begin('a')
  await next.begun
  next.end()
  await next.done
})

test('starts: fewer at a time while others are active, and dumps of the organisation do not count', async () => {
  const world = new World({ permitsPerKey: 2 })
  world.startsAtOnce = 1
  const dump = await world.permits.acquire({ key: 'a' })
  const [first, second] = [world.begin('a'), world.begin('a')]
  await first.begun
  let hasBegun = false
  void second.begun.then(() => (hasBegun = true))
  await nextLoop()
  assert.equal(hasBegun, false)
  first.end()
  await second.begun
  second.end()
  await second.done
  dump()
})
