import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../errors.ts'
import { silentLog } from '../lib/log.ts'
import { Autoscaler, nextMemoryMb } from './autoscale.ts'
import { type Sandbox, newSandbox } from './sandbox.ts'

const mebibyte = 1024 * 1024
const minuteMs = 60_000
const sizes = { memoryMb: 4096, autoscaleMinMb: 1024, autoscaleMaxMb: 16_384 }

/** One share for each look, the last ones at the end. */
function next(shares: readonly number[], more: Partial<typeof sizes & { sinceMs: number }> = {}) {
  const { sinceMs = Infinity, ...changed } = more
  return nextMemoryMb({ shares: [...shares], changedMs: -sinceMs }, { ...sizes, ...changed }, 0)
}

const quiet = Array.from({ length: 30 }, () => 0.1)

test('autoscale: two samples of much use bring the next tier, a minute after the last change', () => {
  assert.equal(next([0.7, 0.81]), 8192)
  assert.equal(next([0.7, 0.8]), undefined, 'exactly three quarters are enough')
  assert.equal(next([0.99]), undefined, 'one sample says little')
  assert.equal(next([0.9, 0.9], { sinceMs: minuteMs - 1 }), undefined)
  assert.equal(next([0.9, 0.9], { sinceMs: minuteMs }), 8192)
  assert.equal(next([0.9, 0.9], { memoryMb: 16_384 }), undefined)
  assert.equal(next([...quiet, 0.9, 0.9]), 8192)
})

test('autoscale: a quarter of an hour of little use brings the tier below, five minutes after the last change', () => {
  assert.equal(next(quiet), 1024)
  assert.equal(next(quiet.slice(1)), undefined)
  assert.equal(next(quiet, { sinceMs: 5 * minuteMs - 1 }), undefined)
  assert.equal(next(quiet, { sinceMs: 5 * minuteMs }), 1024)
  assert.equal(next(quiet, { memoryMb: 1024 }), undefined)
  const busier = quiet.map(() => 0.2)
  assert.equal(next(busier), undefined, 'it would grow again')
  assert.equal(next(busier, { memoryMb: 8192 }), 4096)
  assert.equal(next([...quiet.slice(2), 0.3, 0.3]), undefined, 'the last minute')
  assert.equal(next([...quiet.slice(10), ...Array.from({ length: 8 }, () => 0.28), 0.1, 0.1]), 1024)
  assert.equal(next([...quiet.slice(10), ...Array.from({ length: 8 }, () => 0.5), 0.1, 0.1]), undefined)
  assert.equal(next([...Array.from({ length: 20 }, () => 0.5), ...quiet.slice(20)]), undefined, 'the quarter hour')
})

test('autoscale: its bounds are tiers, and a size between or beyond tiers comes back to one', () => {
  const bounds = { autoscaleMinMb: 512, autoscaleMaxMb: 6000 }
  const up = (memoryMb: number) => next([0.9, 0.9], { ...bounds, memoryMb })
  const down = (memoryMb: number) => next(quiet, { ...bounds, memoryMb })
  assert.deepEqual([128, 512, 2048, 4096, 6000, 9000].map(up), [512, 1024, 4096, 6000, undefined, undefined])
  assert.deepEqual([9000, 6000, 5000, 1024, 512].map(down), [6000, 4096, 4096, 512, undefined])
  assert.equal(next([0.1], { ...bounds, memoryMb: 128 }), 512, 'the lower bound holds at once')
  assert.equal(next([0.1], { ...bounds, memoryMb: 128, sinceMs: minuteMs - 1 }), undefined)
})

function blank(id: string) {
  const nothing = { image: undefined, timeoutSeconds: undefined, envs: undefined, metadata: undefined }
  return { id, cpuCount: 1, memoryMb: 1024, diskMb: 1024, ...nothing }
}

/** Sandboxes and a clock of the test. */
class World {
  readonly sandboxes = new Map<string, Sandbox>()
  readonly changes: string[] = []
  usedMb = 100
  nowMs = 0
  refuse: Error | undefined
  /** Whether a client's change comes before each of the autoscaler's. */
  isLate = false
  readonly logged: string[] = []
  readonly autoscaler = new Autoscaler({
    running: () => [...this.sandboxes.keys()],
    sandbox: async (id) => this.sandboxes.get(id),
    usage: async () => ({
      memoryBytes: this.usedMb * mebibyte,
      ...{ cpuUs: 0, diskBytes: 0, networkReceivedBytes: 0, networkSentBytes: 0, processCount: 1 },
    }),
    change: async (id, memoryMb) => {
      this.changes.push(`${this.nowMs / 1000} ${id} ${memoryMb}`)
      if (this.refuse) throw this.refuse
      const sandbox = { ...this.sandboxes.get(id)!, ...(this.isLate ? {} : { memoryMb }) }
      this.sandboxes.set(id, sandbox)
      return sandbox
    },
    log: { ...silentLog, info: (_facts: object, message: string) => void this.logged.push(message) },
    now: () => this.nowMs,
  })

  add(id: string, fields: Partial<Sandbox> = {}): void {
    const bounds = { isAutoscaled: true, autoscaleMinMb: 1024, autoscaleMaxMb: 16_384 }
    this.sandboxes.set(id, { ...newSandbox('org', blank(id)), status: 'running', ...bounds, ...fields })
  }

  async pass(ms: number): Promise<void> {
    for (let end = this.nowMs + ms; this.nowMs < end;) {
      this.nowMs += 30_000
      await this.autoscaler.look()
    }
  }
}

test('autoscaler: a sandbox grows tier by tier while it is short, and shrinks after a quiet time', async () => {
  const world = new World()
  world.add('a')
  world.usedMb = 1000
  await world.pass(minuteMs)
  world.usedMb = 4000
  await world.pass(minuteMs)
  world.usedMb = 100
  await world.pass(20 * minuteMs)
  assert.deepEqual(world.changes, ['60 a 4096', '120 a 8192', '900 a 4096', '1200 a 1024'])
})

test('autoscaler: a failed change waits like one that was made', async () => {
  const world = new World()
  world.add('a')
  world.usedMb = 1000
  world.refuse = new ServiceError('no_capacity', 'the host is full')
  await world.pass(3 * minuteMs)
  assert.deepEqual(world.changes, ['60 a 4096', '120 a 4096', '180 a 4096'])
})

test('autoscaler: it says what it has changed, and nothing where a client was first', async () => {
  const world = new World()
  world.add('a')
  world.usedMb = 1000
  world.isLate = true
  await world.pass(minuteMs)
  assert.deepEqual([world.changes, world.logged], [['60 a 4096'], []])
  world.isLate = false
  await world.pass(minuteMs)
  assert.deepEqual(world.logged, ['a sandbox was autoscaled'])
})

test('autoscaler: a change by a client counts as the last one', async () => {
  const world = new World()
  world.add('a', { memoryMb: 4096 })
  await world.pass(14 * minuteMs)
  world.add('a', { memoryMb: 8192 })
  await world.pass(11 * minuteMs)
  assert.deepEqual(world.changes, ['1170 a 4096', '1470 a 1024'])
})

test('autoscaler: it looks only at those that run, are to be autoscaled and are not locked', async () => {
  const world = new World()
  world.usedMb = 10_000
  world.add('locked', { isScalingLocked: true })
  world.add('manual', { isAutoscaled: false })
  world.add('asleep', { status: 'hibernated' })
  await world.pass(5 * minuteMs)
  assert.deepEqual(world.changes, [])
})

test('autoscaler: a sandbox whose change takes long does not keep the others from theirs', async () => {
  const world = new World()
  world.add('a')
  world.usedMb = 1000
  const held = Promise.withResolvers<void>()
  const changes: string[] = []
  const slow = new Autoscaler({
    running: () => [...world.sandboxes.keys()],
    sandbox: async (id) => world.sandboxes.get(id),
    usage: async () => ({ memoryBytes: 1000 * mebibyte }) as never,
    change: async (id) => {
      changes.push(id)
      if (id === 'a') await held.promise
      return { memoryMb: 4096 }
    },
    log: silentLog,
    now: () => (world.nowMs += minuteMs),
  })
  await slow.look()
  void slow.look()
  world.add('b')
  void slow.look()
  await slow.look()
  while (!changes.includes('b')) await slow.look()
  assert.deepEqual(
    changes.filter((id) => id === 'a'),
    ['a'],
  )
  held.resolve()
  await slow.close()
})
