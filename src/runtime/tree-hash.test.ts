import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  chownSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
} from 'node:fs'
import { rmSync, symlinkSync, truncateSync, unlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { test, type TestContext } from 'node:test'
import { treeHash } from './tree-hash.ts'

/** A tree of every kind that an image may hold, with a name that is no text. */
function makeTree(t: TestContext): string {
  const folder = mkdtempSync(`${tmpdir()}/atoll-tree-`)
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  mkdirSync(`${folder}/bin`)
  writeFileSync(`${folder}/bin/tool`, 'tool', { mode: 0o755 })
  writeFileSync(`${folder}/bin.d`, '')
  writeFileSync(Buffer.concat([Buffer.from(`${folder}/`), Buffer.from([0xff, 0xfe])]), 'x')
  symlinkSync('bin/tool', `${folder}/link`)
  execFileSync('mknod', [`${folder}/null`, 'c', '1', '3'])
  execFileSync('mkfifo', [`${folder}/pipe`])
  return folder
}

test('a tree has the same name wherever and whenever it is copied', (t) => {
  const folder = makeTree(t)
  const name = treeHash(folder)
  assert.match(name, /^[0-9a-f]{32}$/)
  const copy = `${folder}.copy`
  t.after(() => rmSync(copy, { recursive: true }))
  execFileSync('cp', ['--archive', folder, copy])
  lutimesSync(`${copy}/bin/tool`, 0, 0)
  assert.equal(treeHash(copy), name)
  // The other way round: what a copy without links between files makes of them.
  linkSync(`${folder}/bin/tool`, `${folder}/bin/other`)
  writeFileSync(`${copy}/bin/other`, 'tool', { mode: 0o755 })
  assert.equal(treeHash(copy), treeHash(folder))
  assert.notEqual(treeHash(copy), name)
})

test('whatever a sandbox could see changes the name of a tree', (t) => {
  const changes: Record<string, (folder: string) => void> = {
    'a byte': (folder) => writeFileSync(`${folder}/bin/tool`, 'toll'),
    'more bytes': (folder) => appendFileSync(`${folder}/bin/tool`, '\0'),
    'less bytes': (folder) => truncateSync(`${folder}/bin/tool`, 3),
    'a mode': (folder) => chmodSync(`${folder}/bin/tool`, 0o4755),
    'the mode of the folder itself': (folder) => chmodSync(folder, 0o750),
    'an owner': (folder) => chownSync(`${folder}/bin/tool`, 1, 0),
    'a group': (folder) => chownSync(`${folder}/bin`, 0, 1),
    'a name': (folder) => renameSync(`${folder}/bin/tool`, `${folder}/bin/took`),
    'a place': (folder) => renameSync(`${folder}/bin/tool`, `${folder}/tool`),
    'one more': (folder) => writeFileSync(`${folder}/new`, ''),
    'one less': (folder) => unlinkSync(`${folder}/bin.d`),
    'where a link leads': (folder) => {
      unlinkSync(`${folder}/link`)
      symlinkSync('bin/took', `${folder}/link`)
    },
    'a link for a file': (folder) => {
      unlinkSync(`${folder}/bin.d`)
      symlinkSync('bin', `${folder}/bin.d`)
    },
    'a device': (folder) => {
      unlinkSync(`${folder}/null`)
      execFileSync('mknod', [`${folder}/null`, 'c', '1', '5'])
    },
  }
  const names = new Map([['none', treeHash(makeTree(t))]])
  for (const [what, change] of Object.entries(changes)) {
    const folder = makeTree(t)
    change(folder)
    names.set(what, treeHash(folder))
  }
  assert.equal(new Set(names.values()).size, names.size, JSON.stringify([...names]))
})
