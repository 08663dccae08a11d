import assert from 'node:assert/strict'
import { posix } from 'node:path'
import { test } from 'node:test'
import { refuses } from '../../lib/testing/refuses.ts'
import type { FileTree, TreeEntry } from '../file-tree.ts'
import { selectSources } from './sources.ts'

/** A tree of files, links (`-> target`) and the folders above them. */
function treeOf(...lines: string[]): FileTree {
  const entries = new Map<string, TreeEntry>([['/', { path: '/', type: 'directory', mode: 0o755 }]])
  for (const line of lines) {
    const [path = '', target] = line.split(' -> ')
    for (let above = posix.dirname(path); above !== '/'; above = posix.dirname(above))
      entries.set(above, { path: above, type: 'directory', mode: 0o755 })
    if (path.endsWith('/')) entries.set(path.slice(0, -1), { path: path.slice(0, -1), type: 'directory', mode: 0o755 })
    else if (target === undefined) entries.set(path, { path, type: 'file', mode: 0o644 })
    else entries.set(path, { path, type: 'symlink', mode: 0o777, target })
  }
  return {
    find: async (path) => entries.get(path),
    list: async (path) => [...entries.values()].filter((one) => one.path !== '/' && posix.dirname(one.path) === path),
  }
}

interface Options {
  excludes?: string[]
  keepsParents?: boolean
}

async function selected(tree: FileTree, patterns: string | string[], options: Options = {}) {
  const sources = [patterns].flat().map((pattern) => ({ pattern }))
  const request = { sources, excludes: [], keepsParents: false, line: 7, ...options }
  const { entries, skip } = await selectSources(tree, request)
  return { entries: entries.map(({ path, name }) => `${path} ${name}`.trimEnd()), skip: [...skip] }
}

const found = async (...args: Parameters<typeof selected>) => (await selected(...args)).entries
const tree = treeOf(
  '/a.txt',
  '/b.txt',
  '/src/main.go',
  '/src/lib/x.go',
  '/src/lib/y.md',
  '/pkg/one/p.json',
  '/pkg/two/p.json',
  '/empty/',
)

test('copy: a file keeps its name, and of a folder what is in it is copied', async () => {
  assert.deepEqual(await found(tree, 'a.txt'), ['/a.txt a.txt'])
  assert.deepEqual(await found(tree, 'src'), ['/src'])
  for (const all of ['.', './', '/', '']) assert.deepEqual(await found(tree, all), ['/'], all)
  assert.deepEqual(await found(tree, ['b.txt', 'src/lib/']), ['/b.txt b.txt', '/src/lib'])
})

test('copy: no source leads out of the tree', async () => {
  assert.deepEqual(await found(tree, '../a.txt'), ['/a.txt a.txt'])
  assert.deepEqual(await found(tree, 'src/../../../b.txt'), ['/b.txt b.txt'])
  const links = treeOf('/up -> ../../../a.txt', '/a.txt', '/root -> /', '/absolute -> /a.txt')
  assert.deepEqual(await found(links, 'up'), ['/a.txt up'])
  assert.deepEqual(await found(links, 'absolute'), ['/a.txt absolute'])
  assert.deepEqual(await found(links, 'root/a.txt'), ['/a.txt a.txt'])
  assert.deepEqual(await found(links, 'root'), ['/'])
})

test('copy: wildcards stand for parts of names at every level, and a folder that one finds gives what is in it', async () => {
  assert.deepEqual(await found(tree, '*.txt'), ['/a.txt a.txt', '/b.txt b.txt'])
  assert.deepEqual(await found(tree, 'pkg/*/p.json'), ['/pkg/one/p.json p.json', '/pkg/two/p.json p.json'])
  assert.deepEqual(await found(tree, '*/*/[x-z].*'), ['/src/lib/x.go x.go', '/src/lib/y.md y.md'])
  assert.deepEqual(await found(tree, 'pkg/*'), ['/pkg/one', '/pkg/two'])
  assert.deepEqual(await found(tree, 'em?t[y]'), ['/empty'])
})

test('copy: a source that is a link is followed, also on the way, and a loop of links is an error', async () => {
  const links = treeOf(
    '/real/x',
    '/link -> real',
    '/file -> link/x',
    '/loop -> loop2',
    '/loop2 -> loop',
    '/gone -> nowhere',
  )
  assert.deepEqual(await found(links, 'link'), ['/real'])
  assert.deepEqual(await found(links, 'link/x'), ['/real/x x'])
  assert.deepEqual(await found(links, 'file'), ['/real/x file'])
  assert.deepEqual(await found(links, '*/x'), ['/real/x x'])
  await refuses(selected(links, 'loop'), 'build_failed', /line 7.*too many links/)
  await refuses(selected(links, 'gone'), 'build_failed', /line 7.*leads nowhere/)
})

test('copy: a source without a match is an error, but a wildcard', async () => {
  await refuses(selected(tree, 'missing'), 'build_failed', /line 7.*"missing"/)
  await refuses(selected(tree, ['a.txt', 'missing']), 'build_failed', /line 7.*"missing"/)
  await refuses(selected(tree, 'a.txt/x'), 'build_failed', /line 7/)
  assert.deepEqual(await found(tree, 'none*'), [])
  await refuses(selected(tree, 'none/*'), 'build_failed', /line 7.*"none\/\*"/)
  assert.deepEqual(await found(tree, ['a.txt', 'yarn.lock*']), ['/a.txt a.txt'])
  await refuses(selected(tree, 'x[]'), 'invalid_request', /line 7.*malformed/)
})

test('copy: excludes leave out what they match below a source, and the last one that fits decides', async () => {
  assert.deepEqual(await selected(tree, ['src', '*.txt'], { excludes: ['**/*.md', 'b.*'] }), {
    entries: ['/src', '/a.txt a.txt'],
    skip: ['/src/lib/y.md'],
  })
  assert.deepEqual((await selected(tree, '.', { excludes: ['src', 'pkg/*/p.json'] })).skip.toSorted(), [
    '/pkg/one/p.json',
    '/pkg/two/p.json',
    '/src',
  ])
  assert.deepEqual((await selected(tree, 'src', { excludes: ['lib', '!lib/x.go'] })).skip, ['/src/lib/y.md'])
  const { skip } = await selected(tree, 'src', { excludes: ['lib', '!lib/none*'] })
  assert.ok(skip.includes('/src/lib'), 'a folder of which nothing is kept')
  await refuses(selected(tree, 'src', { excludes: ['x['] }), 'invalid_request', /line 7.*malformed pattern "x\["/)
})

test('copy: parents are kept, from the dot on where there is one', async () => {
  const keepsParents = true
  assert.deepEqual(await found(tree, 'src/lib/x.go', { keepsParents }), ['/src/lib/x.go src/lib/x.go'])
  assert.deepEqual(await found(tree, 'src/./lib/x.go', { keepsParents }), ['/src/lib/x.go lib/x.go'])
  assert.deepEqual(await found(tree, './pkg/*/p.json', { keepsParents }), [
    '/pkg/one/p.json pkg/one/p.json',
    '/pkg/two/p.json pkg/two/p.json',
  ])
  assert.deepEqual(await found(tree, 'pkg', { keepsParents }), ['/pkg pkg'])
  assert.deepEqual(await found(tree, 'src/**/*.go', { keepsParents }), [
    '/src/main.go src/main.go',
    '/src/lib/x.go src/lib/x.go',
  ])
})

test('copy: names are bytes, and patterns are text', async () => {
  const bytes = (text: string) => Buffer.from(text).toString('latin1')
  const names = treeOf(bytes('/größe'), '/\xff\xfe')
  assert.deepEqual(await found(names, 'größe'), [`${bytes('/größe')} ${bytes('größe')}`])
  assert.deepEqual(await found(names, 'gr??e'), [`${bytes('/größe')} ${bytes('größe')}`])
  assert.equal((await found(names, '*')).length, 2)
})

test('copy: patterns that cost much with many names hold up nobody else, and end', async () => {
  const hostile = `*${'a'.repeat(120)}b`
  const children = Array.from({ length: 30_000 }, (_, index): TreeEntry => {
    return { path: `/d/${'a'.repeat(244)}${index}`, type: 'file', mode: 0o644 }
  })
  const wide: FileTree = {
    find: async (path) => ({ path, type: path === '/d' ? 'directory' : 'file', mode: 0o755 }),
    list: async () => children,
  }
  const many = (count: number) => Array.from({ length: count }, () => hostile)
  for (const [patterns, excludes] of [
    [[`d/${hostile}`], []],
    [[`d/*[${'b'.repeat(4000)}]`], []],
    [['d'], many(100)],
  ]) {
    let others = 0
    let isOver = false
    const other = () => {
      others += 1
      if (!isOver) setImmediate(other)
    }
    setImmediate(other)
    await refuses(selected(wide, patterns!, { excludes: excludes! }), 'build_failed')
    isOver = true
    assert.ok(others > 20, `others had ${others} turns`)
  }
  await refuses(selected(wide, 'd', { excludes: many(200) }), 'invalid_request')
})

test('copy: an error about a missing source says what its tree adds', async () => {
  const context = { ...tree, absence: ': look at the ignore file' }
  await refuses(found(context, 'nope'), 'build_failed', /line 7: there is no "nope" to copy: look at the ignore file$/)
})
