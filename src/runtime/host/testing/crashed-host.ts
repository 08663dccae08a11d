import { mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import type { TestContext } from 'node:test'
import type { Cgroups } from '../../cgroups/index.ts'
import type { DiskPool } from '../../disk/index.ts'
import { exists } from '../../exists.ts'
import type { HostNames } from '../../host-names.ts'
import { createRunc } from '../../oci/runc.ts'
import { temporaryFolder } from '../../testing/temporary-folder.ts'
import { Inventory } from '../inventory.ts'
import { readCheckpointRecord, readSandboxRecord, Records } from '../records.ts'
import type { CheckpointRecord, SandboxRecord } from '../records.ts'
import { hostTool } from './host-tool.ts'

/** A data directory after a crash: no sandbox runs, and the pool is a plain folder. */
export async function makeCrashed(
  t: TestContext,
  sandboxes: readonly SandboxRecord[],
  checkpoints: readonly CheckpointRecord[] = [],
) {
  const dataDir = await temporaryFolder(t)
  const path = (relative: string) => `${dataDir}/pool/${relative}`
  for (const folder of [
    'sandboxes',
    'layers',
    'volumes',
    'memory/checkpoints',
    'memory/saved',
    'memory/runs',
    'memory/resumed',
  ]) {
    await mkdir(path(folder), { recursive: true })
  }
  for (const folder of ['runc', 'run']) await mkdir(`${dataDir}/${folder}`)
  const before = {
    sandboxes: new Records(`${dataDir}/sandboxes`, readSandboxRecord),
    checkpoints: new Records(`${dataDir}/checkpoints`, readCheckpointRecord),
  }
  for (const records of Object.values(before)) await records.load()
  for (const record of sandboxes) {
    await before.sandboxes.put(record)
    await mkdir(path(`sandboxes/${record.disk ?? record.id}/upper`), { recursive: true })
  }
  for (const record of checkpoints) {
    await before.checkpoints.put(record)
    await mkdir(path(`layers/${record.id}/upper`), { recursive: true })
  }
  for (const { memory } of [...sandboxes, ...checkpoints]) {
    if (memory === undefined) continue
    await mkdir(path(memory.folder))
    await writeFile(path(`${memory.folder}/pages-1.img`), 'x'.repeat(memory.bytes ?? 0))
  }
  const logged: string[] = []
  const pool = {
    path,
    has: (relative: string) => exists(path(relative)),
    list: (relative: string) => readdir(path(relative)),
    remove: (relative: string) => rm(path(relative), { recursive: true }),
  } as unknown as DiskPool
  const names = {
    sandboxesDir: `${dataDir}/run`,
    runDir: `${dataDir}/run`,
    poolFile: `${dataDir}/pool.img`,
    dataDir,
    hash: '00000000',
    cgroupRoot: '/atoll-00000000',
  } as unknown as HostNames
  const log = (message: string) => void logged.push(message)
  const inventory = new Inventory({ names, hostd: hostTool, pool, slots: 10, log })
  const options = {
    names,
    hostd: hostTool,
    runtime: createRunc({ runDir: dataDir, sandboxesDir: `${dataDir}/run`, dataDir, hostd: hostTool }),
    pool,
    cgroups: { children: async () => [], memberFiles: () => [] } as unknown as Cgroups,
    inventory,
    mayQuarantineMany: false,
    known: {
      sandboxIds: sandboxes.map(({ id }) => id),
      checkpointIds: checkpoints.map(({ id }) => id),
      abandoned: { sandboxIds: [] as string[], checkpointIds: [] as string[] },
    },
    adopt: (async () => false) as (record: SandboxRecord) => Promise<boolean>,
    stop: (async () => undefined) as (id: string) => Promise<void>,
    log,
  }
  return { options, pool, sandboxes: inventory.sandboxes, path, logged }
}
