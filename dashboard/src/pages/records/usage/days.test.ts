import assert from 'node:assert/strict'
import { test } from 'node:test'
import { daysOf, windowOf } from './days.ts'
import { tagsOf } from './search.ts'

process.env['TZ'] = 'America/New_York'
const now = new Date('2026-11-28T15:00:00Z')

test('days: a range ends now, and its last day is not over', () => {
  const days = daysOf({ range: '7d' }, now)
  assert.deepEqual(
    days.map(({ date }) => date),
    ['2026-11-22', '2026-11-23', '2026-11-24', '2026-11-25', '2026-11-26', '2026-11-27', '2026-11-28'],
  )
  assert.deepEqual([days.at(-1)?.to, days.at(-1)?.isOver, days.at(-2)?.isOver], [now, false, true])
})

test('days: the day on which the clock goes back has 25 hours', () => {
  const [, day] = daysOf({ from: '2026-10-31', to: '2026-11-02' }, now)
  assert.equal((day?.to.getTime() ?? 0) - (day?.from.getTime() ?? 0), 25 * 3_600_000)
})

test('days: those to come are left out', () => {
  assert.deepEqual(
    daysOf({ from: '2026-11-27', to: '2027-01-01' }, now).map(({ date }) => date),
    ['2026-11-27', '2026-11-28'],
  )
  assert.deepEqual(
    daysOf({ from: '2027-01-01' }, now).map(({ date }) => date),
    ['2026-11-28'],
  )
})

test('days: of a longer window the newest 90 count, and the API takes them at once', () => {
  const days = daysOf({ from: '2025-01-01', to: '2026-11-10' }, now)
  assert.deepEqual([days.length, days[0]?.date, days.at(-1)?.date], [90, '2026-08-13', '2026-11-10'])
  const { from, to } = windowOf(days)
  assert.equal(Date.parse(to) - Date.parse(from), 90 * 86_400_000)
})

test('days: a month begins with its first day', () => {
  assert.deepEqual(
    [daysOf({ range: 'month' }, now)[0]?.date, daysOf({ range: 'month' }, now).length],
    ['2026-11-01', 28],
  )
})

test('tags: a filter has a key and values, or stands for those without the key', () => {
  assert.deepEqual(tagsOf('team=web,api'), { team: ['web', 'api'] })
  assert.deepEqual(tagsOf('team'), { team: [] })
  assert.deepEqual(tagsOf('a=b=c'), { a: ['b=c'] })
  assert.deepEqual([tagsOf('=x'), tagsOf(undefined)], [undefined, undefined])
})
