import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { test } from 'node:test'
import type { DiskPool } from '../disk/index.ts'
import type { Cgroups } from './cgroup.ts'
import { HostNames } from './names.ts'
import { adoptAll, reconcile } from './reconcile.ts'
import { Records } from './records.ts'
import type { SandboxRecord } from './records.ts'

test('sandboxes that let the server wait do so at the same time, and hold up no other', async () => {
  const ids = Array.from({ length: 10 }, (_, index) => `sb-${index}`)
  const liars = ids.slice(0, 9)
  let waiting = 0
  const everyLiar = Promise.withResolvers<void>()
  const adopted = await adoptAll(
    {
      pool: { has: async () => true },
      sandboxes: { get: (id) => ({ id, layers: [] }) as unknown as SandboxRecord },
      adopt: async ({ id }) => {
        if (!liars.includes(id)) return true
        waiting += 1
        if (waiting === liars.length) everyLiar.resolve()
        await everyLiar.promise
        return false
      },
    },
    ids,
  )
  assert.deepEqual([...adopted], ['sb-9'])
})

test('a sandbox that cannot be stopped keeps its record and disk, and keeps no other from being removed', async (t) => {
  const dataDir = await mkdtemp(`${tmpdir()}/atoll-reconcile-`)
  t.after(() => rm(dataDir, { recursive: true }))
  const names = new HostNames(dataDir)
  const runDir = { runcRoot: `${dataDir}/runc`, sandboxesDir: `${dataDir}/run` }
  for (const folder of Object.values(runDir)) await mkdir(folder)
  const written = new Records<SandboxRecord>(`${dataDir}/sandboxes`)
  await written.load()
  const ids = ['sb-known-stuck', 'sb-known', 'sb-stuck', 'sb-other']
  for (const [slot, id] of ids.entries()) {
    await written.put({ id, rangeStart: 1_000_000_000 + slot * 65_536, slot, base: '/', guest: '/', layers: [] })
  }
  const sandboxes = new Records<SandboxRecord>(`${dataDir}/sandboxes`)
  const removedDisks: string[] = []
  const pool = {
    has: async () => true,
    list: async (folder: string) => (folder === 'sandboxes' ? ids : []),
    remove: async (path: string) => void removedDisks.push(path),
  }
  const said: string[] = []
  const report = await reconcile({
    names: { ...runDir, runDir: `${dataDir}/run`, dataDir, cgroupRoot: names.cgroupRoot } as HostNames,
    pool: pool as unknown as DiskPool,
    cgroups: { children: async () => [] } as unknown as Cgroups,
    sandboxes,
    checkpoints: new Records(`${dataDir}/checkpoints`),
    known: { sandboxIds: ['sb-known-stuck', 'sb-known'], checkpointIds: [] },
    adopt: async () => false,
    stop: async (id) => {
      if (id.endsWith('stuck')) throw new Error('process 7 does not end')
    },
    log: (message) => said.push(message),
  })
  assert.deepEqual(report, {
    running: [],
    dormant: ['sb-known-stuck', 'sb-known'],
    lost: [],
    lostCheckpoints: [],
    removed: ['sb-other'],
  })
  assert.deepEqual(removedDisks, ['sandboxes/sb-other'])
  const kept = ['sb-known', 'sb-known-stuck', 'sb-stuck']
  assert.deepEqual((await readdir(`${dataDir}/sandboxes`)).toSorted(), kept.map((id) => `${id}.json`).toSorted())
  assert.deepEqual(
    said.map((message) => /sandbox (\S+) .* process 7 does not end/.exec(message)?.[1]),
    ['sb-known-stuck', 'sb-stuck'],
  )
})
