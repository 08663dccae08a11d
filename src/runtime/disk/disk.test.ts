import assert from 'node:assert/strict'
import { mkdtemp, rm, statfs, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { refuses } from '../../lib/testing/refuses.ts'
import { run } from '../command.ts'
import { hostTool } from '../host/testing/host-tool.ts'
import { DiskPool } from './index.ts'

const gib = 1024 ** 3

let folder: string
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'atoll-disk-'))
})
after(() => rm(folder, { recursive: true }))

function pool(bytes: number) {
  return new DiskPool({ hostd: hostTool, imageFile: join(folder, 'pool.img'), mountDir: join(folder, 'pool'), bytes })
}

/** Opens the pool, tells how large its file system is, and closes it. */
async function sizeOf(opened: DiskPool): Promise<number> {
  await opened.open()
  try {
    const { blocks, bsize } = await statfs(opened.path(''))
    return blocks * bsize
  } finally {
    await opened.close()
    // The kernel lets go of the file a little later; a mount before that would get the same loop device, of the old size.
    while ((await run(['losetup', '--associated', join(folder, 'pool.img')])) !== '') await sleep(10)
  }
}

test('pool: grows to its size, also after a crash between its file and its file system', async () => {
  assert.equal(await sizeOf(pool(gib)), gib)
  await truncate(join(folder, 'pool.img'), 2 * gib)
  assert.equal(await sizeOf(pool(2 * gib)), 2 * gib)
  assert.equal(await sizeOf(pool(3 * gib)), 3 * gib)
  assert.equal(await sizeOf(pool(gib)), 3 * gib)
})

test('pool: one of another format is refused, and what is no pool is told by the mount', async () => {
  const file = join(folder, 'other.img')
  const other = new DiskPool({ hostd: hostTool, imageFile: file, mountDir: join(folder, 'other') })
  for (const [found, words] of [
    ['atoll', /has the format 'atoll' of a version of Atoll before 0\.1\.0.*: move the data directory away/],
    ['atoll 99', /'atoll 99' of another version of Atoll/],
  ] as const) {
    await writeFile(file, '')
    await truncate(file, gib / 4)
    await run(['mkfs.btrfs', '--quiet', '--force', '--label', found, file])
    await refuses(other.open(), 'unavailable', words)
  }
  await writeFile(file, 'no pool')
  await refuses(other.open(), 'unavailable', /the disk pool cannot be opened/)
})

test('pool: a disk has a size though a flush runs into the timeout', async (t) => {
  const path = process.env['PATH']
  t.after(() => {
    process.env['PATH'] = path
  })
  const script = '#!/bin/sh\n[ "$1" = qgroup ] || exit 1\necho "0/257 4096 4096"\n'
  await writeFile(join(folder, 'btrfs'), script, { mode: 0o755 })
  process.env['PATH'] = `${folder}:${path}`
  assert.equal(await pool(gib).referencedBytes('sandboxes/sb-1', true), 4096)
})
