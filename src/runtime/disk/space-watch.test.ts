/** Each pool is on a file system of the test's own, which the test fills from outside of the pool. */
import assert from 'node:assert/strict'
import { rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { SmallDisk } from '../../../test/support/small-disk.ts'
import { run } from '../command.ts'
import { hostTool } from '../host/testing/host-tool.ts'
import { DiskPool } from './index.ts'
import { SpaceWatch } from './space-watch.ts'
import { eventually } from '../../lib/testing/eventually.ts'

const mebibyte = 1024 ** 2

interface World {
  pool: DiskPool
  watch: SpaceWatch
  imageFile: string
  /** What the watch has said and done, in order. */
  told: string[]
}

/** A pool below `folder` that is watched. */
async function watched(t: TestContext, folder: string, megabytes: number): Promise<World> {
  const [imageFile, mountDir] = [join(folder, 'pool.img'), join(folder, 'pool')]
  const told: string[] = []
  const pool = new DiskPool({ hostd: hostTool, imageFile, mountDir, bytes: megabytes * mebibyte })
  await pool.open()
  t.after(() => pool.close())
  const watch = new SpaceWatch({ hostd: hostTool, imageFile, mountDir, log: (message) => told.push(message) })
  const freeze = async () => void (told.at(-1) === 'freeze' || told.push('freeze'))
  await watch.open(pool.fileSystem, { freeze, thaw: () => told.push('thaw') })
  t.after(() => watch.close())
  return { pool, watch, imageFile, told }
}

/** Writes megabytes that are on the disk when it returns. */
async function write(path: string, megabytes: number): Promise<void> {
  await run(['dd', 'if=/dev/zero', `of=${path}`, 'bs=1M', `count=${megabytes}`, 'conv=fsync'], { timeoutMs: 120_000 })
}

test('space: the reserve takes writes that the file system below has no room for, and sandboxes are frozen before its end', async (t) => {
  await using disk = await SmallDisk.make(3072)
  const { pool, watch, told } = await watched(t, disk.dataDir, 2048)
  assert.equal(watch.report.state, 'ok')
  watch.assertTakesData()
  await disk.fill(20)
  await eventually(() => watch.report.state === 'low')
  assert.throws(() => watch.assertTakesData(), { code: 'no_capacity' })
  watch.assertRuns()
  // Far more than is left below: a chunk and a half.
  await write(pool.path('one'), 200)
  await write(pool.path('two'), 100)
  await eventually(() => watch.report.state === 'full')
  assert.throws(() => watch.assertRuns(), { code: 'no_capacity' })
  await eventually(() => told.includes('freeze'))
  await disk.empty()
  await eventually(() => watch.report.state === 'ok')
  watch.assertTakesData()
  assert.equal(told.at(-2), 'the disk is ok')
  assert.equal(told.at(-1), 'thaw')
  assert.equal(watch.report.errors['write'], 0)
  await run(['btrfs', 'scrub', 'start', '-B', pool.path('')])
})

test('space: blocks of chunks that btrfs has given back go back to the file system below', async (t) => {
  await using disk = await SmallDisk.make(6144)
  const { pool, imageFile } = await watched(t, disk.dataDir, 4096)
  const used = async () => (await stat(imageFile)).blocks * 512
  await write(pool.path('large'), 2500)
  const before = await used()
  await rm(pool.path('large'))
  await pool.flush()
  await eventually(async () => (await used()) < before - 500 * mebibyte)
})

test('space: a pause of this process is no silence of the disk', async (t) => {
  await using disk = await SmallDisk.make(3072)
  const { watch } = await watched(t, disk.dataDir, 2048)
  const pausedUntil = performance.now() + 60_000
  t.mock.method(performance, 'now', () => pausedUntil)
  assert.equal(watch.report.state, 'ok')
})
