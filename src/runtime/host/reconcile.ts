import { readdir, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { Semaphore } from '../../lib/async/semaphore.ts'
import type { KnownResources, Quarantined, ReconcileReport } from '../../sandbox/ports/runtime-driver.ts'
import { allDone, endCriu, endStrayTools, removeFolders } from '../cleanup.ts'
import { isCompleteDump } from '../criu/dump.ts'
import { imagesBytes } from '../criu/image-files.ts'
import { runImagesOf } from '../criu/restore.ts'
import type { HostTool } from '../hostd/index.ts'
import { clearResuming, dropStaleMemory, fenceOf, fencesFolder } from './fence.ts'
import { hasDisk, hasMemory, isIntact } from './integrity.ts'
import type { Inventory } from './inventory.ts'
import type { Machine } from './machine.ts'
import { sandboxOfDisk } from './quarantine.ts'
import type { SandboxRecord } from './records.ts'
import { reconcileVolumes } from './volumes.ts'
import { assertFewStrangers, findStrangers, idsOf, type Ids } from './strangers.ts'

const strayDumpTimeoutMs = 60_000
const adoptionsMax = 64
const removalsMax = 16

interface ReconcileOptions extends Pick<Machine, 'names' | 'runtime' | 'pool' | 'cgroups' | 'inventory' | 'log'> {
  hostd: HostTool
  mayQuarantineMany: boolean
  known: KnownResources
  /** Takes over a running sandbox; false when it does not run, or never answered. */
  adopt: (record: SandboxRecord) => Promise<boolean>
  /** Removes everything of a sandbox but its disk and record. */
  stop: (id: string) => Promise<void>
}

interface Run extends Omit<ReconcileOptions, 'known'>, Ids {
  report: ReconcileReport
}

/**
 * Brings the host in line with the known sandboxes and checkpoints. It relies only on known records, disks that exist and guests
 * that answer or have answered, and stops everything else of this data directory. It removes what is abandoned, and disks
 * that their records have replaced. All other records, disks and layers stay: unknown, unreadable and damaged ones go to
 * quarantine. The pool is mounted; nothing else runs yet.
 */
export async function reconcile(options: ReconcileOptions): Promise<ReconcileReport> {
  const { names, inventory } = options
  const { sandboxes, checkpoints } = inventory
  const lists = { running: [], dormant: [], forgotten: [], lost: [], lostCheckpoints: [], unreachable: [] }
  const ofVolumes = { lostVolumes: [], unknownVolumes: [] }
  const report: ReconcileReport = { ...lists, ...ofVolumes, removed: [], quarantined: [], takenBack: [] }
  const known = idsOf(options.known)
  const unreadable = await inventory.load()
  const run: Run = { ...options, known, abandoned: withWarm(idsOf(options.known.abandoned), inventory, known), report }
  const stock = await findStrangers(run, unreadable)
  if (!options.mayQuarantineMany) assertFewStrangers(stock, names.dataDir)
  await endStrays(options)
  for (const records of [sandboxes, checkpoints]) await records.removeTemporaryFiles()
  await takeBackKnown(run)
  const { ended, stuck } = await endSandboxes(run)
  for (const stranger of stock.strangers) {
    const isInForce = stranger.kind === 'sandbox' && sandboxes.get(stranger.id) !== undefined
    if (!isInForce || !stuck.has(stranger.id)) await quarantine(run, stranger)
  }
  for (const { kind, id } of unreadable) {
    const isStranger = stock.strangers.some((stranger) => stranger.kind === kind && stranger.id === id)
    if (!isStranger) await inventory.recordsOf(kind).remove(id)
  }
  await settleSandboxes(run, ended, stuck)
  await settleCheckpoints(run)
  await removeLeftDisks(run)
  await removeRunImages(options, new Set([...report.running, ...stuck]))
  await removeFences(options)
  await reconcileVolumes(options, options.known, report)
  return report
}

/** Adds the warm sandboxes to the abandoned ones, as nobody owns them. */
function withWarm(abandoned: Ids['abandoned'], { sandboxes }: Inventory, known: Ids['known']): Ids['abandoned'] {
  const warm = sandboxes.all().filter((record) => record.warm !== undefined && !known.sandbox.has(record.id))
  return { ...abandoned, sandbox: new Set([...abandoned.sandbox, ...warm.map(({ id }) => id)]) }
}

/** Waits for dumps and restores of a dead server, and kills its other programs. */
async function endStrays({ names, hostd, runtime, cgroups, log }: ReconcileOptions): Promise<void> {
  const dumps = await runtime.awaitStrays(strayDumpTimeoutMs)
  if (dumps > 0) log(`waited for ${dumps} dumps and restores that an earlier server had begun`)
  const groups = cgroups.memberFiles(names.cgroupRoot).map(dirname)
  const tools = await endStrayTools(hostd, [names.runDir, names.poolFile, ...groups])
  if (tools > 0) log(`ended ${tools} programs that an earlier server had started`)
  await endCriu(hostd, [names.runDir], 'leave')
}

async function quarantine({ inventory, report }: Run, what: Quarantined): Promise<void> {
  await inventory.moveToQuarantine(what)
  report.quarantined.push(what)
}

/** Takes known and intact items back from quarantine, as after a start with the wrong database; of several the newest. */
async function takeBackKnown({ inventory, pool, known, log, report }: Run): Promise<void> {
  for (const item of inventory.quarantine.items.toReversed()) {
    const { kind, id, record } = item
    if (record === undefined || !known[kind].has(id) || !(await isIntact(pool, record))) continue
    try {
      await inventory.takeBack(item)
      report.takenBack.push(id)
    } catch (error) {
      log(`${kind} ${id} stays in quarantine: ${String(error)}`)
    }
  }
}

/** Removes disks of abandoned sandboxes, and those that a record has replaced. Disks of records in quarantine stay. */
async function removeLeftDisks({ pool, inventory, abandoned, log }: Run): Promise<void> {
  const { sandboxes } = inventory
  const left = (await pool.list('sandboxes')).filter((name) => {
    const id = sandboxOfDisk(name)
    return !inventory.keepsDisk(name) && (abandoned.sandbox.has(id) || sandboxes.get(id) !== undefined)
  })
  await eachRemoved(left, (name) => pool.remove(`sandboxes/${name}`), log)
}

/** Removes fences whose memory no record names any more. */
async function removeFences({ pool, inventory }: ReconcileOptions): Promise<void> {
  const { sandboxes, quarantine: quarantined } = inventory
  const needed = new Set(sandboxes.all().flatMap((record) => (record.memory === undefined ? [] : fenceOf(record))))
  for (const name of await pool.list(fencesFolder)) {
    const isNeeded = needed.has(`${fencesFolder}/${name}`) || quarantined.has('sandbox', sandboxOfDisk(name))
    if (!isNeeded) await rm(pool.path(`${fencesFolder}/${name}`), { force: true })
  }
}

/** Removes images of earlier restores. Running sandboxes may still read theirs. */
async function removeRunImages({ hostd, pool, log }: ReconcileOptions, needed: ReadonlySet<string>): Promise<void> {
  const left = (await pool.list('memory/runs')).filter((id) => !needed.has(id))
  const imagesOf = (id: string) => pool.path(runImagesOf(id))
  if (left.length > 0) await endCriu(hostd, left.map(imagesOf))
  await eachRemoved(left, (id) => removeFolders(hostd, [imagesOf(id)]), log)
}

/**
 * Calls `remove` for each id, in parallel, and returns the ids for which it fails. Root in a sandbox may have a process that does not end for
 * long, which must not keep the server from its other sandboxes.
 */
async function eachRemoved(
  ids: Iterable<string>,
  remove: (id: string) => Promise<void>,
  log: (message: string) => void,
): Promise<Set<string>> {
  const semaphore = new Semaphore({ permits: removalsMax })
  const stuck = new Set<string>()
  const removeOne = (id: string) =>
    remove(id).catch((error: unknown) => {
      stuck.add(id)
      log(`what is left of sandbox ${id} cannot be removed before the next start: ${String(error)}`)
    })
  await allDone([...ids].map((id) => semaphore.use(() => removeOne(id))))
  return stuck
}

/**
 * Adopts known sandboxes that run, and stops everything else that carries the data directory's hash. Returns all ids that were
 * found and are not adopted, and those of them that cannot be stopped now: their records stay, with all that they claim.
 */
async function endSandboxes(run: Run) {
  const { names, cgroups, inventory, runtime, report, stop, log } = run
  const found = new Set([
    ...inventory.sandboxes.all().map((record) => record.id),
    ...(await runtime.list()),
    ...(await readdir(names.sandboxesDir)),
    ...(await cgroups.children(names.cgroupRoot)),
  ])
  const adopted = await adoptAll(run)
  report.running.push(...adopted)
  const ended = [...found].filter((id) => !adopted.has(id))
  return { ended, stuck: await eachRemoved(ended, stop, log) }
}

/** To be called when all strangers but stuck ones are in quarantine. */
async function settleSandboxes(run: Run, ended: readonly string[], stuck: ReadonlySet<string>): Promise<void> {
  const { pool, known, abandoned, inventory, report } = run
  const { sandboxes } = inventory
  const running = new Set(report.running)
  for (const id of known.sandbox) {
    if (running.has(id)) continue
    const record = sandboxes.get(id)
    if (record !== undefined && (await isIntact(pool, record))) {
      if (!(await settleMemory(run, record, stuck.has(id)))) report.forgotten.push(id)
      report.dormant.push(id)
      continue
    }
    report.lost.push(id)
    if (record !== undefined && !stuck.has(id)) {
      await quarantine(run, { kind: 'sandbox', id, reason: 'damaged' })
    }
  }
  for (const { id } of sandboxes.all()) if (abandoned.sandbox.has(id) && !stuck.has(id)) await sandboxes.remove(id)
  const isKept = (id: string) => known.sandbox.has(id) || stuck.has(id) || inventory.quarantine.has('sandbox', id)
  report.removed.push(...ended.filter((id) => !isKept(id)))
}

/** Adopts in parallel: a guest that is slow to answer delays no other. */
async function adoptAll({ pool, inventory, known, adopt }: Run): Promise<Set<string>> {
  const semaphore = new Semaphore({ permits: adoptionsMax })
  const adopted = new Set<string>()
  const adoptOne = async (id: string): Promise<void> => {
    const record = inventory.sandboxes.get(id)
    if (record !== undefined && (await hasDisk(pool, record)) && (await adopt(record))) adopted.add(id)
  }
  await allDone([...known.sandbox].map((id) => semaphore.use(() => adoptOne(id))))
  return adopted
}

async function settleCheckpoints(run: Run): Promise<void> {
  const { pool, known, abandoned, inventory, report } = run
  const { checkpoints } = inventory
  for (const id of known.checkpoint) {
    const record = checkpoints.get(id)
    if (record !== undefined && (await isIntact(pool, record))) continue
    report.lostCheckpoints.push(id)
    if (record !== undefined) await quarantine(run, { kind: 'checkpoint', id, reason: 'damaged' })
  }
  for (const { id } of checkpoints.all()) {
    if (!abandoned.checkpoint.has(id)) continue
    await checkpoints.remove(id)
    report.removed.push(id)
  }
}

/**
 * Completes the record of a dump that ended after its server died, and drops memory that is incomplete or stale. Returns whether
 * the sandbox has all the memory that its record named. A restore of a stuck sandbox may still be under way.
 */
async function settleMemory(host: Run, found: SandboxRecord, isStuck: boolean): Promise<boolean> {
  const { id } = found
  const { pool, inventory, log } = host
  const { sandboxes } = inventory
  const { memory, ...rest } = await dropStaleMemory(host, found)
  if (memory === undefined) return found.memory === undefined
  if (!isStuck) await clearResuming(sandboxes, id)
  if (memory.bytes === undefined && (await isCompleteDump(pool.path(memory.folder)))) {
    const bytes = await imagesBytes(pool.path(memory.folder))
    await sandboxes.update(id, (record) => record.memory && { ...record, memory: { ...record.memory, bytes } })
    return true
  }
  if (await hasMemory(pool, memory)) return true
  log(`the memory of sandbox ${id} is dropped, and its next start is anew on its disk: its images are incomplete`)
  await sandboxes.put(rest)
  return false
}
