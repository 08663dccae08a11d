import assert from 'node:assert/strict'
import { test } from 'node:test'
import { processorTime } from '../lib/testing/processor-time.ts'
import { Glob } from './glob.ts'

const fits = (pattern: string, name: string) => Glob.ofName(pattern).matches(name)

test('glob: a name is matched as by filepath.Match of Go', () => {
  // From its tests and documentation.
  for (const [pattern, name, expected] of [
    ['abc', 'abc', true],
    ['*', 'abc', true],
    ['*c', 'abc', true],
    ['a*', 'a', true],
    ['a*b*c*d*e*', 'axbxcxdxe', true],
    ['a*b?c*x', 'abxbbxdbxebxczzx', true],
    ['a*b?c*x', 'abxbbxdbxebxczzy', false],
    ['ab[c]', 'abc', true],
    ['ab[b-d]', 'abc', true],
    ['ab[e-g]', 'abc', false],
    ['ab[^c]', 'abc', false],
    ['ab[^e-g]', 'abc', true],
    ['a\\*b', 'a*b', true],
    ['a\\*b', 'ab', false],
    ['a?b', 'a☺b', true],
    ['a[^a]b', 'a☺b', true],
    ['[a-ζ]*', 'α', true],
    ['[\\]a]', ']', true],
    ['[\\-x]', '-', true],
    ['[x\\-]', 'z', false],
    ['*x', 'xxx', true],
    ['?', '', false],
    ['a**c', 'abc', true],
    ['**', '', true],
    ['', '', true],
    ['\u{1f600}?', '\u{1f600}\u{1f601}', true],
  ] as const)
    assert.equal(fits(pattern, name), expected, `${pattern} ${name}`)
  for (const malformed of ['[]a]', '[-]', '[x-]', '[-x]', '[a-b-c]', '[', '[^', '[^bc', 'a[', '\\'])
    assert.throws(() => Glob.ofName(malformed), SyntaxError, malformed)
})

test('glob: one without signs stands for a text, also when some are escaped', () => {
  assert.equal(Glob.ofName('a\\*b☺').literal, 'a*b☺')
  for (const pattern of ['a*', '?', '[a]']) assert.equal(Glob.ofName(pattern).literal, undefined, pattern)
})

test('glob: what makes others try again and again takes no longer', () => {
  const usedMs = processorTime()
  assert.equal(fits(`${'*a'.repeat(500)}b`, 'a'.repeat(2000)), false)
  assert.ok(usedMs() < 1000)
})
