import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseFolder } from './folder-files.ts'

function entry(path: string, content: string, about: object = {}): Buffer {
  const text = JSON.stringify({
    path: Buffer.from(path).toString('base64'),
    mode: 0o644,
    size: Buffer.byteLength(content),
    ...about,
  })
  const length = Buffer.alloc(4)
  length.writeUInt32BE(Buffer.byteLength(text))
  return Buffer.concat([length, Buffer.from(text), Buffer.from(content)])
}

test('folder files: each has its path, mode and content', () => {
  const files = parseFolder(Buffer.concat([entry('a/é', 'one'), entry('b', '', { mode: 0o600 })]))
  assert.deepEqual(
    files.map(({ path, mode, content }) => [path, mode, Buffer.from(content).toString()]),
    [
      ['a/é', 0o644, 'one'],
      ['b', 0o600, ''],
    ],
  )
  assert.deepEqual(parseFolder(Buffer.alloc(0)), [])
})

test('folder files: a path out of the folder is refused', () => {
  for (const path of ['', '/etc/passwd', '..', '../x', 'a/../b', 'a//b', 'a/'])
    assert.throws(() => parseFolder(entry(path, 'x')), JSON.stringify(path))
})

test('folder files: what breaks off or has other fields is refused', () => {
  const whole = entry('a', 'content')
  for (let length = 1; length < whole.length; length += 1) assert.throws(() => parseFolder(whole.subarray(0, length)))
  for (const about of [{ mode: 0o4755 }, { size: -1 }, { size: 0.5 }, { size: 1e15 }, { path: '%' }, { path: 1 }])
    assert.throws(() => parseFolder(entry('a', 'x', about)), JSON.stringify(about))
})
