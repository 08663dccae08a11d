import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { test } from 'node:test'
import { bootId } from '../process.ts'
import type { DiskPool } from '../disk/index.ts'
import type { Cgroups } from '../cgroups/index.ts'
import { Inventory } from './inventory.ts'
import { createRunc } from '../oci/runc.ts'
import { HostNames } from '../host-names.ts'
import { adoptAll, reconcile } from './reconcile.ts'
import { readSandboxRecord, Records, type CheckpointRecord, type SandboxRecord, type SavedMemory } from './records.ts'
import { makeCrashed } from './testing/crashed-host.ts'
import { hostTool } from './testing/host-tool.ts'

test('adoptAll: waits for silent guests in parallel', async () => {
  const ids = Array.from({ length: 10 }, (_, index) => `sb-${index}`)
  const liars = ids.slice(0, 9)
  let waiting = 0
  const everyLiar = Promise.withResolvers<void>()
  const adopted = await adoptAll(
    { has: async () => true },
    { get: (id) => ({ id, layers: [] }) as unknown as SandboxRecord },
    async ({ id }) => {
      if (!liars.includes(id)) return true
      waiting += 1
      if (waiting === liars.length) everyLiar.resolve()
      await everyLiar.promise
      return false
    },
    ids,
  )
  assert.deepEqual([...adopted], ['sb-9'])
})

test('reconcile: a sandbox that cannot be stopped keeps record and disk, and delays no other', async (t) => {
  const dataDir = await mkdtemp(`${tmpdir()}/atoll-reconcile-`)
  t.after(() => rm(dataDir, { recursive: true }))
  const names = new HostNames(dataDir)
  const sandboxesDir = `${dataDir}/run`
  for (const folder of [`${dataDir}/runc`, sandboxesDir]) await mkdir(folder)
  const written = new Records(`${dataDir}/sandboxes`, readSandboxRecord)
  await written.load()
  const ids = ['sb-known-stuck', 'sb-known', 'sb-stuck', 'sb-other']
  for (const [slot, id] of ids.entries()) {
    await written.put({ id, rangeStart: 1_000_000_000 + slot * 65_536, slot, base: '/', guest: '/', layers: [] })
  }
  const removedDisks: string[] = []
  const pool = {
    has: async () => true,
    list: async (folder: string) => (folder === 'sandboxes' ? ids : []),
    remove: async (path: string) => void removedDisks.push(path),
  }
  const said: string[] = []
  const log = (message: string) => void said.push(message)
  const abandoned = { sandboxIds: ['sb-stuck', 'sb-other'], checkpointIds: [] }
  const report = await reconcile({
    names: {
      ...{ sandboxesDir, runDir: sandboxesDir, dataDir },
      ...{ poolFile: names.poolFile, cgroupRoot: '/a' },
    } as unknown as HostNames,
    runtime: createRunc({ runDir: dataDir, dataDir, hostd: hostTool }),
    pool: pool as unknown as DiskPool,
    hostd: hostTool,
    cgroups: { children: async () => [], memberFiles: () => [] } as unknown as Cgroups,
    inventory: new Inventory({ names, hostd: hostTool, pool: pool as unknown as DiskPool, slots: 10, log }),
    mayQuarantineMany: false,
    known: { sandboxIds: ['sb-known-stuck', 'sb-known'], checkpointIds: [], abandoned },
    adopt: async () => false,
    stop: async (id) => {
      if (id.endsWith('stuck')) throw new Error('process 7 does not end')
    },
    log,
  })
  assert.deepEqual(report, {
    running: [],
    dormant: ['sb-known-stuck', 'sb-known'],
    forgotten: [],
    lost: [],
    lostCheckpoints: [],
    unreachable: [],
    removed: ['sb-other'],
    quarantined: [],
    takenBack: [],
  })
  assert.deepEqual(removedDisks, ['sandboxes/sb-other'])
  const kept = ['sb-known', 'sb-known-stuck', 'sb-stuck']
  assert.deepEqual((await readdir(`${dataDir}/sandboxes`)).toSorted(), kept.map((id) => `${id}.json`).toSorted())
  assert.deepEqual(
    said.map((message) => /sandbox (\S+) .* process 7 does not end/.exec(message)?.[1]),
    ['sb-known-stuck', 'sb-stuck'],
  )
})

test('reconcile: memory with a fence is dropped, other memory is kept', async (t) => {
  const memoryOf = (id: string) => ({ folder: `memory/saved/${id}`, address: '', bytes: 5, keepConnections: true })
  const record = (id: string, slot: number, disk?: string): SandboxRecord => {
    const claims = { rangeStart: slot * 65_536, slot, ...(disk === undefined ? {} : { disk }) }
    return { id, ...claims, base: '/', guest: '/', layers: [], memory: memoryOf(id) }
  }
  const records = [record('sb-ran', 1), record('sb-slept', 2), record('sb-put-back', 3, 'sb-put-back.2')]
  const { options, sandboxes, path } = await makeCrashed(t, records)
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
  const saved = (id: string) => ({ folder: `memory/saved/${id}`, address: '', bytes: 5, keepConnections: true })
  const record = (id: string, slot: number, fence: Partial<SavedMemory>): SandboxRecord => {
    return {
      id,
      rangeStart: slot * 65_536,
      slot,
      base: '/',
      guest: '/',
      layers: [],
      memory: { ...saved(id), ...fence },
    }
  }
  const other = 'another boot'
  const { bytes: _, ...dumped } = { ...saved('sb-dumped'), unflushed: other }
  const records = [
    record('sb-begun', 1, { resuming: bootId() }),
    record('sb-begun-before', 2, { resuming: other }),
    record('sb-unflushed', 3, { unflushed: bootId() }),
    record('sb-unflushed-before', 4, { unflushed: other }),
    record('sb-of-earlier-version', 5, {}),
    { ...record('sb-dumped', 6, {}), memory: dumped },
    record('sb-ran-in-this-boot', 7, { resuming: bootId() }),
  ]
  const checkpoint = (id: string, fence: Partial<SavedMemory>): CheckpointRecord => ({
    ...{
      id,
      kind: 'full',
      base: '/',
      layers: [],
      sizeBytes: 5,
      memory: { ...saved(id), bytes: 5, guest: '/', ...fence },
    },
  })
  const checkpoints = [checkpoint('cp-kept', { unflushed: bootId() }), checkpoint('cp-cut', { unflushed: other })]
  const { options, sandboxes, path, said } = await makeCrashed(t, records, checkpoints)
  for (const { memory } of checkpoints) {
    await mkdir(path(memory?.folder ?? ''), { recursive: true })
    await writeFile(path(`${memory?.folder}/pages-1.img`), 'x'.repeat(5))
  }
  // Its statistics have reached the disk, so that it looks like a dump that came to its end.
  await writeFile(path(`${dumped.folder}/stats-dump`), '')
  await writeFile(path('memory/resumed/sb-ran-in-this-boot'), '')
  const report = await reconcile(options)
  assert.equal(report.dormant.length, records.length)
  const given = ['sb-begun-before', 'sb-dumped', 'sb-ran-in-this-boot', 'sb-unflushed-before']
  assert.deepEqual(report.forgotten.toSorted(), given)
  const kept = sandboxes.all().flatMap(({ id, memory }) => (memory === undefined ? [] : id))
  assert.deepEqual(kept.toSorted(), ['sb-begun', 'sb-of-earlier-version', 'sb-unflushed'])
  assert.equal(sandboxes.get('sb-begun')?.memory?.resuming, undefined, 'it may be tried again in another boot')
  assert.deepEqual(
    said.map((message) => /the memory of sandbox (\S+) is given up/.exec(message)?.[1] ?? message).toSorted(),
    given,
  )
  assert.deepEqual(report.lostCheckpoints, ['cp-cut'])
})

test('reconcile: a left disk that cannot be removed stops neither the start nor other removals', async (t) => {
  const { options, pool, path, said } = await makeCrashed(t, [])
  for (const disk of ['sb-stuck', 'sb-other']) await mkdir(path(`sandboxes/${disk}`))
  options.known.abandoned.sandboxIds = ['sb-stuck', 'sb-other']
  const { remove } = pool
  pool.remove = async (relative) => {
    if (relative === 'sandboxes/sb-stuck') throw new Error('took too long')
    await remove(relative)
  }
  await reconcile(options)
  assert.deepEqual(await readdir(path('sandboxes')), ['sb-stuck'])
  assert.match(said.join('\n'), /sb-stuck .*took too long/)
})
