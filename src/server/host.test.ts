import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CheckReport } from '../runtime/doctor/index.ts'
import { createHostReporter, type HostReporterOptions } from './host.ts'

const minute = 60_000

function reporterOf(options: Partial<HostReporterOptions> = {}) {
  const clock = { ms: Date.UTC(2026, 0, 1) }
  const calls = { inspect: 0 }
  const reporter = createHostReporter({
    runtime: 'runc',
    capabilities: () => ({ fullCheckpoints: true }),
    async inspect(): Promise<CheckReport[]> {
      calls.inspect += 1
      return [
        { name: 'Node', required: true, state: 'works', found: 'v24', advice: 'none is needed' },
        { name: 'guest', required: true, state: 'missing', found: 'no guest', advice: 'npm run setup' },
      ]
    },
    diskSpace: async () => ({ bytes: 100, availableBytes: 40 }),
    runningSandboxes: async () => 3,
    warmSandboxes: () => 2,
    now: () => new Date(clock.ms),
    ...options,
  })
  return { report: reporter, fresh: () => reporter({ isFresh: true }), clock, calls }
}

test('host report: checks are kept for ten minutes and run again after them; capacity is always new', async () => {
  let running = 3
  const { report, clock, calls } = reporterOf({ runningSandboxes: async () => running })
  const first = await report()
  clock.ms += 9 * minute
  running = 4
  const second = await report()
  assert.deepEqual([second.checkedAt, calls.inspect], [first.checkedAt, 1])
  assert.deepEqual([first.capacity.runningSandboxes, second.capacity.runningSandboxes], [3, 4])
  clock.ms += minute
  const third = await report()
  assert.deepEqual([third.checkedAt.getTime(), calls.inspect], [clock.ms, 2])
  assert.deepEqual(third.startedAt, first.startedAt)
})

test('host report: fresh checks are at most ten seconds old, and are kept for others', async () => {
  const { report, fresh, clock, calls } = reporterOf()
  await report()
  clock.ms += 9_999
  await fresh()
  assert.equal(calls.inspect, 1)
  clock.ms += 1
  const { checkedAt } = await fresh()
  assert.deepEqual([checkedAt.getTime(), calls.inspect], [clock.ms, 2])
  clock.ms += 9 * minute
  assert.deepEqual((await report()).checkedAt, checkedAt)
})

test('host report: concurrent calls share one run of the checks, and a failed run is tried again', async () => {
  const runs: PromiseWithResolvers<CheckReport[]>[] = []
  const { report } = reporterOf({
    inspect() {
      const run = Promise.withResolvers<CheckReport[]>()
      runs.push(run)
      return run.promise
    },
  })
  const both = Promise.allSettled([report(), report()])
  assert.equal(runs.length, 1)
  runs[0]?.reject(new Error('away'))
  assert.deepEqual(
    (await both).map(({ status }) => status),
    ['rejected', 'rejected'],
  )
  const next = report()
  assert.equal(runs.length, 2)
  runs[1]?.resolve([])
  assert.equal((await next).checks.length, 1)
})

test('host report: a row has the advice of what does not work, and full checkpoints theirs', async () => {
  const { report } = reporterOf({
    capabilities: () => ({ fullCheckpoints: false, fullCheckpointsReason: 'no CRIU' }),
  })
  assert.deepEqual((await report()).checks, [
    { name: 'Node', status: 'works', detail: 'v24' },
    { name: 'guest', status: 'missing', detail: 'no guest: npm run setup' },
    { name: 'full checkpoints', status: 'missing', detail: 'no CRIU' },
  ])
})
