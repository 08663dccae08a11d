import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { readCheckpointRecord, Records, type CheckpointRecord } from './records.ts'
import { shareMemory } from './share-memory.ts'
import { checkpointRecord, memoryOf } from './testing/records.ts'

/** A full checkpoint of `sandboxId` on the disk. */
function full(id: string, sandboxId: string, more: Partial<NonNullable<CheckpointRecord['memory']>> = {}) {
  return checkpointRecord(id, { kind: 'full', sandboxId, memory: { ...memoryOf(id), guest: '/', ...more } })
}

async function makeHost(t: TestContext, run: () => Promise<string> = async () => '4096\n') {
  const folder = await temporaryFolder(t)
  const checkpoints = new Records(`${folder}/checkpoints`, readCheckpointRecord)
  await checkpoints.load()
  const calls: string[] = []
  const logged: string[] = []
  const runTool = async (request: { op: string; like: string; dir: string }) => {
    calls.push(`${request.op} ${request.like} ${request.dir}`.replaceAll(`${folder}/memory/saved/`, ''))
    return run()
  }
  const host = {
    hostd: { runTool },
    pool: { path: (relative: string) => `${folder}/${relative}` },
    inventory: { checkpoints },
    log: (message: string) => void logged.push(message),
  } as unknown as Parameters<typeof shareMemory>[0]
  const add = async (...records: CheckpointRecord[]) => {
    for (const record of records) {
      await checkpoints.put(record)
      if (record.memory !== undefined) await mkdir(`${folder}/${record.memory.folder}`, { recursive: true })
    }
  }
  return { host, checkpoints, add, calls, logged }
}

test('memory shares with the latest checkpoint of its sandbox that is on the disk, or with an ancestor', async (t) => {
  const { host, add, calls, checkpoints } = await makeHost(t)
  const { layers } = checkpointRecord('base')
  await add(full('base', 'sb-0'), full('other', 'sb-9'), {
    ...full('first', 'sb-1'),
    layers: [...full('first', '').layers, ...layers],
  })
  await shareMemory(host, 'first')
  await add(full('second', 'sb-1'), full('late', 'sb-1', { unflushed: 'this boot' }), full('third', 'sb-1'))
  await shareMemory(host, 'third')
  await add(full('fourth', 'sb-1'))
  assert.deepEqual(calls, ['share-pages base first', 'share-pages second third'])
  assert.equal(checkpoints.get('first')?.memory?.sharing, 1)
})

test('memory without a predecessor, and a checkpoint that is gone, are left alone', async (t) => {
  const { host, add, calls } = await makeHost(t)
  await add(checkpointRecord('disk', { sandboxId: 'sb-1' }), full('first', 'sb-1'), full('second', 'sb-2'))
  for (const id of ['disk', 'first', 'second', 'gone']) await shareMemory(host, id)
  assert.deepEqual(calls, [])
})

test('after sixteen that share space one stands for itself', async (t) => {
  const { host, add, calls, checkpoints } = await makeHost(t)
  for (let turn = 1; turn <= 18; turn += 1) {
    await add(full(`cp-${turn}`, 'sb-1'))
    await shareMemory(host, `cp-${turn}`)
  }
  assert.equal(calls.length, 16)
  assert.deepEqual(
    checkpoints.all().map(({ memory }) => memory?.sharing ?? 0),
    [...Array.from({ length: 16 }, (_, index) => index), 0, 1],
  )
})

test('where nothing is the same nothing is noted', async (t) => {
  const { host, add, checkpoints } = await makeHost(t, async () => '0\n')
  await add(full('first', 'sb-1'), full('second', 'sb-1'))
  await shareMemory(host, 'second')
  assert.equal(checkpoints.get('second')?.memory?.sharing, undefined)
})

test('a failure is logged, unless the memory has been removed or the server stops', async (t) => {
  const { host, add, logged } = await makeHost(t, () => Promise.reject(new Error('no space left')))
  await add(full('first', 'sb-1'), full('second', 'sb-1'))
  await shareMemory(host, 'second')
  assert.match(logged.join('\n'), /checkpoint second shares no space: .*no space left/)
  await shareMemory(host, 'second', AbortSignal.abort())
  await host.inventory.checkpoints.put(full('third', 'sb-1'))
  await shareMemory(host, 'third')
  assert.equal(logged.length, 1)
})
