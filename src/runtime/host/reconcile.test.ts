import assert from 'node:assert/strict'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { bootId } from '../process.ts'
import { reconcile } from './reconcile.ts'
import { readSandboxRecord, Records } from './records.ts'
import { makeCrashed } from './testing/crashed-host.ts'
import { checkpointRecord, memoryOf, sandboxRecord } from './testing/records.ts'

test('reconcile: waits for silent guests in parallel', async (t) => {
  const records = Array.from({ length: 10 }, (_, index) => sandboxRecord(`sb-${index}`, index))
  const { options } = await makeCrashed(t, records)
  let waiting = 0
  const allWait = Promise.withResolvers<void>()
  options.adopt = async ({ id }) => {
    if (id === 'sb-9') return true
    waiting += 1
    if (waiting === 9) allWait.resolve()
    await allWait.promise
    return false
  }
  assert.deepEqual((await reconcile(options)).running, ['sb-9'])
})

test('reconcile: a sandbox that cannot be stopped keeps record and disk, and delays no other', async (t) => {
  const ids = ['sb-known-stuck', 'sb-known', 'sb-stuck', 'sb-other']
  const { options, path, logged } = await makeCrashed(
    t,
    ids.map((id, slot) => sandboxRecord(id, slot)),
  )
  options.known.sandboxIds = ['sb-known-stuck', 'sb-known']
  options.known.abandoned.sandboxIds = ['sb-stuck', 'sb-other']
  options.stop = async (id) => {
    if (id.endsWith('stuck')) throw new Error('process 7 does not end')
  }
  const report = await reconcile(options)
  assert.deepEqual(report, {
    running: [],
    dormant: ['sb-known-stuck', 'sb-known'],
    forgotten: [],
    lost: [],
    lostCheckpoints: [],
    unreachable: [],
    lostVolumes: [],
    unknownVolumes: [],
    removed: ['sb-other'],
    quarantined: [],
    takenBack: [],
  })
  const kept = ['sb-known', 'sb-known-stuck', 'sb-stuck']
  assert.deepEqual((await readdir(path('sandboxes'))).toSorted(), kept)
  const files = await readdir(`${options.names.dataDir}/sandboxes`)
  assert.deepEqual(files.toSorted(), kept.map((id) => `${id}.json`).toSorted())
  assert.deepEqual(
    logged.map((message) => /sandbox (\S+) .* process 7 does not end/.exec(message)?.[1]),
    ['sb-known-stuck', 'sb-stuck'],
  )
})

test('reconcile: memory with a fence is dropped, other memory is kept', async (t) => {
  const { options, sandboxes, path } = await makeCrashed(t, [
    sandboxRecord('sb-ran', 1, { memory: memoryOf('sb-ran') }),
    sandboxRecord('sb-slept', 2, { memory: memoryOf('sb-slept') }),
    sandboxRecord('sb-put-back', 3, { memory: memoryOf('sb-put-back'), disk: 'sb-put-back.2' }),
  ])
  // The last of these is of a disk that the sandbox no longer has.
  for (const disk of ['sb-ran', 'sb-put-back.1']) await writeFile(path(`memory/resumed/${disk}`), '')
  const report = await reconcile(options)
  assert.deepEqual(report.dormant, ['sb-ran', 'sb-slept', 'sb-put-back'])
  const kept = sandboxes.all().flatMap(({ id, memory }) => (memory === undefined ? [] : id))
  assert.deepEqual(kept.toSorted(), ['sb-put-back', 'sb-slept'])
  assert.deepEqual(await readdir(path('memory/resumed')), [])
  const later = new Records(`${options.names.dataDir}/sandboxes`, readSandboxRecord)
  await later.load()
  assert.equal(later.get('sb-ran')?.memory, undefined)
})

test('reconcile: memory that another boot was restoring or had not flushed is dropped, that of this boot is kept', async (t) => {
  const other = 'another boot'
  const { bytes: _, ...dumped } = memoryOf('sb-dumped', { unflushed: other })
  const memories = [
    ['sb-begun', { resuming: bootId() }],
    ['sb-begun-before', { resuming: other }],
    ['sb-unflushed', { unflushed: bootId() }],
    ['sb-unflushed-before', { unflushed: other }],
    ['sb-of-earlier-version', {}],
    ['sb-ran-in-this-boot', { resuming: bootId() }],
  ] as const
  const records = [
    ...memories.map(([id, more], slot) => sandboxRecord(id, slot, { memory: memoryOf(id, more) })),
    sandboxRecord('sb-dumped', 7, { memory: dumped }),
  ]
  const full = (id: string, unflushed: string) =>
    checkpointRecord(id, { kind: 'full', memory: { ...memoryOf(id), guest: '/', unflushed } })
  const checkpoints = [full('cp-kept', bootId()), full('cp-cut', other)]
  const { options, sandboxes, path, logged } = await makeCrashed(t, records, checkpoints)
  // Its statistics have reached the disk, so that it looks like a complete dump.
  await writeFile(path(`${dumped.folder}/stats-dump`), '')
  await writeFile(path('memory/resumed/sb-ran-in-this-boot'), '')
  const report = await reconcile(options)
  assert.equal(report.dormant.length, records.length)
  const dropped = ['sb-begun-before', 'sb-dumped', 'sb-ran-in-this-boot', 'sb-unflushed-before']
  assert.deepEqual(report.forgotten.toSorted(), dropped)
  const kept = sandboxes.all().flatMap(({ id, memory }) => (memory === undefined ? [] : id))
  assert.deepEqual(kept.toSorted(), ['sb-begun', 'sb-of-earlier-version', 'sb-unflushed'])
  assert.equal(sandboxes.get('sb-begun')?.memory?.resuming, undefined, 'it may be tried again in another boot')
  assert.deepEqual(
    logged.map((message) => /the memory of sandbox (\S+) is dropped/.exec(message)?.[1] ?? message).toSorted(),
    dropped,
  )
  assert.deepEqual(report.lostCheckpoints, ['cp-cut'])
})

test('reconcile: a left disk that cannot be removed stops neither the start nor other removals', async (t) => {
  const { options, pool, path, logged } = await makeCrashed(t, [])
  for (const disk of ['sb-stuck', 'sb-other']) await mkdir(path(`sandboxes/${disk}`))
  options.known.abandoned.sandboxIds = ['sb-stuck', 'sb-other']
  const { remove } = pool
  pool.remove = async (relative) => {
    if (relative === 'sandboxes/sb-stuck') throw new Error('took too long')
    await remove(relative)
  }
  await reconcile(options)
  assert.deepEqual(await readdir(path('sandboxes')), ['sb-stuck'])
  assert.match(logged.join('\n'), /sb-stuck .*took too long/)
})
