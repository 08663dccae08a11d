import assert from 'node:assert/strict'
import { test } from 'node:test'
import { silentLog } from '../lib/log.ts'
import { retentionRules, startRetention } from './retention.ts'

const hourMs = 3_600_000

test('retention: each rule runs now and after its time, whatever happens to the others', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const [runs, warnings] = [{ quick: 0, failing: 0 }, [] as unknown[]]
  const log = { ...silentLog, warn: (facts: unknown) => warnings.push((facts as { what: string }).what) }
  const retention = startRetention(
    [
      { what: 'quick', everyMs: 1000, run: async () => (runs.quick += 1) },
      { what: 'failing', everyMs: 4000, run: async () => Promise.reject(new Error(`run ${(runs.failing += 1)}`)) },
    ],
    log,
  )
  const turn = () => new Promise((resolve) => setImmediate(resolve))
  await turn()
  assert.deepEqual(runs, { quick: 1, failing: 1 })
  for (let second = 0; second < 4; second++) {
    t.mock.timers.tick(1000)
    await turn()
  }
  assert.deepEqual(runs, { quick: 5, failing: 2 })
  assert.deepEqual(warnings, ['failing', 'failing'])
  await retention[Symbol.asyncDispose]()
  t.mock.timers.tick(4000)
  assert.deepEqual(runs, { quick: 5, failing: 2 }, 'the clocks have stopped')
})

test('retention: its end asks a run under way to end, and waits for it', async () => {
  const end = Promise.withResolvers<void>()
  let isAsked = false
  const run = async (signal: AbortSignal) => {
    signal.addEventListener('abort', () => (isAsked = true))
    await end.promise
  }
  const retention = startRetention([{ what: 'slow', everyMs: hourMs, run }], silentLog)
  let isDisposed = false
  const disposed = Promise.resolve(retention[Symbol.asyncDispose]()).then(() => (isDisposed = true))
  await new Promise((resolve) => setImmediate(resolve))
  assert.deepEqual([isAsked, isDisposed], [true, false])
  end.resolve()
  await disposed
})

test('retention: ages come from the settings, and sessions stay without one', async () => {
  const found: [string, number][] = []
  const note = (what: string) => async (before: Date) =>
    void found.push([what, (Date.now() - before.getTime()) / hourMs])
  const context = {
    sandboxes: {
      purge: note('sandboxes'),
      emptyQuarantine: async () => undefined,
      deleteExpiredCheckpoints: async () => undefined,
      removeUnusedCaches: note('caches'),
    },
    images: { removeUnused: note('images'), removeOldLogs: note('logs'), contexts: { removeUnused: note('contexts') } },
    sessions: {
      deleteExpired: note('sessions'),
      sweepForkCheckpoints: async () => undefined,
      sweepCapsules: async () => undefined,
    },
    webhooks: { purge: async () => undefined, tellDisabled: async () => undefined },
    secrets: { removeUnusedKeys: async () => undefined },
    store: {
      idempotency: { purge: async (before: Date) => (await note('keys')(before), 0) },
      audit: {
        purge: async () => 0,
        organisations: async () => [],
        tellHead: async () => Promise.reject(new Error('none')),
      },
      usage: { purge: async () => 0 },
      events: { purge: async (before: Date) => (await note('events')(before), 0) },
      egress: { removeUnused: async (before: Date) => (await note('authorities')(before), 0) },
    },
  }
  const limits = { image: { unusedDays: 2 }, events: { eventDays: 3 } } as never
  const { signal } = new AbortController()
  for (const kept of [{ sessionsKeptMs: 5 * hourMs }, {}]) {
    found.length = 0
    for (const { run } of retentionRules({ ...context, config: { ...kept, limits } })) await run(signal)
    assert.deepEqual(Object.fromEntries(found.map(([what, hours]) => [what, Math.round(hours)])), {
      ...{ sandboxes: 24, keys: 24, images: 48, events: 72, logs: 720, caches: 720, contexts: 24, authorities: 24 },
      ...('sessionsKeptMs' in kept && { sessions: 5 }),
    })
  }
})
