import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'
import { test } from 'node:test'
import { Subnet } from '../network/index.ts'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { Inventory, savedMemory, type InventoryOptions } from './inventory.ts'
import { checkpointRecord, sandboxRecord } from './testing/records.ts'

const manyRecords = 2_000

/** An inventory that removes and logs nothing, unless `more` says otherwise. */
function makeInventory(more: Partial<InventoryOptions> & { dataDir?: string } = {}): Inventory {
  const hostd = {
    run: () => assert.fail('no program is run'),
    runTool: () => assert.fail('there is no memory to be removed'),
    runProgram: () => assert.fail('nor a program'),
  }
  const pool = { path: (path: string) => path, list: async () => [], remove: () => assert.fail('nothing is removed') }
  const names = { dataDir: more.dataDir ?? '/nowhere', hash: '00000000' }
  return new Inventory({ names, hostd, pool, slots: 10, log: assert.fail, ...more })
}

test('removeUnused: a failed removal is logged, stops no other, and is tried again', async () => {
  const layers = new Set(['cp-stuck', 'cp-other'])
  let stuck = true
  const pool: InventoryOptions['pool'] = {
    path: (path) => path,
    list: async (folder) => {
      if (folder === 'memory/checkpoints') throw new Error('the disk does not answer')
      return folder === 'layers' ? [...layers] : []
    },
    remove: async (layer) => {
      if (stuck && layer === 'layers/cp-stuck') throw new Error('took too long')
      layers.delete(layer.slice('layers/'.length))
    },
  }
  const logged: string[] = []
  const inventory = makeInventory({ pool, log: (message) => logged.push(message) })
  await inventory.removeAllUnused()
  assert.deepEqual([...layers], ['cp-stuck'])
  assert.deepEqual(
    logged.map((message) => /(cp-stuck|memory\/checkpoints) .*(took too long|does not answer)/.exec(message)?.[1]),
    ['memory/checkpoints', 'cp-stuck'],
  )
  stuck = false
  await inventory.removeUnused()
  assert.deepEqual([...layers], [])
})

test('claim: the error beyond the last address names ATOLL_SUBNET', () => {
  const { slots } = new Subnet('10.200.0.0/28')
  const inventory = makeInventory({ slots })
  for (let number = 1; number <= slots; number += 1) {
    inventory.sandboxes.adopt(sandboxRecord(`sb-${number}`, 0, inventory.claim()))
  }
  assert.equal(new Set(inventory.sandboxes.all().map(({ slot }) => slot)).size, 13)
  assert.throws(() => inventory.claim(), { code: 'no_capacity', message: /ATOLL_SUBNET/ })
})

test('inventory: removals, claims and look-ups do not scan all records', async (t) => {
  const lists: string[] = []
  const removed: string[] = []
  const pool: InventoryOptions['pool'] = {
    path: (path) => path,
    list: async (folder) => {
      lists.push(folder)
      return []
    },
    remove: async (path) => void removed.push(path),
  }
  const dataDir = await temporaryFolder(t)
  await Promise.all(['sandboxes', 'checkpoints'].map((name) => mkdir(`${dataDir}/${name}`)))
  const inventory = makeInventory({ dataDir, pool })
  let looks = 0
  const layersOf = (index: number) => [{ checkpointId: `cp-${index}`, rangeStart: 1_000_000_000 + index * 65_536 }]
  for (let index = 0; index < manyRecords; index += 1) {
    const layers = { enumerable: true, get: () => ((looks += 1), layersOf(index)) }
    inventory.checkpoints.adopt(Object.defineProperty(checkpointRecord(`cp-${index}`), 'layers', layers))
  }
  const claimed = inventory.claim()
  inventory.sandboxes.adopt(sandboxRecord('sb-1', 0, { ...claimed, layers: layersOf(manyRecords) }))
  looks = 0
  assert.equal(inventory.isReferenced(`cp-${manyRecords}`), true)
  await inventory.sandboxes.remove('sb-1')
  await inventory.removeUnused()
  inventory.claim()
  assert.deepEqual([removed, lists, looks], [[`layers/cp-${manyRecords}`], [], 0])
  await inventory.checkpoints.remove('cp-7')
  await inventory.removeUnused()
  assert.equal(removed.at(-1), 'layers/cp-7')
  assert.ok(looks <= 2, 'that of the removed record itself')
})

test('saved memory: each has a folder of its own', () => {
  assert.notEqual(savedMemory('sb-1'), savedMemory('sb-1'))
})

test('layers of an image: they stay while an import holds them or a record names them, and claim no range', async (t) => {
  const removed: string[] = []
  const pool: InventoryOptions['pool'] = {
    path: (path) => path,
    list: async () => [],
    remove: async (path) => void removed.push(path),
  }
  const dataDir = await temporaryFolder(t)
  await mkdir(`${dataDir}/checkpoints`)
  const inventory = makeInventory({ dataDir, pool })
  const layers = ['oci-b', 'oci-a'].map((checkpointId) => ({ checkpointId, rangeStart: 0, inodeEnd: 300 }))
  const [one, other] = [await inventory.holdLayers(layers), await inventory.holdLayers(layers.slice(1))]
  one()
  await inventory.removeUnused()
  assert.deepEqual(removed, ['layers/oci-b'], 'the other import still has the lower one')
  await inventory.checkpoints.put({ ...checkpointRecord('cp-image'), layers: layers.slice(1) })
  other()
  await inventory.removeUnused()
  assert.equal(removed.length, 1)
  assert.deepEqual([inventory.inodeEndOf('oci-a'), inventory.inodeEndOf('oci-b')], [300, undefined])
  assert.ok(inventory.claim().rangeStart >= 1_000_000_000)
  await inventory.checkpoints.remove('cp-image')
  await inventory.removeUnused()
  assert.deepEqual(removed, ['layers/oci-b', 'layers/oci-a'])
})
