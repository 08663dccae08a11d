import assert from 'node:assert/strict'
import { test } from 'node:test'
import { comparedFilesMax } from '../../sandbox/ports/disk-trees.ts'
import { parseChanges } from './changes.ts'

const raw = (letter: string, ...names: string[]) =>
  `:100644 100644 ${'0'.repeat(40)} ${'1'.repeat(40)} ${letter}\0${names.join('\0')}\0`
const parse = (text: string) => parseChanges(Buffer.from(text, 'latin1'))

test('changes: each has its kind, names and numbers of lines, in the order of paths', () => {
  const { files, ...sums } = parse(
    `${raw('M', 'b')}${raw('R086', 'old\tname', 'a\nc')}${raw('T', 'z')}${raw('D', 'image')}1\t2\tb\x003\t0\t\0old\tname\0a\nc\x001\t1\tz\0-\t-\timage\0`,
  )
  assert.deepEqual(files, [
    { path: 'a\nc', oldPath: 'old\tname', change: 'renamed', addedLines: 3, removedLines: 0, isBinary: false },
    { path: 'b', change: 'modified', addedLines: 1, removedLines: 2, isBinary: false },
    { path: 'image', change: 'deleted', addedLines: 0, removedLines: 0, isBinary: true },
    { path: 'z', change: 'modified', addedLines: 1, removedLines: 1, isBinary: false },
  ])
  assert.deepEqual(sums, { addedLines: 5, removedLines: 3, isCut: false })
})

test('changes: names that differ in bytes that are no UTF-8 keep their own lines', () => {
  const { files } = parse(
    `${raw('A', 'x\xfe')}${raw('A', 'x\xff')}${raw('A', '\xc3\xa9')}1\t0\tx\xfe\x002\t0\tx\xff\x003\t0\t\xc3\xa9\0`,
  )
  assert.deepEqual(
    files.map(({ path, addedLines }) => [path, addedLines]),
    [
      ['x\ufffd', 1],
      ['x\ufffd', 2],
      ['é', 3],
    ],
  )
})

test('changes: no more than the bound are listed, and the lines of all count', () => {
  const names = Array.from({ length: comparedFilesMax + 1 }, (_, index) => `f${index}`)
  const { files, addedLines, isCut } = parse(
    names.map((name) => raw('A', name)).join('') + names.map((name) => `1\t0\t${name}\0`).join(''),
  )
  assert.deepEqual([files.length, addedLines, isCut], [comparedFilesMax, comparedFilesMax + 1, true])
  assert.deepEqual(parse(''), { files: [], addedLines: 0, removedLines: 0, isCut: false })
})

test('changes: anything else than the output of git is refused', () => {
  for (const text of [raw('X', 'a'), ':100644', ':1 2 3 4 R1\0a', 'x\0', '1\t\0', '1\t1\t\0old\0'])
    assert.throws(() => parse(text), /comparison/, JSON.stringify(text))
})
