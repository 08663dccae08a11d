import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import type { DiskPool } from '../disk/index.ts'
import { Subnet } from '../network/index.ts'
import { Inventory, savedMemory } from './inventory.ts'
import type { HostNames } from './names.ts'

test('what cannot be removed is told of, keeps nothing else from it, and is tried again', async () => {
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
  const inventory = new Inventory(names, pool as unknown as DiskPool, 10, (message) => said.push(message))
  await inventory.removeUnused()
  assert.deepEqual([...layers], ['cp-stuck'])
  assert.deepEqual(
    said.map((message) => /(cp-stuck|memory\/checkpoints) .*(took too long|does not answer)/.exec(message)?.[1]),
    ['cp-stuck', 'memory/checkpoints'],
  )
  stuck = false
  await inventory.removeUnused()
  assert.deepEqual([...layers], [])
})

test('the sandbox beyond the last address of the subnet is told what there is too little of', async () => {
  const names = { dataDir: '/nowhere', hash: '00000000' } as HostNames
  const { slots } = new Subnet('10.200.0.0/28')
  const inventory = new Inventory(names, {} as DiskPool, slots, () => undefined)
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

test('memory that is saved never meets what is left of the last one', () => {
  assert.notEqual(savedMemory('sb-1'), savedMemory('sb-1'))
})
