import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseLocation, targetOf } from './location.ts'

test('location: a path in a sandbox has the id before it, all else is local', () => {
  assert.deepEqual(parseLocation('sb-abc123:/a b:c\n'), { sandbox: 'sb-abc123', path: '/a b:c\n' })
  assert.deepEqual(parseLocation('web:/a'), { sandbox: 'web', path: '/a' })
  assert.deepEqual(parseLocation('a/web:/a'), { path: 'a/web:/a' })
  assert.deepEqual(parseLocation('./sb-abc123:/a'), { path: './sb-abc123:/a' })
  assert.deepEqual(parseLocation('C:/a'), { path: 'C:/a' })
})

test('location: what cannot be meant is refused by its name', () => {
  assert.throws(() => parseLocation('sb-abc123:a'), /"sb-abc123:a": a path in a sandbox is absolute/)
  assert.throws(() => parseLocation('web:a'), /\.\/web:a is a file here/)
  assert.throws(() => parseLocation('sb-AB C:/a'), /"sb-AB C" is no id/)
  assert.throws(() => parseLocation(Buffer.from([0x61, 0xff]).toString()), /is no UTF-8/)
  assert.throws(() => parseLocation(''), /empty/)
})

test('location: a copy goes into a folder that is there, and the content of a folder beside its own', () => {
  assert.equal(targetOf('a/b', '/x', true), '/x/b')
  assert.equal(targetOf('a/b/', '/x', true), '/x/b')
  assert.equal(targetOf('a/b', '/x', false), '/x')
  assert.equal(targetOf('a/b/.', '/x', true), '/x')
  assert.equal(targetOf('.', '/x', true), '/x')
})
