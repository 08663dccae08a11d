import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseRange } from './file-body.ts'

test('ranges of RFC 9110 are read against the size of the file', () => {
  assert.deepEqual(parseRange('bytes=0-3', 10), { start: 0, end: 3 })
  assert.deepEqual(parseRange('bytes=4-', 10), { start: 4, end: 9 })
  assert.deepEqual(parseRange('bytes=4-400', 10), { start: 4, end: 9 })
  assert.deepEqual(parseRange('bytes=-3', 10), { start: 7, end: 9 })
  assert.deepEqual(parseRange('bytes=-30', 10), { start: 0, end: 9 })
  assert.deepEqual(parseRange('BYTES= 1-2 ', 10), { start: 1, end: 2 })
})

test('a range that the file cannot satisfy says so', () => {
  for (const header of ['bytes=10-', 'bytes=10-20', 'bytes=-0']) assert.equal(parseRange(header, 10), 'unsatisfiable')
  for (const header of ['bytes=0-', 'bytes=-1']) assert.equal(parseRange(header, 0), 'unsatisfiable')
})

test('what is no single byte range is ignored', () => {
  for (const header of [
    undefined,
    '',
    'bytes=',
    'bytes=-',
    'lines=1-2',
    'bytes=3-2',
    'bytes=0-1,3-4',
    'bytes=a-b',
    'bytes=1',
    'bytes=1 2-3',
    `bytes=0-${' '.repeat(100)}`,
  ]) {
    assert.equal(parseRange(header, 10), undefined, header)
  }
})

test('a header of nothing but blanks, however many, is ignored', () => {
  const blanks = ' '.repeat(5_000_000)
  assert.equal(parseRange(`bytes=${blanks}-${blanks}x`, 10), undefined)
})
