import assert from 'node:assert/strict'
import { test } from 'node:test'
import { countOf, defined, oneOf, textOf, timeOf } from './search.ts'

test('search: a parameter of another form is left out', () => {
  assert.deepEqual([textOf(5), textOf(''), textOf({}), textOf(null)], ['5', undefined, undefined, undefined])
  assert.deepEqual(
    [countOf(812), countOf('3'), countOf(-1), countOf(1.5), countOf('x')],
    [812, 3, ...[undefined, undefined, undefined]],
  )
  assert.deepEqual([timeOf('2026-01-15T10:30:00+01:00'), timeOf('yesterday')], ['2026-01-15T09:30:00.000Z', undefined])
  assert.deepEqual([oneOf(['a', 'b'], 'b'), oneOf(['a', 'b'], 'c')], ['b', undefined])
})

test('search: what is undefined does not stand in the address', () => {
  assert.deepEqual(Object.keys(defined({ a: 1, b: undefined })), ['a'])
})
