import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { KeyInfo } from 'atoll-sdk'
import { endingWith, makersOf } from './place.ts'

/** Newest first, as the API lists them. */
const keys = [keyOf('d', 'c', 4), keyOf('e', null, 3), keyOf('c', 'b', 2), keyOf('b', 'a', 1), keyOf('a', null, 0)]

test('keys: a key ends with all that it and those below it have made', () => {
  assert.deepEqual(
    endingWith('b', keys).map(({ id }) => id),
    ['d', 'c', 'b'],
  )
  assert.deepEqual(
    endingWith('e', keys).map(({ id }) => id),
    ['e'],
  )
})

test('keys: the makers of a key are those whose end is its own', () => {
  assert.deepEqual([...makersOf('d', keys)], ['d', 'c', 'b', 'a'])
  assert.deepEqual([...makersOf(undefined, keys)], [])
})

test('keys: makers that point at each other are no endless loop', () => {
  assert.deepEqual([...makersOf('x', [keyOf('x', 'y', 0), keyOf('y', 'x', 0)])], ['x', 'y'])
})

function keyOf(id: string, madeBy: string | null, minute: number): KeyInfo {
  return {
    ...{ id, madeBy, orgId: 'org_x', name: id, isDefault: false, keyPrefix: null, scopes: null },
    ...{ expiresAt: null, lastUsedAt: null, namePrefix: null, sandboxesMax: null },
    createdAt: `2026-01-15T10:0${minute}:00.000Z`,
  }
}
