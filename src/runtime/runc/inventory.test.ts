import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { DiskPool } from '../disk/index.ts'
import { Inventory, savedMemory } from './inventory.ts'
import type { HostNames } from './names.ts'
import { hostTool } from './testing/host-tool.ts'

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

test('memory that is saved never meets what is left of the last one', () => {
  assert.notEqual(savedMemory('sb-1'), savedMemory('sb-1'))
})
