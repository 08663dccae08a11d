import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { findArguments, Ignore } from './ignore.ts'

test('ignore: patterns fit as gitignore(5) has it', () => {
  const cases: [string[], string, boolean][] = [
    [['*.log'], 'a.log', true],
    [['*.log'], 'deep/er/a.log', true],
    [['*.log', '!keep.log'], 'keep.log', false],
    [['!keep.log', '*.log'], 'keep.log', true],
    [['/top'], 'top', true],
    [['/top'], 'sub/top', false],
    [['a/b'], 'a/b', true],
    [['a/b'], 'x/a/b', false],
    [['a/*.js'], 'a/x/y.js', false],
    [['**/x'], 'x', true],
    [['**/x'], 'a/b/x', true],
    [['a/**'], 'a', false],
    [['a/**'], 'a/b/c', true],
    [['a/**/z'], 'a/z', true],
    [['a/**/z'], 'a/b/c/z', true],
    [['folder/'], 'folder', false],
    [['?.c'], 'ab.c', false],
    [['[a-c].c'], 'b.c', true],
    [['[!a-c].c'], 'b.c', false],
    [['#x', '\\#y'], '#x', false],
    [['#x', '\\#y'], '#y', true],
    [['end  '], 'end', true],
    [['a.c', '', '/'], 'abc', false],
    [['[', '(x'], '(x', true],
  ]
  for (const [patterns, path, isExcluded] of cases) {
    assert.equal(new Ignore(patterns).excludes({ path, isFolder: false }), isExcluded, `${patterns.join(' ')}: ${path}`)
  }
  assert.ok(new Ignore(['folder/']).excludes({ path: 'folder', isFolder: true }))
  assert.ok(new Ignore(['folder/', '!x']).excludesBelow({ path: 'a/folder/x', isFolder: false }))
  const name = Buffer.from('é').toString('latin1')
  assert.ok(new Ignore(['é']).excludes({ path: name, isFolder: false }), 'paths are bytes')
})

test('ignore: a walk reads .gitignore files, each for its own folder, and stays out of what they name', async (t) => {
  const root = await mkdtemp('/tmp/atoll-ignore-')
  t.after(() => rm(root, { recursive: true }))
  for (const folder of ['.git', 'sub', 'node_modules/x']) await mkdir(join(root, folder), { recursive: true })
  const files = {
    '.gitignore': 'node_modules\r\n*.log',
    '.git/config': '',
    'a.log': '',
    'sub/.gitignore': '!b.log\n/own',
  }
  const more = { 'sub/b.log': '', 'sub/own': '', own: '', 'node_modules/x/y': '', 'new\nline': '' }
  for (const [path, text] of Object.entries({ ...files, ...more })) await writeFile(join(root, path), text)
  const paths = async (ignore: Ignore) => {
    const found: string[] = []
    for await (const { path } of ignore.walk(root)) found.push(path)
    return found.toSorted()
  }
  const left = ['.gitignore', 'new\nline', 'own', 'sub', 'sub/.gitignore', 'sub/b.log']
  assert.deepEqual(await paths(new Ignore([], { gitignore: true })), left)
  assert.deepEqual(await paths(new Ignore(['sub/', 'new*'], { gitignore: true })), ['.gitignore', 'own'])
  await assert.rejects(
    paths(new Ignore([], { gitignore: true })).then(() => Array.fromAsync(new Ignore([]).walk(`${root}/none`))),
    /ENOENT/,
  )
})

test('ignore: find is told the same of a folder in a sandbox, and what it cannot do is refused', () => {
  assert.deepEqual(findArguments([]), [])
  const told = ['(', '-name', '*.log', '-o', '-type', 'd', '-path', './a/*/b', ')', '-prune', '-o']
  assert.deepEqual(findArguments(['*.log', '/a/**/b/']), told)
  assert.throws(() => findArguments(['!x']), /"!x"/)
})
