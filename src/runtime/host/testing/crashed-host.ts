import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import type { TestContext } from 'node:test'
import type { DiskPool } from '../../disk/index.ts'
import { exists } from '../../exists.ts'
import { createRunc } from '../../oci/runc.ts'
import type { Cgroups } from '../../cgroups/index.ts'
import { Inventory } from '../inventory.ts'
import type { HostNames } from '../../host-names.ts'
import { readCheckpointRecord, readSandboxRecord, Records } from '../records.ts'
import type { CheckpointRecord, SandboxRecord } from '../records.ts'
import { hostTool } from './host-tool.ts'

/** A data directory after a crash: no sandbox runs, and the pool is a plain folder. */
export async function makeCrashed(
  t: TestContext,
  written: readonly SandboxRecord[],
  checkpoints: readonly CheckpointRecord[] = [],
) {
  const dataDir = await mkdtemp(`${tmpdir()}/atoll-reconcile-`)
  t.after(() => rm(dataDir, { recursive: true }))
  const path = (relative: string) => `${dataDir}/pool/${relative}`
  for (const folder of ['sandboxes', 'layers', 'memory/checkpoints', 'memory/saved', 'memory/runs', 'memory/resumed']) {
    await mkdir(path(folder), { recursive: true })
  }
  for (const folder of ['runc', 'run']) await mkdir(`${dataDir}/${folder}`)
  const before = new Records(`${dataDir}/sandboxes`, readSandboxRecord)
  await before.load()
  for (const record of written) {
    await before.put(record)
    await mkdir(path(`sandboxes/${record.disk ?? record.id}/upper`), { recursive: true })
    if (record.memory === undefined) continue
    await mkdir(path(record.memory.folder))
    await writeFile(path(`${record.memory.folder}/pages-1.img`), 'x'.repeat(record.memory.bytes ?? 0))
  }
  const layered = new Records(`${dataDir}/checkpoints`, readCheckpointRecord)
  await layered.load()
  for (const record of checkpoints) {
    await layered.put(record)
    await mkdir(path(`layers/${record.id}/upper`), { recursive: true })
  }
  const said: string[] = []
  const pool = {
    path,
    has: (relative: string) => exists(path(relative)),
    list: (relative: string) => readdir(path(relative)),
    remove: (relative: string) => rm(path(relative), { recursive: true }),
  }
  const names = {
    sandboxesDir: `${dataDir}/run`,
    runDir: `${dataDir}/run`,
    poolFile: `${dataDir}/pool.img`,
    dataDir,
    hash: '00000000',
    cgroupRoot: '/atoll-00000000',
  } as unknown as HostNames
  const log = (message: string) => void said.push(message)
  const inventory = new Inventory({ names, hostd: hostTool, pool: pool as unknown as DiskPool, slots: 10, log })
  const known = {
    sandboxIds: written.map(({ id }) => id),
    checkpointIds: checkpoints.map(({ id }) => id),
    abandoned: { sandboxIds: [] as string[], checkpointIds: [] as string[] },
  }
  const options = {
    names,
    hostd: hostTool,
    runtime: createRunc({ runDir: dataDir, dataDir, hostd: hostTool }),
    pool: pool as unknown as DiskPool,
    cgroups: { children: async () => [], memberFiles: () => [] } as unknown as Cgroups,
    inventory,
    mayQuarantineMany: false,
    known,
    adopt: async () => false,
    stop: async () => undefined,
    log,
  }
  return { options, pool, sandboxes: inventory.sandboxes, path, said }
}
