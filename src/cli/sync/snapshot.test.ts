import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ignoreOf, parseListing } from './snapshot.ts'

const ignore = ignoreOf({ exclude: ['*.tmp'], gitignore: false })

test('sync: a listing of a sandbox is read with names of any bytes, and links', () => {
  const text = 'f 3 12.5000 755 7 a b\nc\0\0l 1 13.0 777 8 d/link\0../a\0d 0 1.0 755 9 d\0\0s 0 1.0 755 9 socket\0\0'
  const found = parseListing(text, ignore)
  assert.deepEqual([...found.keys()], ['a b\nc', 'd/link', 'd'])
  const { stamp, ...file } = found.get('a b\nc')!
  assert.deepEqual(file, { kind: 'file', size: 3, seconds: 12, isExecutable: true, target: '' })
  assert.ok(stamp?.includes('12.5000') && stamp.includes(' 7'))
  assert.equal(found.get('d/link')?.target, '../a')
})

test('sync: a name that leads out of the folder, is excluded or is none is not taken from a sandbox', () => {
  const names = ['../x', '/etc/passwd', 'a/../../x', 'a//b', './a', 'x.tmp', 'd.tmp/x', '.atoll-sync-1/x', 'fine']
  const text = names.map((name) => `f 1 1.0 644 1 ${name}\0\0`).join('')
  assert.deepEqual(
    [...parseListing(`nonsense\0\0f x 1.0 644 1 y\0\0${text}f 1 1.0 644 1 cut`, ignore).keys()],
    ['fine'],
  )
})
