import assert from 'node:assert/strict'
import { mock, test, type TestContext } from 'node:test'
import { setImmediate as nextLoop } from 'node:timers/promises'
import { silentLog } from '../lib/log.ts'
import { MaxAges } from './max-age.ts'

/** Rows in memory, and a clock of the test's. */
function world(context: TestContext) {
  mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1_000_000 })
  context.after(() => mock.timers.reset())
  const rows = new Map<string, number>()
  const ended: string[] = []
  let looks = 0
  const failing = new Set<string>()
  const ages = new MaxAges({
    store: {
      nextExpiring: async (limit) => {
        looks += 1
        if (failing.has('store')) throw new Error('the database is away')
        const all = [...rows].map(([id, atMs]) => ({ id, expiresAt: new Date(atMs) }))
        return all.toSorted((a, b) => a.expiresAt.getTime() - b.expiresAt.getTime()).slice(0, limit)
      },
    },
    end: async (id) => {
      if (failing.has(id)) throw new Error('not now')
      rows.delete(id)
      ended.push(id)
      return { gone: Promise.resolve() }
    },
    log: silentLog,
  })
  context.after(() => ages.close())
  return {
    ages,
    rows,
    ended,
    failing,
    looks: () => looks,
    add(id: string, inMs: number) {
      rows.set(id, Date.now() + inMs)
      ages.notice(new Date(Date.now() + inMs))
    },
    async pass(ms: number) {
      mock.timers.tick(ms)
      for (let loops = 0; loops < 20; loops += 1) await nextLoop()
    },
  }
}

test('maximum age: each end comes at its time, the earliest first, whatever the order in which they are noticed', async (context) => {
  const { ages, ended, add, pass } = world(context)
  add('before the start', -5000)
  ages.open()
  await pass(0)
  assert.deepEqual(ended.splice(0), ['before the start'])
  add('late', 20_000)
  add('early', 10_000)
  await pass(9999)
  assert.deepEqual(ended, [])
  await pass(1)
  assert.deepEqual(ended.splice(0), ['early'])
  await pass(10_000)
  assert.deepEqual(ended, ['late'])
})

test('maximum age: an end that fails, and a database that is away, are tried again after half a minute, not at once', async (context) => {
  const { ages, ended, failing, looks, add, pass } = world(context)
  ages.open()
  await pass(0)
  failing.add('one')
  add('one', 1000)
  await pass(1000)
  const before = looks()
  await pass(29_999)
  assert.deepEqual([ended, looks() - before], [[], 0])
  failing.add('store')
  await pass(1)
  assert.equal(looks() - before, 1)
  failing.clear()
  await pass(30_000)
  assert.deepEqual(ended, ['one'])
})

test('maximum age: a clock that is set forward is noticed within half a minute', async (context) => {
  const { ages, ended, add, pass } = world(context)
  ages.open()
  await pass(0)
  add('one', 3_600_000)
  await pass(10)
  mock.timers.setTime(Date.now() + 3_600_000)
  await pass(30_000)
  assert.deepEqual(ended.splice(0), ['one'])
})

test('maximum age: after a clock was set back, old and new ends come at their own time of the new clock', async (context) => {
  const { ages, ended, add, pass } = world(context)
  mock.timers.setTime(10_000_000)
  ages.open()
  await pass(0)
  add('old', 60_000)
  await pass(10)
  mock.timers.setTime(Date.now() - 3_600_000)
  add('new', 1000)
  await pass(1000)
  assert.deepEqual(ended.splice(0), ['new'])
  await pass(3_600_000 + 60_000)
  assert.deepEqual(ended, ['old'])
})

test('maximum age: hundreds that are due together all end, and none after the close', async (context) => {
  const { ages, ended, looks, add, pass } = world(context)
  ages.open()
  await pass(0)
  const before = looks()
  for (let index = 0; index < 220; index += 1) add(`sandbox ${index}`, 1000)
  await pass(1000)
  for (let more = 0; more < 6; more += 1) await pass(0)
  assert.equal(ended.length, 220)
  assert.ok(looks() - before <= 6)
  add('last', 1000)
  await ages.close()
  await pass(60_000)
  assert.ok(!ended.includes('last'))
})
