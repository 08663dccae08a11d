import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { ServiceError } from '../../errors.ts'
import { parseRange, sendFile } from './file-body.ts'

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

test('file: an error that comes before the first byte is an answer, though the size is known', async () => {
  const asleep = new ServiceError('unavailable', 'the sandbox hibernates')
  const body = new Readable({ read: () => setImmediate(() => body.destroy(asleep)) })
  const stat = { isDir: false, size: 10, modifiedAt: '2026-01-01T00:00:00.000Z' }
  let open = 0
  const call = {
    params: { id: 'sb-1' },
    request: { method: 'GET', headers: {} },
    // It has no method: nothing may be sent.
    reply: {},
    deps: { sandboxes: { files: { read: async () => ({ stat, body }) } } },
    limits: {},
    streams: { open: () => ((open += 1), () => (open -= 1)) },
  }
  await assert.rejects(sendFile(call as never, { orgId: 'org', path: '/a' }), asleep)
  assert.equal(open, 0)
})
