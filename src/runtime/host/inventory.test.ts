import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import type { DiskPool } from '../disk/index.ts'
import { Subnet } from '../network/index.ts'
import { Inventory, savedMemory } from './inventory.ts'
import type { HostNames } from '../host-names.ts'
import type { CheckpointRecord } from './records.ts'
import { hostTool } from './testing/host-tool.ts'

const manyRecords = 2_000

test('removeUnused: a failed removal is logged, stops no other, and is tried again', async () => {
  const layers = new Set(['cp-stuck', 'cp-other'])
  const pool = {
    list: async (folder: string) => {
      if (folder === 'memory/checkpoints') throw new Error('the disk does not answer')
      return folder === 'layers' ? [...layers] : []
    },
    remove: async (layer: string) => {
      if (stuck && layer === 'layers/cp-stuck') throw new Error('took too long')
      layers.delete(layer.slice('layers/'.length))
    },
  }
  let stuck = true
  const said: string[] = []
  const names = { dataDir: '/nowhere', hash: '00000000' } as HostNames
  const inventory = new Inventory({
    names,
    hostd: hostTool,
    pool: pool as unknown as DiskPool,
    slots: 10,
    log: (message) => said.push(message),
  })
  await inventory.removeAllUnused()
  assert.deepEqual([...layers], ['cp-stuck'])
  assert.deepEqual(
    said.map((message) => /(cp-stuck|memory\/checkpoints) .*(took too long|does not answer)/.exec(message)?.[1]),
    ['memory/checkpoints', 'cp-stuck'],
  )
  stuck = false
  await inventory.removeUnused()
  assert.deepEqual([...layers], [])
})

test('claim: the error beyond the last address names ATOLL_SUBNET', async () => {
  const hostd = { runTool: () => assert.fail('nothing is removed') }
  const names = { dataDir: '/nowhere', hash: '00000000' } as HostNames
  const { slots } = new Subnet('10.200.0.0/28')
  const inventory = new Inventory({ names, hostd, pool: {} as DiskPool, slots, log: assert.fail })
  const stands = { base: '/base', guest: '/guest', layers: [] }
  for (let number = 1; number <= slots; number += 1) {
    inventory.sandboxes.adopt({ id: `sb-${number}`, ...inventory.claim(), ...stands })
  }
  assert.deepEqual(new Set(inventory.sandboxes.all().map(({ slot }) => slot)).size, 13)
  assert.throws(
    () => inventory.claim(),
    (error) => isServiceError(error, 'no_capacity') && error.message.includes('ATOLL_SUBNET'),
  )
})

test('inventory: removals, claims and look-ups do not scan all records', async () => {
  const lists: string[] = []
  const removed: string[] = []
  const pool = {
    list: async (folder: string) => {
      lists.push(folder)
      return []
    },
    remove: async (path: string) => void removed.push(path),
  }
  const dataDir = await mkdtemp(`${tmpdir()}/atoll-inventory-`)
  try {
    await Promise.all(['sandboxes', 'checkpoints'].map((name) => mkdir(`${dataDir}/${name}`)))
    const names = { dataDir, hash: '00000000' } as HostNames
    const hostd = { runTool: () => assert.fail('there is no memory to be removed') }
    const inventory = new Inventory({ names, hostd, pool: pool as unknown as DiskPool, slots: 10, log: assert.fail })
    let looks = 0
    const layersOf = (index: number) => [{ checkpointId: `cp-${index}`, rangeStart: 1_000_000_000 + index * 65_536 }]
    for (let index = 0; index < manyRecords; index += 1) {
      const record = { id: `cp-${index}`, kind: 'disk_only', base: '/', sizeBytes: 1 } as CheckpointRecord
      const layers = { enumerable: true, get: () => ((looks += 1), layersOf(index)) }
      inventory.checkpoints.adopt(Object.defineProperty(record, 'layers', layers))
    }
    const own = { id: 'sb-1', ...inventory.claim(), base: '/', guest: '/', layers: layersOf(manyRecords) }
    inventory.sandboxes.adopt(own)
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
  } finally {
    await rm(dataDir, { recursive: true })
  }
})

test('saved memory: each has a folder of its own', () => {
  assert.notEqual(savedMemory('sb-1'), savedMemory('sb-1'))
})
