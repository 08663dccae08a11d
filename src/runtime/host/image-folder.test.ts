import assert from 'node:assert/strict'
import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { hostdProtocol } from '../../protocol/hostd.ts'
import { ImageFolder, isImageReference, resolveHostTool } from './image-folder.ts'
import { readCheckpointRecord, readSandboxRecord, textOf } from './records.ts'
import { checkpointRecord, memoryOf, sandboxRecord } from './testing/records.ts'

/** An image folder with one image of each kind, and a folder beside it. */
async function makeImages(t: TestContext) {
  const root = await temporaryFolder(t)
  const images = `${root}/images`
  for (const [name, inside] of [
    ['base', 'rootfs'],
    ['guest', 'guest'],
    ['agent', 'app'],
  ] as const) {
    await mkdir(`${images}/${name}-1/${inside}`, { recursive: true })
    await symlink(`${name}-1`, `${images}/${name}`)
  }
  return { root, images, folder: new ImageFolder(images) }
}

test('image folder: current images go by folder name, and by path where a link leads out', async (t) => {
  const { root, images, folder } = await makeImages(t)
  assert.deepEqual(await folder.current('base'), { base: 'base-1', guest: 'guest-1', agent: 'agent-1' })
  await mkdir(`${root}/elsewhere/rootfs`, { recursive: true })
  await symlink(`${root}/elsewhere`, `${images}/other`)
  assert.equal((await folder.current('other')).base, `${root}/elsewhere/rootfs`)
  await symlink(`${root}/elsewhere`, `${images}/elsewhere`)
  assert.equal((await folder.current('other')).base, 'elsewhere')
  for (const name of ['none', '../elsewhere', '..', '/', '']) {
    await assert.rejects(folder.current(name), { code: 'not_found' }, name)
  }
})

test('hostd: the one of this tree is taken, another version and none are refused with what to do', async (t) => {
  const images = await temporaryFolder(t)
  await assert.rejects(resolveHostTool(images), { code: 'unavailable', message: /run npm run setup$/ })
  await mkdir(`${images}/hostd`)
  const tool = `${images}/hostd/atoll-hostd`
  const says = (version: string) =>
    writeFile(tool, `#!/bin/sh\n[ "$*" = version ] && echo '${version}'\n`, { mode: 0o755 })
  for (const other of ['0.1.0', '{"protocol":999,"version":"9.9.9"}']) {
    await says(other)
    await assert.rejects(resolveHostTool(images), {
      code: 'unavailable',
      message: /(0\.1\.0|999).* run npm run setup$/,
    })
  }
  await says(JSON.stringify({ protocol: hostdProtocol, version: '0.0.0' }))
  assert.equal(await resolveHostTool(images), tool)
})

test('image reference: a name that could lead out of the image folder is refused', async (t) => {
  const { images, folder } = await makeImages(t)
  assert.equal(folder.pathOf('base-1', 'base'), `${images}/base-1/rootfs`)
  assert.equal(folder.pathOf('/srv/old/base-0/rootfs', 'base'), '/srv/old/base-0/rootfs')
  for (const name of ['base-1', 'criu-4.2.1-x', '/', '/srv/old/base-0/rootfs']) assert.ok(isImageReference(name), name)
  const paths = ['', '.', '..', '../base-1', 'base-1/..', 'a/b', '/srv/../etc', '/srv//x']
  const hostile = [...paths, '-x', 'x\n', 'x'.repeat(65), 1, null]
  for (const name of hostile) assert.ok(!isImageReference(name), JSON.stringify(name))
  const record = sandboxRecord('sb-1', 1, { base: 'base-1', guest: 'guest-1' })
  assert.deepEqual(readSandboxRecord(textOf(record), 'sb-1'), { record })
  for (const change of [{ base: '../base-1' }, { guest: 'a/b' }, { agent: '..' }]) {
    const fault = `it lacks a valid ${Object.keys(change).join()}`
    assert.deepEqual(readSandboxRecord(textOf({ ...record, ...change }), 'sb-1'), { fault })
  }
  const memory = { ...memoryOf('x'), guest: 'guest-1' }
  const checkpoint = checkpointRecord('cp-1', { kind: 'full', base: 'base-1', memory })
  assert.deepEqual(readCheckpointRecord(textOf(checkpoint), 'cp-1'), { record: checkpoint })
  const climbing = { ...checkpoint, memory: { ...memory, guest: '../guest-1' } }
  assert.deepEqual(readCheckpointRecord(textOf(climbing), 'cp-1'), { fault: 'it lacks a valid guest' })
})

test('image folder: the error for a missing image names it and the folder', async (t) => {
  const { images, folder } = await makeImages(t)
  await folder.assertPresent({ base: 'base-1', guest: 'guest-1' })
  const missing = folder.assertPresent({ base: 'base-1', guest: 'guest-1', agent: 'agent-2' })
  const message = new RegExp(`image agent-2 is not in ${images}: `)
  await assert.rejects(missing, { code: 'unavailable', message })
  const gone = folder.assertPresent({ base: '/gone/rootfs', guest: 'guest-1' })
  await assert.rejects(gone, { code: 'unavailable', message: /no image at \/gone\/rootfs: / })
})
