/** Compaction of pools that data has filled once: all space is allocated to data, half of it is unused, and metadata needs room. */
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../lib/testing/eventually.ts'
import { run } from '../command.ts'
import { hostTool } from '../host/testing/host-tool.ts'
import { readNow } from '../read-now.ts'
import { Compaction } from './compaction.ts'
import { DiskPool } from './index.ts'

const mebibyte = 1024 ** 2
const poolBytes = 1024 * mebibyte

interface World {
  pool: DiskPool
  compaction: Compaction
  said: string[]
}

/** A pool that was filled with files of 1 MiB, of which every second was removed. */
async function halfEmpty(t: TestContext): Promise<World> {
  const folder = await mkdtemp(join(tmpdir(), 'atoll-compaction-'))
  const [imageFile, mountDir] = [join(folder, 'pool.img'), join(folder, 'pool')]
  const pool = new DiskPool({ hostd: hostTool, imageFile, mountDir, bytes: poolBytes })
  await pool.open()
  const said: string[] = []
  const options = {
    run,
    mountDir,
    imageFile,
    fileSystem: pool.fileSystem,
    log: (message: string) => void said.push(message),
  }
  const compaction = new Compaction({ ...options, firstPauseMs: 0 })
  t.after(async () => {
    await compaction.close()
    await pool.close()
    await rm(folder, { recursive: true })
  })
  await pool.createSubvolume('sandboxes/one')
  const files: string[] = []
  // A refusal may come before the last chunk is set aside, while the kernel is busy with the one before.
  await eventually(async () => {
    await full(async () => {
      const file = pool.path(`sandboxes/one/${files.length}`)
      await writeFile(file, Buffer.alloc(mebibyte), { flush: true })
      files.push(file)
    })
    assert.ok((await freeBytes(pool)) < 2 * mebibyte, 'all is set aside')
  })
  await Promise.all(files.filter((_, index) => index % 2 === 0).map((file) => rm(file)))
  await pool.flush()
  return { pool, compaction, said }
}

/** Repeats until there is no space. */
async function full(work: () => Promise<void>): Promise<void> {
  try {
    for (;;) await work()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
  }
}

/** Bytes of the device that no chunk has. */
async function freeBytes(pool: DiskPool): Promise<number> {
  const shown = await run(['btrfs', 'filesystem', 'usage', '--raw', pool.path('')])
  return Number(/Device unallocated:\s+(\d+)/.exec(shown)?.[1])
}

async function deviceBytes(pool: DiskPool): Promise<number> {
  const shown = await run(['btrfs', 'filesystem', 'usage', '--raw', pool.path('')])
  return Number(/Device size:\s+(\d+)/.exec(shown)?.[1])
}

/** Files so small that they are metadata. Throws ENOSPC. */
async function writeSmall(pool: DiskPool, name: string, count: number): Promise<void> {
  const folder = pool.path(`sandboxes/one/${name}`)
  await mkdir(folder)
  for (let index = 0; index < count; index += 100) {
    const some = Array.from({ length: 100 }, (_, more) => writeFile(`${folder}/${index + more}`, Buffer.alloc(2000)))
    for (const { reason } of (await Promise.allSettled(some)) as { reason?: unknown }[]) if (reason) throw reason
  }
}

const dataBalance = 'the disk pool was balanced (-dusage=75,limit=2)'

/** Calls `tend`, as the space watch does, until data was balanced. */
async function balanced({ pool, compaction, said }: World): Promise<void> {
  while (said.length === 0 || said.at(-1) === 'the disk pool was balanced (-musage=100)') {
    compaction.tend(await freeBytes(pool), poolBytes, true)
    await sleep(20)
  }
}

test('compaction: half-empty chunks of data make room for metadata', async (t) => {
  const world = await halfEmpty(t)
  const { pool, said } = world
  await balanced(world)
  // Where a chunk happened to be empty, the kernel has given it back, and the first balance was one of metadata.
  assert.equal(said.at(-1), dataBalance)
  assert.ok((await freeBytes(pool)) >= 64 * mebibyte)
})

test('compaction: metadata that is full already gets room too, and the pool keeps its size', async (t) => {
  const world = await halfEmpty(t)
  const { pool, said } = world
  let folders = 0
  await full(() => writeSmall(pool, `before-${folders++}`, 5000))
  await assert.rejects(writeSmall(pool, 'refused', 5000), { code: 'ENOSPC' })
  const mountDir = pool.path('')
  await assert.rejects(run(['btrfs', 'balance', 'start', '-dusage=75,limit=2', mountDir]), /No space left/)
  await balanced(world)
  assert.deepEqual(said, [dataBalance])
  await writeSmall(pool, 'after', 20_000)
  assert.equal(await deviceBytes(pool), poolBytes)
  await pool.createSubvolume('sandboxes/two')
  await pool.snapshot('sandboxes/one', 'layers/one')
  assert.equal(readNow(pool.path('sandboxes/one/1'))?.length, mebibyte)
  await run(['btrfs', 'scrub', 'start', '-B', mountDir])
})

test('compaction: one that was cut off does not keep the pool from being opened, and loses nothing', async (t) => {
  const { pool } = await halfEmpty(t)
  const work = () => readNow(`${pool.fileSystem}/exclusive_operation`)?.trim()
  // A fast disk may have moved everything before the pause; there is always something to move again.
  await eventually(async () => {
    await run(['btrfs', 'balance', 'start', '--background', '--full-balance', pool.path('')])
    await run(['btrfs', 'balance', 'pause', pool.path('')])
  })
  assert.equal(work(), 'balance paused')
  await pool.close()
  await pool.open()
  assert.equal(work(), 'none')
  assert.equal(await deviceBytes(pool), poolBytes)
  assert.equal(readNow(pool.path('sandboxes/one/1'))?.length, mebibyte)
  await run(['btrfs', 'scrub', 'start', '-B', pool.path('')])
})
