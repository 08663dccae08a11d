import assert from 'node:assert/strict'
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'
import { Inventory } from './inventory.ts'
import { quarantinedIn } from './quarantine.ts'
import { reconcile } from './reconcile.ts'
import { assertPoolIsThere } from './strangers.ts'
import type { SandboxRecord } from './records.ts'
import { makeCrashed } from './testing/crashed-host.ts'
import { checkpointRecord, memoryOf, sandboxRecord } from './testing/records.ts'

const sandboxOf = (number: number, layers: string[] = []) =>
  sandboxRecord(`sb-${number}`, number, { layers: layers.flatMap((id) => checkpointRecord(id).layers) })

const manySandboxes = Array.from({ length: 20 }, (_, index) => sandboxOf(index + 1))

/** A crashed host and starts over it, each with an inventory of its own, as of a new server. */
async function makeHost(t: TestContext, sandboxes: readonly SandboxRecord[], checkpointIds: string[] = []) {
  const checkpoints = checkpointIds.map((id) => checkpointRecord(id))
  const { options, path } = await makeCrashed(t, [...manySandboxes, ...sandboxes], checkpoints)
  const { dataDir } = options.names
  const allIds = options.known.sandboxIds
  const host = {
    inventory: options.inventory,
    stopped: [] as string[],
    path,
    dataDir,
    allIds,
    /** All but those that `makeHost` was given. */
    manyIds: allIds.slice(0, manySandboxes.length),
    start: async (known: Partial<typeof options.known> = {}) => {
      const inventory = new Inventory({ ...options, slots: 100 })
      host.inventory = inventory
      const stop = async (id: string) => void host.stopped.push(id)
      const report = await reconcile({ ...options, known: { ...options.known, ...known }, inventory, stop })
      await inventory.removeAllUnused()
      return report
    },
    disks: async () => (await readdir(path('sandboxes'))).toSorted(),
    /** Which of these disks there are. */
    disksOf: async (...names: string[]) => (await host.disks()).filter((name) => names.includes(name)),
    layers: async () => (await readdir(path('layers'))).toSorted(),
    quarantined: async () => (await quarantinedIn(dataDir)).map(({ kind, reason, id }) => `${kind} ${reason} ${id}`),
  }
  return host
}

test('quarantine: open with an empty database is refused before anything is stopped or removed', async (t) => {
  const host = await makeHost(t, [], ['cp-1'])
  const before = [await host.disks(), await host.layers(), await readdir(`${host.dataDir}/sandboxes`)]
  const nothing = { sandboxIds: [], checkpointIds: [] }
  const words =
    /of 21 sandboxes and checkpoints .* 21 that the database does not know \(sb-.*16 more\).*ATOLL_ALLOW_QUARANTINE=1/
  await assert.rejects(host.start(nothing), { code: 'unavailable', message: words })
  assert.deepEqual([await host.disks(), await host.layers(), await readdir(`${host.dataDir}/sandboxes`)], before)
  assert.deepEqual([host.stopped, await host.quarantined()], [[], []])
  assert.equal((await host.start()).dormant.length, 20)
})

test('quarantine: unknown records keep disk and layers, and are taken back once known', async (t) => {
  const forked = sandboxOf(21, ['cp-1', 'cp-deleted'])
  const host = await makeHost(t, [forked], ['cp-1', 'cp-2'])
  await mkdir(host.path('layers/cp-deleted/upper'), { recursive: true })
  const partly = { sandboxIds: host.manyIds, checkpointIds: ['cp-2'] }
  const report = await host.start(partly)
  const moved = [
    { kind: 'sandbox', id: 'sb-21', reason: 'unknown' },
    { kind: 'checkpoint', id: 'cp-1', reason: 'unknown' },
  ]
  assert.deepEqual([report.quarantined, report.removed, report.dormant.length], [moved, [], 20])
  assert.ok(host.stopped.includes('sb-21'))
  assert.deepEqual(await host.disksOf('sb-21'), ['sb-21'])
  assert.deepEqual(await host.layers(), ['cp-1', 'cp-2', 'cp-deleted'])
  const claims = Array.from({ length: 10 }, () => host.inventory.claim())
  assert.ok(claims.every(({ slot, rangeStart }) => slot !== forked.slot && rangeStart !== forked.rangeStart))
  await assert.rejects(
    host.inventory.addCheckpoint('cp-1', () => assert.fail()),
    /cp-1 is in quarantine/,
  )

  assert.deepEqual((await host.start(partly)).quarantined, [], 'it is moved once')
  const right = await host.start()
  assert.deepEqual(right.takenBack.toSorted(), ['cp-1', 'sb-21'])
  assert.deepEqual([right.dormant.length, right.lost, right.lostCheckpoints], [21, [], []])
  assert.deepEqual(await host.quarantined(), [])
})

test('reconcile: abandoned sandboxes and checkpoints are removed, whatever their records hold', async (t) => {
  const host = await makeHost(t, [], ['cp-1'])
  await writeFile(`${host.dataDir}/sandboxes/sb-1.json`, '')
  const abandoned = { sandboxIds: ['sb-1', 'sb-2'], checkpointIds: ['cp-1'] }
  const report = await host.start({ sandboxIds: host.allIds.slice(2), checkpointIds: [], abandoned })
  assert.deepEqual([report.quarantined, report.dormant.length], [[], 18])
  assert.deepEqual([await host.disksOf('sb-1', 'sb-2'), await host.layers()], [[], []])
  assert.equal((await readdir(`${host.dataDir}/sandboxes`)).length, 18)
})

test('quarantine: an unreadable record keeps its disk and all layers, and is taken back when repaired', async (t) => {
  const forked = sandboxOf(21, ['cp-deleted'])
  const host = await makeHost(t, [forked])
  await mkdir(host.path('layers/cp-deleted/upper'), { recursive: true })
  await mkdir(host.path('memory/saved/sb-21.abcd'))
  const file = `${host.dataDir}/sandboxes/sb-21.json`
  const text = await readFile(file, 'utf8')
  await writeFile(file, text.slice(0, 20))
  const report = await host.start()
  assert.deepEqual(report.lost, ['sb-21'])
  const fault = 'it is damaged'
  assert.deepEqual(report.quarantined, [{ kind: 'sandbox', id: 'sb-21', reason: 'unreadable', fault }])
  const left = async () => [
    ...(await host.disksOf('sb-21')),
    ...(await host.layers()),
    ...(await readdir(host.path('memory/saved'))),
  ]
  assert.deepEqual(await left(), ['sb-21', 'cp-deleted', 'sb-21.abcd'])
  assert.deepEqual(await host.inventory.freshDisk('sb-21'), { disk: 'sb-21.1' })

  assert.deepEqual((await host.start()).takenBack, [])
  assert.deepEqual(await left(), ['sb-21', 'cp-deleted', 'sb-21.abcd'])
  const [item] = await quarantinedIn(host.dataDir)
  assert.deepEqual([item?.record, item?.fault], [undefined, fault])
  await writeFile(item?.file ?? '', text)
  const mended = await host.start()
  assert.deepEqual([mended.takenBack, mended.dormant.length], [['sb-21'], 21])
})

test('quarantine: records without a format keep their disks, and the refusal of many says why they cannot be read', async (t) => {
  const host = await makeHost(t, [])
  const strip = async (id: string) => {
    const file = `${host.dataDir}/sandboxes/${id}.json`
    const { format: _, ...record } = JSON.parse(await readFile(file, 'utf8')) as { format: number }
    await writeFile(file, JSON.stringify(record))
  }
  await strip('sb-1')
  const [one] = (await host.start()).quarantined
  assert.match(one?.fault ?? '', /^it has no format: a version of Atoll before 0\.1\.0 has written it$/)
  assert.deepEqual(await host.disksOf('sb-1'), ['sb-1'])
  for (const id of host.manyIds.slice(1)) await strip(id)
  const words = /\d+ whose record cannot be read \(it has no format: a version of Atoll before 0\.1\.0 has written it\)/
  await assert.rejects(host.start(), { code: 'unavailable', message: words })
})

test('quarantine: a disk or layer without a record is kept', async (t) => {
  const host = await makeHost(t, [], ['cp-1'])
  await rm(`${host.dataDir}/sandboxes/sb-1.json`)
  await rm(`${host.dataDir}/checkpoints/cp-1.json`)
  await mkdir(host.path('sandboxes/sb-2.1'))
  const report = await host.start()
  assert.deepEqual([report.lost, report.lostCheckpoints], [['sb-1'], ['cp-1']])
  assert.deepEqual(await host.quarantined(), ['checkpoint unrecorded cp-1', 'sandbox unrecorded sb-1'])
  assert.deepEqual([await host.disksOf('sb-1', 'sb-2.1'), await host.layers()], [['sb-1'], ['cp-1']])
})

test('quarantine: a known sandbox without its disk is taken back with the disk', async (t) => {
  const host = await makeHost(t, [], ['cp-1'])
  await rename(host.path('sandboxes'), host.path('elsewhere'))
  await mkdir(host.path('sandboxes'))
  const without = await host.start()
  assert.deepEqual([without.lost.length, without.lostCheckpoints], [20, []])
  await rm(host.path('sandboxes'), { recursive: true })
  await rename(host.path('elsewhere'), host.path('sandboxes'))
  const again = await host.start()
  assert.deepEqual([again.takenBack.length, again.dormant.length], [20, 20])
})

test('pool: a missing one is refused when records name disks in it, and made otherwise', async (t) => {
  const empty = await makeCrashed(t, [])
  await assertPoolIsThere(empty.options.names.dataDir)
  const host = await makeHost(t, [], ['cp-1'])
  const gone = /pool\.img is gone, in which the files of 21 sandboxes and checkpoints are: put it back/
  await assert.rejects(assertPoolIsThere(host.dataDir), { code: 'unavailable', message: gone })
  await writeFile(`${host.dataDir}/pool.img`, '')
  await assertPoolIsThere(host.dataDir)
})

test('fence: that of memory in quarantine stays', async (t) => {
  const host = await makeHost(t, [sandboxRecord('sb-21', 21, { memory: memoryOf('sb-21.a') })])
  await writeFile(host.path('memory/resumed/sb-21'), '')
  await host.start({ sandboxIds: host.manyIds })
  assert.deepEqual(await readdir(host.path('memory/saved')), ['sb-21.a'])
  assert.deepEqual((await host.start()).takenBack, ['sb-21'])
  assert.equal(host.inventory.sandbox('sb-21').memory, undefined)
})

test('removeExpired: removes old items with all that only they reference', async (t) => {
  const strangers = [sandboxOf(21, ['cp-1', 'cp-2']), sandboxOf(22)]
  const host = await makeHost(t, strangers, ['cp-1'])
  await mkdir(host.path('layers/cp-2/upper'), { recursive: true })
  await host.start({ sandboxIds: host.manyIds })
  const expire = (keptMs?: number) => host.inventory.removeExpired(keptMs)
  for (const keptMs of [undefined, 3_600_000]) await expire(keptMs)
  assert.equal((await host.quarantined()).length, 2)
  await expire(0)
  assert.deepEqual(await host.quarantined(), [])
  assert.deepEqual(await host.disks(), manySandboxes.map(({ id }) => id).toSorted())
  assert.deepEqual(await host.layers(), ['cp-1'])
})

test('quarantine: the removal of an item keeps the disk of a new sandbox with its id', async (t) => {
  const host = await makeHost(t, [])
  await writeFile(`${host.dataDir}/sandboxes/sb-1.json`, '{')
  await host.start()
  await mkdir(host.path('sandboxes/sb-1.1'))
  await host.inventory.sandboxes.put(sandboxRecord('sb-1', 30, { disk: 'sb-1.1' }))
  const [item] = host.inventory.quarantine.items
  assert.ok(item)
  await assert.rejects(host.inventory.takeBack(item), /cannot be read/)
  await host.inventory.removeFromQuarantine(item)
  assert.deepEqual(await host.disksOf('sb-1', 'sb-1.1'), ['sb-1.1'])
})

test('quarantine: an item whose slot is taken stays, and the error names the other sandbox', async (t) => {
  const host = await makeHost(t, [sandboxOf(21)])
  await host.start({ sandboxIds: host.manyIds })
  await host.inventory.sandboxes.put({ ...sandboxOf(30), slot: 21 })
  const [item] = host.inventory.quarantine.items
  assert.ok(item)
  await assert.rejects(host.inventory.takeBack(item), /sb-30 has the address/)
  assert.deepEqual(await host.quarantined(), ['sandbox unknown sb-21'])
})
