import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { flushMemory } from './fence.ts'
import { readCheckpointRecord, readSandboxRecord, Records, type SandboxRecord, type SavedMemory } from './records.ts'
import { checkpointRecord, memoryOf, sandboxRecord } from './testing/records.ts'

const memory = memoryOf('a', { unflushed: 'this boot' })
const sandbox = (id: string, saved: SavedMemory = memory): SandboxRecord => sandboxRecord(id, 1, { memory: saved })
const checkpoint = checkpointRecord('cp-1', { kind: 'full', memory: { ...memory, guest: '/' } })

async function makeHost(t: TestContext, onFlush: () => Promise<void>) {
  const folder = await temporaryFolder(t)
  const load = async () => {
    const sandboxes = new Records(`${folder}/sandboxes`, readSandboxRecord)
    const checkpoints = new Records(`${folder}/checkpoints`, readCheckpointRecord)
    for (const records of [sandboxes, checkpoints]) await records.load()
    return { sandboxes, checkpoints }
  }
  const inForce = await load()
  /** Ids of those that the files say are not on the disk. */
  const unflushed = async () => {
    const { sandboxes, checkpoints } = await load()
    const all = [...sandboxes.all(), ...checkpoints.all()]
    return all.filter((record) => record.memory?.unflushed !== undefined).map(({ id }) => id)
  }
  return { ...inForce, flush: () => flushMemory({ flush: onFlush }, inForce), unflushed }
}

test('flush: memory saved during a flush gets another one', async (t) => {
  let flushes = 0
  const seen: string[][] = []
  const host = await makeHost(t, async () => {
    flushes += 1
    if (flushes === 1) await host.sandboxes.put(sandbox('sb-late'))
    seen.push((await host.unflushed()).toSorted())
  })
  await host.sandboxes.put(sandbox('sb-1'))
  await host.checkpoints.put(checkpoint)
  await host.flush()
  assert.deepEqual(seen, [['cp-1', 'sb-1', 'sb-late'], ['sb-late']])
  assert.deepEqual(await host.unflushed(), [])
  await host.flush()
  assert.equal(flushes, 2, 'where nothing waits nothing is flushed')
})

test('flush: memory that is being written or restored waits for another one', async (t) => {
  const host = await makeHost(t, async () => assert.fail('nothing is to be flushed'))
  const { bytes: _, ...written } = memory
  await host.sandboxes.put(sandbox('sb-1', written))
  await host.sandboxes.put(sandbox('sb-2', { ...memory, resuming: 'this boot' }))
  await host.flush()
  assert.equal((await host.unflushed()).length, 2)
})

test('flush: a failure leaves everything unflushed', async (t) => {
  const host = await makeHost(t, () => Promise.reject(new Error('input/output error')))
  await host.sandboxes.put(sandbox('sb-1'))
  await assert.rejects(host.flush(), /input\/output/)
  assert.deepEqual(await host.unflushed(), ['sb-1'])
})

test('flush: records that were removed or saved anew meanwhile are not touched', async (t) => {
  const newer = { ...memory, folder: 'memory/saved/b' }
  let flushes = 0
  const host = await makeHost(t, async () => {
    flushes += 1
    if (flushes > 1) return
    await host.checkpoints.remove('cp-1')
    await host.sandboxes.put(sandbox('sb-1', newer))
    assert.deepEqual(await host.unflushed(), ['sb-1', 'sb-2'])
    // What waits to be written decides what its record says.
    void host.sandboxes.put({ ...sandbox('sb-2', newer), disk: 'sb-2.1' })
  })
  for (const id of ['sb-1', 'sb-2']) await host.sandboxes.put(sandbox(id))
  await host.checkpoints.put(checkpoint)
  await host.flush()
  assert.equal(flushes, 2)
  assert.equal(host.checkpoints.get('cp-1'), undefined)
  assert.deepEqual(host.sandboxes.get('sb-1')?.memory?.folder, newer.folder)
  assert.equal(host.sandboxes.get('sb-2')?.disk, 'sb-2.1')
  assert.deepEqual(await host.unflushed(), [])
})
