import assert from 'node:assert/strict'
import { test } from 'node:test'
import { works, type CheckResult, type HostCheck } from '../self-test.ts'
import { inspectHost } from './inspect.ts'

const options = { imageDir: '/nowhere', dataDir: '/nowhere' }

function check(name: string, run: HostCheck['run']): HostCheck {
  return { name, required: true, run }
}

test('host inspection: a check that hangs or throws is a row that says so, and the others have theirs', async () => {
  const inspect = inspectHost(
    options,
    [
      check('hangs', () => new Promise(() => {})),
      check('throws', () => {
        throw new Error('broken\nin two lines')
      }),
      check('works', async () => works('well')),
    ],
    20,
  )
  assert.deepEqual(await inspect(), [
    { name: 'hangs', required: true, state: 'fails', found: 'no result after 0.02 seconds' },
    { name: 'throws', required: true, state: 'fails', found: 'broken in two lines' },
    { name: 'works', required: true, state: 'works', found: 'well' },
  ])
})

test('host inspection: a check that still hangs is not started again, and its late result counts', async () => {
  const { promise, resolve } = Promise.withResolvers<CheckResult>()
  let starts = 0
  const slow = check('slow', () => {
    starts += 1
    return promise
  })
  const inspect = inspectHost(options, [slow], 10)
  assert.equal((await inspect())[0]?.state, 'fails')
  const second = inspect()
  resolve(works('late'))
  assert.equal((await second)[0]?.found, 'late')
  assert.equal(starts, 1)
})

test('host inspection: the checks of this machine end, and folders that are not there are rows', async () => {
  const rows = new Map((await inspectHost(options)()).map((row) => [row.name, row]))
  assert.equal(rows.get('Node')?.state, 'works')
  assert.equal(rows.get('base image')?.state, 'missing')
  for (const trial of ['runc', 'CRIU', 'disk pool', 'idmapped overlay', 'start']) assert.ok(!rows.has(trial), trial)
})
