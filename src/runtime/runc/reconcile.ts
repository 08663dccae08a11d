import { readdir, rm } from 'node:fs/promises'
import { Gate } from '../../lib/gate.ts'
import type { KnownResources, ReconcileReport } from '../../sandbox/driver.ts'
import { imagesBytes } from '../criu/images.ts'
import type { DiskPool } from '../disk/index.ts'
import { diskOf, layerOf } from './bundle.ts'
import type { Cgroups } from './cgroup.ts'
import type { HostNames } from './names.ts'
import { isWhole } from './dump.ts'
import { awaitStrayDumps, killCriu, killStrayTools } from './process.ts'
import type { CheckpointRecord, Records, SandboxRecord } from './records.ts'
import { removeFolder } from './remove-folder.ts'
import { runImagesOf } from './restore.ts'
import { giveUpResumed, markOf, marksFolder } from './resumed.ts'
import { allDone } from './steps.ts'
import { hasDisk, hasMemory } from './whole.ts'

const strayDumpTimeoutMs = 60_000
const adoptionsMax = 64
const removalsMax = 16

export interface ReconcileOptions {
  names: HostNames
  pool: DiskPool
  cgroups: Cgroups
  sandboxes: Records<SandboxRecord>
  checkpoints: Records<CheckpointRecord>
  known: KnownResources
  /** Takes over a sandbox that runs; false when it does not, or never answered. */
  adopt: (record: SandboxRecord) => Promise<boolean>
  /** Removes everything of a sandbox but its disk and record. */
  stop: (id: string) => Promise<void>
  log: (message: string) => void
}

/**
 * Brings the host in line with what is known. It trusts nothing but records that are known, disks that exist and guests
 * that answer or have answered; whatever else carries this data directory's name is removed. The pool is mounted; nothing else runs yet.
 */
export async function reconcile(options: ReconcileOptions): Promise<ReconcileReport> {
  const { names, pool, sandboxes, checkpoints } = options
  await awaitStrayDumps(names.runcRoot, strayDumpTimeoutMs)
  await killStrayTools([names.runDir, names.poolFile])
  await killCriu([names.runDir], { lazyPagesToo: false })
  const report: ReconcileReport = { running: [], dormant: [], lost: [], lostCheckpoints: [], removed: [] }
  report.removed.push(...(await sandboxes.load()), ...(await checkpoints.load()))
  const stuck = await reconcileSandboxes(options, report)
  await reconcileCheckpoints(options, report)
  const disks = new Set(sandboxes.all().map(diskOf))
  const ownerless = (await pool.list('sandboxes')).filter((name) => !disks.has(`sandboxes/${name}`))
  await eachRemoved(ownerless, (name) => pool.remove(`sandboxes/${name}`), options.log)
  await removeRunImages(options, new Set([...report.running, ...stuck]))
  await removeMarks(pool, sandboxes)
  return report
}

/** Those of sandboxes that run stay until their records have forgotten the memory. */
async function removeMarks(pool: DiskPool, sandboxes: Records<SandboxRecord>): Promise<void> {
  const needed = new Set(sandboxes.all().flatMap((record) => (record.memory === undefined ? [] : markOf(record))))
  for (const name of await pool.list(marksFolder)) {
    if (!needed.has(`${marksFolder}/${name}`)) await rm(pool.path(`${marksFolder}/${name}`), { force: true })
  }
}

/** What runs may still read its memory from images. */
async function removeRunImages({ pool, log }: ReconcileOptions, needed: ReadonlySet<string>): Promise<void> {
  const left = (await pool.list('memory/runs')).filter((id) => !needed.has(id))
  if (left.length > 0) await killCriu(left.map((id) => pool.path(runImagesOf(id))))
  await eachRemoved(left, (id) => removeFolder(pool.path(runImagesOf(id))), log)
}

/**
 * Removes something of each of `ids`, side by side, and returns those of which it cannot be done now. Whoever is root in a
 * sandbox may have a process in it that does not end for long, which must not keep the server from all others.
 */
async function eachRemoved(
  ids: Iterable<string>,
  remove: (id: string) => Promise<void>,
  log: (message: string) => void,
): Promise<Set<string>> {
  const gate = new Gate(removalsMax)
  const stuck = new Set<string>()
  const removeOne = async (id: string): Promise<void> => {
    await remove(id).catch((error: unknown) => {
      stuck.add(id)
      log(`what is left of sandbox ${id} cannot be removed before the next start: ${String(error)}`)
    })
  }
  await allDone([...ids].map((id) => gate.pass(() => removeOne(id))))
  return stuck
}

/** Returns the sandboxes that cannot be stopped now: their records stay, and what these claim with them. */
async function reconcileSandboxes(options: ReconcileOptions, report: ReconcileReport): Promise<Set<string>> {
  const { names, pool, cgroups, sandboxes } = options
  const known = new Set(options.known.sandboxIds)
  const found = new Set([
    ...sandboxes.all().map((record) => record.id),
    ...(await readdir(names.runcRoot)),
    ...(await readdir(names.sandboxesDir)),
    ...(await cgroups.children(names.cgroupRoot)),
  ])
  const adopted = await adoptAll(options, known)
  const ended = [...found].filter((id) => !adopted.has(id))
  const stuck = await eachRemoved(ended, options.stop, options.log)
  for (const id of new Set([...known, ...found])) {
    if (adopted.has(id)) {
      report.running.push(id)
      continue
    }
    const record = sandboxes.get(id)
    const whole = record !== undefined && (await hasDisk(pool, diskOf(record), record))
    if (known.has(id) && whole) {
      await settleMemory(pool, sandboxes, record)
      report.dormant.push(id)
      continue
    }
    if (!stuck.has(id)) await sandboxes.remove(id)
    if (known.has(id)) report.lost.push(id)
    else if (!stuck.has(id)) report.removed.push(id)
  }
  return stuck
}

/** What adoption needs of it all. */
interface Adoption {
  pool: Pick<DiskPool, 'has'>
  sandboxes: Pick<Records<SandboxRecord>, 'get'>
  adopt: ReconcileOptions['adopt']
}

/** Side by side, so that sandboxes which let the server wait for their answer do so at the same time. */
export async function adoptAll({ pool, sandboxes, adopt }: Adoption, ids: Iterable<string>): Promise<Set<string>> {
  const gate = new Gate(adoptionsMax)
  const adopted = new Set<string>()
  const adoptOne = async (id: string): Promise<void> => {
    const record = sandboxes.get(id)
    if (record === undefined || !(await hasDisk(pool, diskOf(record), record))) return
    if (await adopt(record)) adopted.add(id)
  }
  await allDone([...ids].map((id) => gate.pass(() => adoptOne(id))))
  return adopted
}

async function reconcileCheckpoints(options: ReconcileOptions, report: ReconcileReport): Promise<void> {
  const { pool, checkpoints } = options
  const known = new Set(options.known.checkpointIds)
  for (const id of new Set([...known, ...checkpoints.all().map((record) => record.id)])) {
    const record = checkpoints.get(id)
    const whole =
      record !== undefined &&
      (await hasDisk(pool, layerOf(id), record)) &&
      (record.memory === undefined || (await hasMemory(pool, record.memory)))
    if (known.has(id) && whole) continue
    await checkpoints.remove(id)
    if (known.has(id)) report.lostCheckpoints.push(id)
    else report.removed.push(id)
  }
}

/** A dump that a dying server left is as good as any when it came to its end; what is left of another is of no use. */
async function settleMemory(pool: DiskPool, sandboxes: Records<SandboxRecord>, found: SandboxRecord): Promise<void> {
  const record = await giveUpResumed(pool, sandboxes, found)
  const { memory, ...rest } = record
  if (memory === undefined) return
  if (memory.bytes === undefined && (await isWhole(pool.path(memory.folder)))) {
    await sandboxes.put({ ...rest, memory: { ...memory, bytes: await imagesBytes(pool.path(memory.folder)) } })
  } else if (!(await hasMemory(pool, memory))) {
    await sandboxes.put(rest)
  }
}
