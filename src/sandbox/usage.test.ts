import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setImmediate as nextLoop } from 'node:timers/promises'
import { ServiceError } from '../errors.ts'
import type { Log } from '../lib/log.ts'
import type { Sandbox } from './sandbox.ts'
import { type FollowedSample, Usage } from './usage.ts'
import { UsageSampler } from './usage-sampler.ts'

const startMs = Date.UTC(2026, 0, 1)
const mebibyte = 1024 * 1024
const ignore = () => undefined
const log: Log = { debug: ignore, info: ignore, warn: ignore, error: ignore }

/** Sandboxes of two organisations, in a time that the test lets pass. */
class World {
  readonly sandboxes = new Map(
    [
      { id: 'sb-a', orgId: 'ours', memoryMb: 1, name: 'ci-a' },
      { id: 'sb-b', orgId: 'ours', memoryMb: 2 },
      { id: 'sb-x', orgId: 'theirs', memoryMb: 4 },
    ].map((sandbox) => [sandbox.id, sandbox as Sandbox]),
  )
  readonly sampler: UsageSampler
  readonly usage: Usage
  /** Of one processor, what each sandbox uses from now on. */
  share = 0.5
  #cpuUs = 0
  #t: TestContext

  constructor(t: TestContext) {
    this.#t = t
    t.mock.timers.enable({ apis: ['setInterval', 'Date'], now: startMs })
    const used = { memoryBytes: 1000, diskBytes: 1, networkReceivedBytes: 0, networkSentBytes: 0, processCount: 1 }
    this.sampler = new UsageSampler({
      driver: { usage: async () => ({ ...used, cpuUs: this.#cpuUs }) },
      running: () => [...this.sandboxes.keys()],
      log,
    })
    this.sampler.open()
    t.after(() => this.sampler.close())
    const read = async (id: string, orgId?: string) => {
      const sandbox = this.sandboxes.get(id)
      if (sandbox === undefined || sandbox.orgId !== orgId) throw new ServiceError('not_found', `no sandbox ${id}`)
      return sandbox
    }
    this.usage = new Usage({ read, usage: this.sampler })
  }

  async pass(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 250) {
      this.#cpuUs += 250_000 * this.share
      this.#t.mock.timers.tick(250)
      await nextLoop()
    }
  }

  /** The batches that come, in a list that grows. */
  follow(ids: string[], options: Partial<Parameters<Usage['follow']>[2]> = {}) {
    const gone = new AbortController()
    const batches: FollowedSample[][] = []
    const ended = (async () => {
      for await (const batch of this.usage.follow('ours', ids, { signal: gone.signal, ...options })) batches.push(batch)
    })()
    return { batches, gone, ended }
  }
}

function seconds({ at }: FollowedSample): number {
  return Math.floor((at.getTime() - startMs) / 1000)
}

test('usage: followed sandboxes have the past first, then each sample as it is taken, with the memory of then', async (t) => {
  const world = new World(t)
  await world.pass(31_000)
  const { batches, gone, ended } = world.follow(['sb-a', 'sb-b', 'sb-a', 'sb-none', 'sb-x'])
  await nextLoop()
  assert.deepEqual(
    batches.map((batch) => batch.map((sample) => [sample.sandboxId, seconds(sample), sample.memoryLimitBytes])),
    [
      [
        ['sb-a', 15, mebibyte],
        ['sb-a', 30, mebibyte],
      ],
      [
        ['sb-b', 15, 2 * mebibyte],
        ['sb-b', 30, 2 * mebibyte],
      ],
    ],
  )
  assert.deepEqual(Object.keys(batches[0]![0]!).toSorted(), [
    'at',
    'cpuPercent',
    'memoryBytes',
    'memoryLimitBytes',
    'sandboxId',
  ])
  world.sandboxes.get('sb-a')!.memoryMb = 8
  await world.pass(15_000)
  const fresh = batches.slice(2).flat()
  assert.deepEqual(
    fresh.map((sample) => [sample.sandboxId, seconds(sample), sample.cpuPercent, sample.memoryLimitBytes]),
    [
      ['sb-a', 45, 50, 8 * mebibyte],
      ['sb-b', 45, 50, 2 * mebibyte],
    ],
  )
  gone.abort()
  await ended
  await world.pass(15_000)
  assert.equal(batches.slice(2).flat().length, 2)
})

test('usage: the last hour is thinned to sixty samples, the newest kept and processor time averaged', async (t) => {
  const world = new World(t)
  await world.pass(1_800_000)
  world.share = 1
  await world.pass(1_860_000)
  const { batches, gone } = world.follow(['sb-a'])
  await nextLoop()
  const [past = []] = batches
  const all = world.sampler.readSamples('sb-a')
  assert.deepEqual([all.length, past.length], [240, 60])
  assert.deepEqual(past.at(-1)?.at, all.at(-1)?.at)
  assert.ok(past.every((sample, index) => index === 0 || sample.at > past[index - 1]!.at))
  const mean = (list: { cpuPercent: number }[]) =>
    list.reduce((sum, { cpuPercent }) => sum + cpuPercent, 0) / list.length
  assert.ok(Math.abs(mean(past) - mean(all)) < 0.1)
  gone.abort()
})

test('usage: a key with a name prefix follows what it reaches alone, and a sandbox that goes ends nothing', async (t) => {
  const world = new World(t)
  await world.pass(16_000)
  const reach = { namePrefix: 'ci-', keyId: 'key_1' }
  const { batches, gone, ended } = world.follow(['sb-a', 'sb-b'], { reach })
  await nextLoop()
  assert.deepEqual(
    batches.flat().map(({ sandboxId }) => sandboxId),
    ['sb-a'],
  )
  const both = world.follow(['sb-a', 'sb-b'])
  await nextLoop()
  world.sandboxes.delete('sb-a')
  await world.pass(15_000)
  assert.deepEqual(
    both.batches
      .slice(2)
      .flat()
      .map(({ sandboxId }) => sandboxId),
    ['sb-b'],
  )
  gone.abort()
  both.gone.abort()
  await Promise.all([ended, both.ended])
})

test('usage: a slow reader gets the newest sample of each sandbox, and not those that it has missed', async (t) => {
  const world = new World(t)
  await world.pass(16_000)
  const gone = new AbortController()
  const samples = world.usage.follow('ours', ['sb-a'], { signal: gone.signal })
  await samples.next()
  await world.pass(45_000)
  const next = await samples.next()
  assert.deepEqual((next.value as FollowedSample[]).map(seconds), [60])
  gone.abort()
  assert.equal((await samples.next()).done, true)
})
