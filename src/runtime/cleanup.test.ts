import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { setImmediate as later } from 'node:timers/promises'
import { promisify } from 'node:util'
import { allDone, removeFolders } from './cleanup.ts'
import { temporaryFolder } from './testing/temporary-folder.ts'
import { hostTool } from './host/testing/host-tool.ts'

const runFile = promisify(execFile)

const mount = (...args: string[]) => runFile('mount', args)

test('removeFolders: detaches every mount at or in a folder, and keeps the files behind it', async (t) => {
  const folder = await temporaryFolder(t)
  const [gone, other, kept] = ['gone', 'other', 'kept'].map((name) => `${folder}/${name}`) as [string, string, string]
  for (const path of [`${gone}/a/b`, `${gone}/bound`, other, `${kept}/within`]) await mkdir(path, { recursive: true })
  await writeFile(`${kept}/file`, 'kept')
  await writeFile(`${gone}/covered`, '')
  await symlink(kept, `${gone}/link`)
  // Of the same file system, to which a number of the device says nothing: a folder and a file.
  await mount('--bind', kept, `${gone}/bound`)
  await mount('--bind', `${kept}/file`, `${gone}/covered`)
  // One on another, with one within, and one on the folder itself.
  for (const path of ['a/b', 'a/b']) await mount('-t', 'tmpfs', 'scratch', `${gone}/${path}`)
  await mkdir(`${gone}/a/b/c`)
  await mount('--bind', kept, `${gone}/a/b/c`)
  await mount('--bind', kept, other)
  await removeFolders(hostTool, [gone, other, `${folder}/missing`])
  assert.deepEqual(await readdir(folder), ['kept'])
  assert.deepEqual((await readdir(kept)).toSorted(), ['file', 'within'])
  assert.equal((await readFile('/proc/self/mountinfo', 'utf8')).includes(folder), false)
})

test('removeFolders: the error names the folder', async (t) => {
  const folder = await temporaryFolder(t)
  const stuck = `${folder}/stuck`
  await mkdir(stuck)
  await mount('-t', 'tmpfs', 'scratch', stuck)
  await mkdir(`${stuck}/proc`)
  await mount('--bind', '/proc/self', `${stuck}/proc`)
  await removeFolders(hostTool, [stuck])
  assert.deepEqual(await readdir(folder), [])
  await assert.rejects(removeFolders(hostTool, ['/proc/self/fdinfo']), /remove \/proc\/self\/fdinfo/)
})

test('allDone: throws the first error when all steps have ended', async () => {
  let slowEnded = false
  const slow = later().then(() => {
    slowEnded = true
  })
  await assert.rejects(allDone([Promise.reject(new Error('fast fault')), slow]), /fast fault/)
  assert.ok(slowEnded)
})
