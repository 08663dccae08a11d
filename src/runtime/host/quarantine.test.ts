import assert from 'node:assert/strict'
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { Inventory } from './inventory.ts'
import { quarantinedIn } from './quarantine.ts'
import { reconcile } from './reconcile.ts'
import { assertPoolIsThere } from './strangers.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'
import { makeCrashed } from './testing/crashed-host.ts'

function sandboxOf(number: number, layers: string[] = []): SandboxRecord {
  const rangeStart = 1_000_000_000 + number * 65_536
  const owned = layers.map((checkpointId) => ({ checkpointId, rangeStart }))
  return { id: `sb-${number}`, rangeStart, slot: number, base: '/', guest: '/', layers: owned }
}

function checkpointOf(id: string): CheckpointRecord {
  const layers = [{ checkpointId: id, rangeStart: 1_000_000_000 }]
  return { id, kind: 'disk_only', base: '/', layers, sizeBytes: 1 }
}

const manySandboxes = Array.from({ length: 20 }, (_, index) => sandboxOf(index + 1))

/** A crashed host and starts over it, each with an inventory of its own, as of a new server. */
async function makeHost(t: TestContext, sandboxes: readonly SandboxRecord[], checkpoints: CheckpointRecord[] = []) {
  const { options, path } = await makeCrashed(t, sandboxes, checkpoints)
  const { dataDir } = options.names
  const stopped: string[] = []
  let inventory = options.inventory
  const start = async (change: { mayQuarantineMany?: boolean; known?: Partial<typeof options.known> } = {}) => {
    inventory = new Inventory({ ...options, slots: 100 })
    const stop = async (id: string) => void stopped.push(id)
    const known = { ...options.known, ...change.known }
    const report = await reconcile({ ...options, ...change, known, inventory, stop })
    await inventory.removeAllUnused()
    return report
  }
  return {
    start,
    stopped,
    path,
    dataDir,
    allIds: options.known.sandboxIds,
    inventory: () => inventory,
    disks: async () => (await readdir(path('sandboxes'))).toSorted(),
    layers: async () => (await readdir(path('layers'))).toSorted(),
    quarantined: async () => (await quarantinedIn(dataDir)).map(({ kind, reason, id }) => `${kind} ${reason} ${id}`),
    isRefusal: (pattern: RegExp) => (error: unknown) =>
      isServiceError(error, 'unavailable') && pattern.test(error.message),
  }
}

test('quarantine: open with an empty database is refused before anything is stopped or removed', async (t) => {
  const host = await makeHost(t, manySandboxes, [checkpointOf('cp-1')])
  const before = [await host.disks(), await host.layers(), await readdir(`${host.dataDir}/sandboxes`)]
  const nothing = { sandboxIds: [], checkpointIds: [] }
  const words =
    /of 21 sandboxes and checkpoints .* 21 that the database does not know \(sb-.*16 more\).*ATOLL_ALLOW_QUARANTINE=1/
  await assert.rejects(host.start({ known: nothing }), host.isRefusal(words))
  assert.deepEqual([await host.disks(), await host.layers(), await readdir(`${host.dataDir}/sandboxes`)], before)
  assert.deepEqual([host.stopped, await host.quarantined()], [[], []])
  assert.equal((await host.start()).dormant.length, 20)
})

test('quarantine: unknown records keep disk and layers, and are taken back once known', async (t) => {
  const forked = sandboxOf(21, ['cp-1', 'cp-deleted'])
  const host = await makeHost(t, [...manySandboxes, forked], [checkpointOf('cp-1'), checkpointOf('cp-2')])
  await mkdir(host.path('layers/cp-deleted/upper'), { recursive: true })
  const partly = { sandboxIds: host.allIds.filter((id) => id !== 'sb-21'), checkpointIds: ['cp-2'] }
  const report = await host.start({ known: partly })
  const moved = [
    { kind: 'sandbox', id: 'sb-21', reason: 'unknown' },
    { kind: 'checkpoint', id: 'cp-1', reason: 'unknown' },
  ]
  assert.deepEqual([report.quarantined, report.removed, report.dormant.length], [moved, [], 20])
  assert.ok(host.stopped.includes('sb-21'))
  assert.ok((await host.disks()).includes('sb-21'))
  assert.deepEqual(await host.layers(), ['cp-1', 'cp-2', 'cp-deleted'])
  const claims = Array.from({ length: 10 }, () => host.inventory().claim())
  assert.ok(claims.every(({ slot, rangeStart }) => slot !== forked.slot && rangeStart !== forked.rangeStart))
  await assert.rejects(
    host.inventory().addCheckpoint('cp-1', () => assert.fail()),
    /cp-1 is in quarantine/,
  )

  assert.deepEqual((await host.start({ known: partly })).quarantined, [], 'it is moved once')
  const right = await host.start()
  assert.deepEqual(right.takenBack.toSorted(), ['cp-1', 'sb-21'])
  assert.deepEqual([right.dormant.length, right.lost, right.lostCheckpoints], [21, [], []])
  assert.deepEqual(await host.quarantined(), [])
})

test('reconcile: abandoned sandboxes and checkpoints are removed, whatever their records hold', async (t) => {
  const host = await makeHost(t, manySandboxes, [checkpointOf('cp-1')])
  await writeFile(`${host.dataDir}/sandboxes/sb-1.json`, '')
  const abandoned = { sandboxIds: ['sb-1', 'sb-2'], checkpointIds: ['cp-1'] }
  const report = await host.start({ known: { sandboxIds: host.allIds.slice(2), checkpointIds: [], abandoned } })
  assert.deepEqual([report.quarantined, report.dormant.length], [[], 18])
  const disks = await host.disks()
  assert.deepEqual([disks.includes('sb-1'), disks.includes('sb-2'), await host.layers()], [false, false, []])
  assert.equal((await readdir(`${host.dataDir}/sandboxes`)).length, 18)
})

test('quarantine: an unreadable record keeps its disk and all layers, and is taken back when repaired', async (t) => {
  const forked = sandboxOf(21, ['cp-deleted'])
  const host = await makeHost(t, [...manySandboxes, forked])
  await mkdir(host.path('layers/cp-deleted/upper'), { recursive: true })
  await mkdir(host.path('memory/saved/sb-21.abcd'))
  const file = `${host.dataDir}/sandboxes/sb-21.json`
  const text = await readFile(file, 'utf8')
  await writeFile(file, text.slice(0, 20))
  const report = await host.start()
  assert.deepEqual(report.lost, ['sb-21'])
  assert.deepEqual(report.quarantined, [{ kind: 'sandbox', id: 'sb-21', reason: 'unreadable' }])
  const left = async () => [
    (await host.disks()).includes('sb-21'),
    await host.layers(),
    await readdir(host.path('memory/saved')),
  ]
  assert.deepEqual(await left(), [true, ['cp-deleted'], ['sb-21.abcd']])
  assert.deepEqual(await host.inventory().freshDisk('sb-21'), { disk: 'sb-21.1' })

  assert.deepEqual((await host.start()).takenBack, [])
  assert.deepEqual(await left(), [true, ['cp-deleted'], ['sb-21.abcd']])
  const [item] = await quarantinedIn(host.dataDir)
  assert.equal(item?.record, undefined)
  await writeFile(item?.file ?? '', text)
  const mended = await host.start()
  assert.deepEqual([mended.takenBack, mended.dormant.length], [['sb-21'], 21])
})

test('quarantine: a disk or layer without a record is kept', async (t) => {
  const host = await makeHost(t, manySandboxes, [checkpointOf('cp-1')])
  await rm(`${host.dataDir}/sandboxes/sb-1.json`)
  await rm(`${host.dataDir}/checkpoints/cp-1.json`)
  await mkdir(host.path('sandboxes/sb-2.1'))
  const report = await host.start()
  assert.deepEqual([report.lost, report.lostCheckpoints], [['sb-1'], ['cp-1']])
  assert.deepEqual(await host.quarantined(), ['checkpoint unrecorded cp-1', 'sandbox unrecorded sb-1'])
  const disks = await host.disks()
  assert.deepEqual([disks.includes('sb-1'), disks.includes('sb-2.1'), await host.layers()], [true, false, ['cp-1']])
})

test('quarantine: a known sandbox without its disk is taken back with the disk', async (t) => {
  const host = await makeHost(t, manySandboxes, [checkpointOf('cp-1')])
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
  const empty = await makeHost(t, [])
  await assertPoolIsThere(empty.dataDir)
  const host = await makeHost(t, manySandboxes, [checkpointOf('cp-1')])
  const gone = /pool\.img is gone, in which the files of 21 sandboxes and checkpoints are: put it back/
  await assert.rejects(assertPoolIsThere(host.dataDir), host.isRefusal(gone))
  await writeFile(`${host.dataDir}/pool.img`, '')
  await assertPoolIsThere(host.dataDir)
})

test('fence: that of memory in quarantine stays', async (t) => {
  const memory = { folder: 'memory/saved/sb-21.a', address: '', bytes: 5, keepConnections: true }
  const host = await makeHost(t, [...manySandboxes, { ...sandboxOf(21), memory }])
  await writeFile(host.path('memory/resumed/sb-21'), '')
  await host.start({ known: { sandboxIds: host.allIds.slice(0, 20) } })
  assert.deepEqual(await readdir(host.path('memory/saved')), ['sb-21.a'])
  assert.deepEqual((await host.start()).takenBack, ['sb-21'])
  assert.equal(host.inventory().sandbox('sb-21').memory, undefined)
})

test('removeExpired: removes old items with all that only they reference', async (t) => {
  const strangers = [sandboxOf(21, ['cp-1', 'cp-2']), sandboxOf(22)]
  const host = await makeHost(t, [...manySandboxes, ...strangers], [checkpointOf('cp-1')])
  await mkdir(host.path('layers/cp-2/upper'), { recursive: true })
  await host.start({ known: { sandboxIds: host.allIds.slice(0, 20) } })
  const expire = (keptMs?: number) => host.inventory().removeExpired(keptMs)
  for (const keptMs of [undefined, 3_600_000]) await expire(keptMs)
  assert.equal((await host.quarantined()).length, 2)
  await expire(0)
  assert.deepEqual(await host.quarantined(), [])
  assert.deepEqual(await host.disks(), manySandboxes.map(({ id }) => id).toSorted())
  assert.deepEqual(await host.layers(), ['cp-1'])
})

test('quarantine: the removal of an item keeps the disk of a new sandbox with its id', async (t) => {
  const host = await makeHost(t, manySandboxes)
  await writeFile(`${host.dataDir}/sandboxes/sb-1.json`, '{')
  await host.start()
  await mkdir(host.path('sandboxes/sb-1.1'))
  const { disk } = { disk: 'sb-1.1' }
  await host.inventory().sandboxes.put({ ...sandboxOf(30), id: 'sb-1', disk })
  const [item] = host.inventory().quarantine.items
  assert.ok(item)
  await assert.rejects(host.inventory().takeBack(item), /cannot be read/)
  await host.inventory().removeFromQuarantine(item)
  const disks = await host.disks()
  assert.deepEqual([disks.includes('sb-1'), disks.includes('sb-1.1')], [false, true])
})

test('quarantine: an item whose slot is taken stays, and the error names the other sandbox', async (t) => {
  const host = await makeHost(t, [...manySandboxes, sandboxOf(21)])
  await host.start({ known: { sandboxIds: host.allIds.slice(0, 20) } })
  const { inventory } = host
  await inventory().sandboxes.put({ ...sandboxOf(30), slot: 21 })
  const [item] = inventory().quarantine.items
  assert.ok(item)
  await assert.rejects(inventory().takeBack(item), /sb-30 has the address/)
  assert.deepEqual(await host.quarantined(), ['sandbox unknown sb-21'])
})
