import assert from 'node:assert/strict'
import { posix } from 'node:path'
import { test } from 'node:test'
import fc from 'fast-check'
import { processorTime } from '../lib/testing/processor-time.ts'
import { ExcludePatterns, patternsIn } from './exclude-patterns.ts'

/** A pattern, paths that it excludes, and paths that it leaves. */
const cases: [pattern: string, excluded: string[], left: string[]][] = [
  // The examples of the Dockerfile reference.
  ['*/temp*', ['somedir/temporary.txt', 'somedir/temp'], ['temp', 'a/b/temp']],
  ['*/*/temp*', ['somedir/subdir/temporary.txt'], ['somedir/temp']],
  ['temp?', ['tempa', 'tempb', 'tempa/below'], ['temp', 'tempab', 'a/tempa']],
  ['**/*.go', ['a.go', 'x/a.go', 'x/y/a.go'], ['a.got']],
  ['foo/bar', ['foo/bar', 'foo/bar/x'], ['bar', 'x/foo/bar', 'foo/barn']],
  ['/foo/bar', ['foo/bar'], ['bar']],
  ['foo/bar/', ['foo/bar', 'foo/bar/x'], ['foo']],
  ['./foo//x/../bar', ['foo/bar'], ['foo/x']],
  ['.', [], ['a', '.a']],
  ['/', [], ['a']],
  ['../a', [], ['a']],
  ['*', ['a', '.a', 'a/b'], []],
  ['a  ', ['a'], ['a  ']],
  // `**`.
  ['**', ['file', 'dir/file', '.a'], []],
  ['**/', ['file', 'dir/file'], []],
  ['**/**', ['dir/file'], []],
  ['dir/**', ['dir/file', 'dir/dir2/file'], ['dir', 'file']],
  ['**/dir', ['dir', 'dir/file', 'x/dir'], ['xdir']],
  ['**/dir2/*', ['dir/dir2/file'], ['dir2']],
  ['**/dir2/**', ['dir/dir2/dir3/file', 'dir2/x'], ['dir2']],
  ['**file', ['file', 'dir/file', 'myfile'], ['file.x']],
  ['**/file*txt', ['dir/dir/file.txt', 'filetxt'], ['dir/afile.txt']],
  ['**/**/*.txt', ['file.txt', 'dir/dir/file.txt'], ['file.txt2']],
  ['a**/*.txt', ['a/file.txt', 'a/dir/dir/file.txt', 'ab/file.txt'], ['b/file.txt']],
  ['a/**/z', ['a/z', 'a/b/c/z'], ['az', 'a/bz']],
  ['a/*.txt**', ['a/file.txt', 'a/file.txt.gz'], ['a/b/file.txt']],
  ['**/.foo', ['.foo', 'a/.foo'], ['bar.foo']],
  ['***', ['a', 'a/b'], []],
  // Classes and escapes, as Go has them.
  ['a[b-d]e', ['ace'], ['ae', 'aae', 'a-e']],
  ['a[^b-d]e', ['aze'], ['ace']],
  ['a[!b]e', ['a!e', 'abe'], ['ace']],
  [String.raw`a[\]\-]e`, ['a]e', 'a-e'], ['a\\e']],
  ['a]', ['a]'], []],
  [String.raw`a\*b`, ['a*b'], ['axb']],
  [String.raw`\!a`, ['!a'], ['a']],
  [String.raw`a\\`, ['a\\'], ['a']],
  [String.raw`\d`, ['d'], ['1']],
  // What a regular expression would take for something else.
  ['a(b)c/def', ['a(b)c/def'], ['abc/def']],
  ['a.|)$(}+{bc', ['a.|)$(}+{bc'], ['aX|)$(}+{bc']],
  [
    'dist/proxy.py-2.4.0rc3.dev36+g08acad9-py3-none-any.whl',
    ['dist/proxy.py-2.4.0rc3.dev36+g08acad9-py3-none-any.whl'],
    [],
  ],
  ['.*', ['.foo'], ['foo']],
  ['**/*.c', ['new\nline/x.c'], []],
]

test('exclude patterns: each fits what moby has it fit', () => {
  for (const [pattern, excluded, left] of cases) {
    const patterns = new ExcludePatterns([pattern])
    for (const path of excluded) assert.equal(patterns.excludes(path), true, `${pattern} excludes ${path}`)
    for (const path of left) assert.equal(patterns.excludes(path), false, `${pattern} leaves ${path}`)
  }
})

test('exclude patterns: the last one that fits decides, also below an excluded folder', () => {
  const rows: [patterns: string[], excluded: string[], left: string[]][] = [
    [['*.md', '!README.md'], ['a.md'], ['README.md']],
    [['*.md', '!README*.md', 'README-secret.md'], ['README-secret.md'], ['README-x.md']],
    [['*.md', 'README-secret.md', '!README*.md'], ['a.md'], ['README-secret.md']],
    [
      ['*', '!src'],
      ['a', 'srcs'],
      ['src', 'src/deep/x'],
    ],
    [
      ['*', '!**/*.py'],
      ['a.txt', 'sub'],
      ['a.py', 'sub/deep/a.py'],
    ],
    [
      ['docs', '!docs/keep/this', 'docs/keep/this/not'],
      ['docs/a', 'docs/keep', 'docs/keep/this/not/x'],
      ['docs/keep/this'],
    ],
    [
      ['**', '!util/docker/web', 'util/docker/web/foo'],
      ['util/docker/web/foo', 'util/docker'],
      ['util/docker/web/bar'],
    ],
    [['a', '!a/b', 'a'], ['a/b'], []],
    [['ignored/*', '!ignored/*/'], [], ['ignored/file', 'ignored/folder/x']],
    [['a', '! a/b '], ['a/c'], ['a/b']],
    [['a', '!/a/b'], ['a/c'], ['a/b']],
  ]
  for (const [lines, excluded, left] of rows) {
    const patterns = new ExcludePatterns(lines)
    for (const path of excluded) assert.equal(patterns.excludes(path), true, `${lines.join(' ')} excludes ${path}`)
    for (const path of left) assert.equal(patterns.excludes(path), false, `${lines.join(' ')} leaves ${path}`)
  }
})

test('exclude patterns: a walk enters an excluded folder for what may stay alone', () => {
  const enters = (lines: string[], path: string) => {
    const patterns = new ExcludePatterns(lines)
    const place = path.split('/').reduce((at, name) => patterns.enter(at, name), patterns.root)
    assert.equal(place.isExcluded, true, path)
    return patterns.mayKeepBelow(place)
  }
  assert.equal(enters(['node_modules'], 'node_modules'), false)
  assert.equal(enters(['*', '!src/a'], 'node_modules'), false)
  assert.equal(enters(['*', '!src/a'], 'src'), true)
  assert.equal(enters(['*', '!src/a'], 'src/b'), false)
  assert.equal(enters(['*', '!src'], 'sr'), false)
  assert.equal(enters(['*', '!**/a'], 'any/where'), true)
})

test('exclude patterns: characters are counted, not bytes, and bytes that are no UTF-8 fit signs alone', () => {
  const latin1 = (text: string) => Buffer.from(text).toString('latin1')
  assert.ok(new ExcludePatterns(['?.c']).excludes(latin1('é.c')))
  assert.ok(new ExcludePatterns(['[α-ω]/ü']).excludes(latin1('β/ü')))
  assert.ok(new ExcludePatterns(['𝔸?']).excludes(latin1('𝔸𝔹')))
  assert.ok(new ExcludePatterns(['*.c']).excludes('\xff.c'))
  assert.ok(!new ExcludePatterns(['ÿ.c']).excludes('\xff.c'))
})

test('exclude patterns: what has no meaning is refused with its text', () => {
  for (const pattern of ['[', '[a', '[]a]', '[a-]', '[-a]', 'a\\', '!', '! '])
    assert.throws(() => new ExcludePatterns(['ok', pattern]), SyntaxError, pattern)
  assert.throws(() => new ExcludePatterns(['src/[']), { message: /^"src\/\["/ })
  assert.throws(() => new ExcludePatterns(['[z']), /\] is missing/)
})

test('exclude patterns: the states lead where a regular expression leads', () => {
  const pieces: Record<string, string> = {
    ...{ a: 'a', b: 'b', '.': String.raw`\.`, '?': '[^/]', '*': '[^/]*', '[ab]': '[ab]', '[^a]': '[^a]' },
    ...{ '/': '/', '**/': '(?:.*/)?', '/**/': '/(?:.*/)?' },
  }
  const pattern = fc.array(fc.constantFrom(...Object.keys(pieces)), { minLength: 1, maxLength: 6 })
  const path = fc.array(fc.constantFrom('a', 'b', 'ab', '.', 'ba.'), { minLength: 1, maxLength: 4 })
  const isClean = (text: string) => posix.normalize(text) === text && !/^\/|\/$|^\.{1,2}$|\*\*\*/.test(text)
  fc.assert(
    fc.property(pattern, path, (parts, names) => {
      const text = parts.join('')
      fc.pre(isClean(text) && isClean(names.join('/')))
      // Two stars side by side are another piece.
      fc.pre(parts.every((part, index) => part !== '*' || parts[index + 1]?.startsWith('*') !== true))
      const regex = new RegExp(`^${parts.map((part) => pieces[part]).join('')}$`)
      const expected = names.some((_, index) => regex.test(names.slice(0, index + 1).join('/')))
      assert.equal(new ExcludePatterns([text]).excludes(names.join('/')), expected, text)
    }),
    { numRuns: 5000 },
  )
})

test('exclude patterns: the lines of a file are patterns, but for comments and blank ones', () => {
  const text = '\ufeff# first\n\n  a  \r\n #b\n!c\r\n#\n\t\n'
  assert.deepEqual(patternsIn(text), ['a', '#b', '!c'])
  assert.deepEqual(patternsIn('\ufeffa'), ['a'])
  assert.deepEqual(patternsIn(''), [])
})

test('exclude patterns: a hostile pattern takes no more steps than its length times that of the path', () => {
  const path = 'a'.repeat(2000)
  const usedMs = processorTime()
  for (const pattern of ['*a'.repeat(200) + 'b', '**/'.repeat(200) + 'b', '?*'.repeat(200) + 'b'])
    assert.equal(new ExcludePatterns([pattern]).excludes(path), false)
  // A regular expression does not end in this life.
  assert.ok(usedMs() < 20_000)
})
