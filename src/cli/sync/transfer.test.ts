import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { isWhole } from './snapshot.ts'
import { makeRoomHere } from './transfer.ts'

test('sync: a folder here that holds what the sandbox never had stays, whatever the sandbox has in its place', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'atoll-sync-'))
  t.after(() => rm(dir, { recursive: true }))
  const root = join(dir, 'root')
  await mkdir(join(root, 'full/below'), { recursive: true })
  await mkdir(join(root, 'empty'))
  await writeFile(join(root, 'file'), '')
  await writeFile(join(dir, 'outside'), '')
  await symlink(dir, join(root, 'link'))
  const kept = await makeRoomHere(root, ['full', 'empty', 'file', 'none', 'link/outside', 'link'])
  assert.deepEqual([...kept], ['full'])
  assert.deepEqual(await readdir(root), ['full'])
  assert.ok((await readdir(dir)).includes('outside'))
})

test('sync: a listing that could not read a folder is no listing of what was removed', () => {
  assert.ok(isWhole("find: './a': No such file or directory\n", 10))
  assert.ok(!isWhole("find: './a': No such file or directory\nfind: './b': Permission denied\n", 10))
  assert.ok(!isWhole('find: unrecognized: -printf\n', 0))
})
