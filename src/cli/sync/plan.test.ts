import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  type Entry,
  firstPlan,
  isEmpty,
  isSame,
  knownAfter,
  nextPlan,
  type Plan,
  type Sides,
  type Snapshot,
} from './plan.ts'

/** Entries whose text is their size; `name/` is a folder. */
function snapshot(texts: Record<string, string>, stamp = '1'): Snapshot {
  const entries = Object.entries(texts).map(([path, text]): [string, Entry] => {
    const kind = path.endsWith('/') ? 'folder' : 'file'
    const entry = { kind, size: text.length, seconds: 1, isExecutable: false, target: '', stamp } as const
    return [path.replace(/\/$/, ''), entry]
  })
  return new Map(entries)
}

function plan(parts: Partial<Plan>): Plan {
  return { send: [], receive: [], removeThere: [], removeHere: [], ...parts }
}

test('sync: a first round copies what differs, and removes only when it is asked to', () => {
  const sides = {
    here: snapshot({ same: 'a', 'd/': '', 'd/new': '', other: 'b' }),
    there: snapshot({ same: 'a', other: 'cc', own: '' }),
  }
  assert.deepEqual(firstPlan(sides, { direction: 'push' }), plan({ send: ['d', 'd/new', 'other'] }))
  assert.deepEqual(
    firstPlan(sides, { direction: 'push', removes: true }),
    plan({ send: ['d', 'd/new', 'other'], removeThere: ['own'] }),
  )
  assert.deepEqual(
    firstPlan(sides, { direction: 'pull', removes: true }),
    plan({ receive: ['other', 'own'], removeHere: ['d', 'd/new'] }),
  )
  assert.deepEqual(firstPlan(sides, { direction: 'both' }), plan({ send: ['d', 'd/new', 'other'], receive: ['own'] }))
})

test('sync: a later round takes what the winning side changed and removed, and leaves the rest of the other', () => {
  const known = {
    here: snapshot({ kept: 'a', gone: 'b', 'd/': '' }),
    there: snapshot({ kept: 'a', gone: 'b', 'd/': '' }),
  }
  const now: Sides = {
    here: snapshot({ kept: 'aa', 'd/': '', 'd/new': '' }, '2'),
    there: snapshot({ kept: 'a', gone: 'bb', 'd/': '', own: '' }),
  }
  assert.deepEqual(nextPlan(known, now, 'push'), plan({ send: ['d/new', 'kept'], removeThere: ['gone'] }))
  assert.deepEqual(nextPlan(known, now, 'pull'), plan({ receive: ['gone', 'own'] }))
})

test('sync: of a file that both have changed this machine wins, and a change wins over a removal', () => {
  const before = { both: 'a', 'd/': '', 'd/x': '', 'e/': '', 'e/x': '' }
  const known = { here: snapshot(before), there: snapshot(before) }
  const now: Sides = {
    here: snapshot({ both: 'bb', 'e/': '', 'e/x': 'changed' }, '2'),
    there: snapshot({ both: 'ccc', 'd/': '', 'd/x': 'changed' }, '2'),
  }
  const found = nextPlan(known, now, 'both')
  assert.deepEqual(found, plan({ send: ['both', 'e/x'], receive: ['d/x'] }))
})

test('sync: what was copied is no change of the side that was given it, until that side changes it', () => {
  const first: Sides = { here: snapshot({ a: '1' }), there: snapshot({ b: '22' }) }
  const known = knownAfter(first, firstPlan(first, { direction: 'both' }))
  const now: Sides = { here: snapshot({ a: '1', b: '22' }), there: snapshot({ a: '1', b: '22' }, 'own') }
  // `b` of the sandbox is untouched, so its stamp must be the one of before.
  const settled: Sides = { ...now, there: new Map([...now.there, ['b', first.there.get('b')!]]) }
  assert.ok(isEmpty(nextPlan(known, settled, 'both')))
  const later = knownAfter(settled, plan({}))
  const changed: Sides = {
    ...settled,
    here: new Map([...settled.here, ['b', { ...settled.here.get('b')!, stamp: '9' }]]),
  }
  assert.deepEqual(nextPlan(later, changed, 'both'), plan({ send: ['b'] }))
})

test('sync: two sides agree about a file by its size, second and permission, about a link by its target', () => {
  const file: Entry = { kind: 'file', size: 1, seconds: 2, isExecutable: false, target: '' }
  assert.ok(isSame(file, { ...file, stamp: 'x' }))
  for (const other of [{ size: 2 }, { seconds: 3 }, { isExecutable: true }, { kind: 'folder' as const }]) {
    assert.ok(!isSame(file, { ...file, ...other }))
  }
  const link: Entry = { ...file, kind: 'link', target: 'a' }
  assert.ok(isSame(link, { ...link, seconds: 9 }) && !isSame(link, { ...link, target: 'b' }))
  assert.ok(!isSame(file, undefined))
})
