import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import { tmpdir } from 'node:os'
import { test, type TestContext } from 'node:test'
import { treeHash } from './tree-hash.ts'

/** A tree of every kind that an image may hold, with a name that is no text. */
function makeTree(t: TestContext): string {
  const folder = fs.mkdtempSync(`${tmpdir()}/atoll-tree-`)
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }))
  fs.mkdirSync(`${folder}/bin`)
  fs.writeFileSync(`${folder}/bin/tool`, 'tool', { mode: 0o755 })
  fs.writeFileSync(`${folder}/bin.d`, '')
  fs.writeFileSync(Buffer.concat([Buffer.from(`${folder}/`), Buffer.from([0xff, 0xfe])]), 'x')
  fs.symlinkSync('bin/tool', `${folder}/link`)
  execFileSync('mknod', [`${folder}/null`, 'c', '1', '3'])
  execFileSync('mkfifo', [`${folder}/pipe`])
  return folder
}

test('a tree has the same name wherever and whenever it is copied', (t) => {
  const folder = makeTree(t)
  const name = treeHash(folder)
  assert.match(name, /^[0-9a-f]{32}$/)
  const copy = `${folder}.copy`
  t.after(() => fs.rmSync(copy, { recursive: true }))
  execFileSync('cp', ['--archive', folder, copy])
  fs.lutimesSync(`${copy}/bin/tool`, 0, 0)
  assert.equal(treeHash(copy), name)
  // The other way round: what a copy without links between files makes of them.
  fs.linkSync(`${folder}/bin/tool`, `${folder}/bin/other`)
  fs.writeFileSync(`${copy}/bin/other`, 'tool', { mode: 0o755 })
  assert.equal(treeHash(copy), treeHash(folder))
  assert.notEqual(treeHash(copy), name)
})

test('whatever a sandbox could see changes the name of a tree', (t) => {
  const changes: Record<string, (folder: string) => void> = {
    'a byte': (folder) => fs.writeFileSync(`${folder}/bin/tool`, 'toll'),
    'more bytes': (folder) => fs.appendFileSync(`${folder}/bin/tool`, '\0'),
    'less bytes': (folder) => fs.truncateSync(`${folder}/bin/tool`, 3),
    'a mode': (folder) => fs.chmodSync(`${folder}/bin/tool`, 0o4755),
    'the mode of the folder itself': (folder) => fs.chmodSync(folder, 0o750),
    'an owner': (folder) => fs.chownSync(`${folder}/bin/tool`, 1, 0),
    'a group': (folder) => fs.chownSync(`${folder}/bin`, 0, 1),
    'a name': (folder) => fs.renameSync(`${folder}/bin/tool`, `${folder}/bin/took`),
    'a place': (folder) => fs.renameSync(`${folder}/bin/tool`, `${folder}/tool`),
    'one more': (folder) => fs.writeFileSync(`${folder}/new`, ''),
    'one less': (folder) => fs.unlinkSync(`${folder}/bin.d`),
    'where a link leads': (folder) => {
      fs.unlinkSync(`${folder}/link`)
      fs.symlinkSync('bin/took', `${folder}/link`)
    },
    'a link for a file': (folder) => {
      fs.unlinkSync(`${folder}/bin.d`)
      fs.symlinkSync('bin', `${folder}/bin.d`)
    },
    'a device': (folder) => {
      fs.unlinkSync(`${folder}/null`)
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
