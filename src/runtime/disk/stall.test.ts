import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { Stall } from './stall.ts'

/** A folder like that of a btrfs in `/sys/fs/btrfs`, and a clock. */
async function watched(t: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), 'atoll-stall-'))
  t.after(() => rm(folder, { recursive: true }))
  await mkdir(join(folder, 'devices/loop0'), { recursive: true })
  let nowMs = 1000
  const stall = new Stall(folder, () => nowMs)
  return async (afterMs: number, { writes = 0, flushes = 0, inFlight = 0, commitMs = 0 }) => {
    nowMs += afterMs
    const fields = [5, 0, 40, 1, writes, 0, 80, 1, inFlight, 1, 1, 0, 0, 0, 0, flushes, 1]
    await writeFile(join(folder, 'devices/loop0/stat'), ` ${fields.join('  ')}\n`)
    await writeFile(join(folder, 'commit_stats'), `commits 3\ncur_commit_ms ${commitMs}\nlast_commit_ms 1\n`)
    return stall.look()
  }
}

test('stall: a disk that has requests and completes none stalls, until it completes one', async (t) => {
  const look = await watched(t)
  assert.equal(await look(0, { writes: 7, inFlight: 2 }), 0)
  assert.equal(await look(400, { writes: 7, inFlight: 3 }), 400)
  assert.equal(await look(600, { writes: 7, inFlight: 3 }), 1000)
  assert.equal(await look(1, { writes: 8, inFlight: 2 }), 0)
  assert.equal(await look(50, { writes: 8, inFlight: 2 }), 50)
})

test('stall: a disk without requests does not stall, however long it has completed nothing', async (t) => {
  const look = await watched(t)
  assert.equal(await look(0, { writes: 7 }), 0)
  assert.equal(await look(90_000, { writes: 7 }), 0)
  assert.equal(await look(90_000, { writes: 7, inFlight: 1 }), 0)
  assert.equal(await look(10, { writes: 7, inFlight: 1 }), 10)
})

test('stall: a commit that waits for a flush alone is a request, and a flush is an answer', async (t) => {
  const look = await watched(t)
  assert.equal(await look(0, { flushes: 1, commitMs: 5 }), 0)
  assert.equal(await look(700, { flushes: 1, commitMs: 705 }), 700)
  assert.equal(await look(10, { flushes: 2, commitMs: 715 }), 0)
})
