import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setImmediate as nextLoop } from 'node:timers/promises'
import type { Log } from '../lib/log.ts'
import type { SandboxUsage } from './ports/runtime-driver.ts'
import { UsageSampler } from './usage-sampler.ts'

const hourMs = 3_600_000
const startMs = Date.UTC(2026, 0, 1)

/** Sandboxes that use half a processor, in a time that the test lets pass. */
class World {
  readonly sampler: UsageSampler
  running: string[] = []
  /** When each was measured. */
  readonly measuredAt = new Map<string, number[]>()
  /** Replaces what is measured. */
  measure: (id: string) => Promise<SandboxUsage | undefined> = async () => usageAt(Date.now() - startMs)
  readonly logged: object[] = []

  constructor(t: TestContext) {
    t.mock.timers.enable({ apis: ['setInterval', 'Date'], now: startMs })
    const write = (facts: object) => void this.logged.push(facts)
    const log: Log = { debug: write, info: write, warn: write, error: write }
    this.sampler = new UsageSampler({
      driver: {
        usage: async (id) => {
          const times = this.measuredAt.get(id) ?? []
          this.measuredAt.set(id, [...times, Date.now() - startMs])
          return await this.measure(id)
        },
      },
      running: () => this.running,
      log,
    })
    this.sampler.open()
    t.after(() => this.sampler.close())
  }

  async pass(t: TestContext, ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 250) {
      t.mock.timers.tick(Math.min(left, 250))
      await nextLoop()
    }
  }

  measurements(fromMs: number, toMs: number): number[] {
    return [...this.measuredAt.values()].flat().filter((at) => at >= fromMs && at < toMs)
  }
}

function usageAt(ms: number): SandboxUsage {
  const network = { networkReceivedBytes: ms, networkSentBytes: 2 * ms }
  return { cpuUs: ms * 500, memoryBytes: 1000, diskBytes: 5000, ...network, processCount: 3 }
}

test('usage: a sandbox has a sample each fifteen seconds, with the processor time since the one before', async (t) => {
  const world = new World(t)
  world.running = ['a']
  await world.pass(t, 46_000)
  const samples = world.sampler.readSamples('a')
  assert.deepEqual(
    samples.map(({ at }) => at.getTime() - startMs),
    [15_250, 30_250, 45_250],
  )
  assert.deepEqual(samples[0], {
    at: new Date(startMs + 15_250),
    cpuPercent: 50,
    memoryBytes: 1000,
    diskBytes: 5000,
    networkReceivedBytes: 15_250,
    networkSentBytes: 30_500,
  })
  const now = await world.sampler.readNow('a')
  assert.deepEqual([now?.at.getTime(), now?.processCount], [startMs + 46_000, 3])
})

test('usage: the last hour is kept, the oldest first, also while a sandbox rests; then nothing is', async (t) => {
  const world = new World(t)
  world.running = ['a', 'b']
  await world.pass(t, hourMs + 10 * 60_000)
  const samples = world.sampler.readSamples('a')
  assert.equal(samples.length, 240)
  assert.ok(samples.every(({ at }, index) => index === 0 || at > samples[index - 1]!.at))
  world.running = ['b']
  const count = world.measuredAt.get('a')?.length
  await world.pass(t, hourMs / 2)
  assert.equal(world.sampler.readSamples('a').length, 120)
  await world.pass(t, hourMs / 2)
  assert.deepEqual([world.sampler.readSamples('a').length, world.measuredAt.get('a')?.length], [0, count])
  assert.equal(world.sampler.readSamples('b').length, 240)
  world.sampler.forget('b')
  assert.deepEqual(world.sampler.readSamples('b'), [])
})

test('usage: hundreds of sandboxes that begin together are spread over the interval, a few at each look', async (t) => {
  const world = new World(t)
  world.running = Array.from({ length: 500 }, (_, number) => `s${number}`)
  await world.pass(t, 45_000)
  const looks = new Map<number, number>()
  for (const at of world.measurements(0, Infinity)) looks.set(at, (looks.get(at) ?? 0) + 1)
  assert.ok(Math.max(...looks.values()) <= 10, `${Math.max(...looks.values())} at once`)
  for (const [id, times] of world.measuredAt) {
    assert.ok(times.length >= 2 && times.length <= 3, `${id}: ${times.join(' ')}`)
    assert.ok(times.every((at, index) => index === 0 || Math.abs(at - times[index - 1]! - 15_000) <= 250))
  }
  assert.equal(world.measuredAt.size, 500)
})

test('usage: a hanging measurement is not repeated, a failed one is a gap, an unknown disk size has no number', async (t) => {
  const world = new World(t)
  world.running = ['hangs', 'fails']
  let isFailing = false
  world.measure = async (id) => {
    if (id === 'hangs') return await new Promise(() => {})
    if (isFailing) throw new Error('away')
    return { ...usageAt(Date.now() - startMs), diskBytes: undefined }
  }
  await world.pass(t, 20_000)
  isFailing = true
  await world.pass(t, 15_000)
  isFailing = false
  await world.pass(t, 15_000)
  assert.equal(world.measuredAt.get('hangs')?.length, 1)
  assert.equal(world.logged.length, 1)
  const samples = world.sampler.readSamples('fails')
  assert.deepEqual(
    samples.map(({ at, cpuPercent, diskBytes }) => [at.getTime() - startMs, cpuPercent, diskBytes]),
    [
      [15_250, 50, undefined],
      [45_250, 50, undefined],
    ],
  )
})

test('usage: after a rest or a restart processor time counts from the new start, never below 0', async (t) => {
  const world = new World(t)
  world.running = ['a']
  await world.pass(t, 20_000)
  world.running = []
  await world.pass(t, 60_000)
  const wokenMs = Date.now()
  world.measure = async () => usageAt(Date.now() - wokenMs)
  world.running = ['a']
  await world.pass(t, 500)
  assert.equal((await world.sampler.readNow('a'))?.cpuPercent, 0)
  await world.pass(t, 15_500)
  const restartedMs = Date.now()
  world.measure = async () => usageAt(Date.now() - restartedMs)
  await world.pass(t, 15_000)
  assert.ok(world.sampler.readSamples('a').every(({ cpuPercent }) => cpuPercent > 40 && cpuPercent <= 50))
  world.measure = async () => undefined
  assert.equal(await world.sampler.readNow('a'), undefined)
})
