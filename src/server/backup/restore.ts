/** `npm run restore DIR`: fills an empty data directory with all that a backup holds. It needs the server's environment. See `docs/operate/operations.md`. */
import { mkdir, open, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { silentLog } from '../../lib/log.ts'
import { PrivateCluster, restoreDump } from '../../postgres/index.ts'
import { CommandError, run } from '../../runtime/command.ts'
import { ociRuntimes, openOfflineRestore, restoredRecord, type OfflineRestore } from '../../runtime/index.ts'
import { clusterPlace, startCluster } from '../cluster.ts'
import { type Config, readConfig } from '../config.ts'
import { lockDataDir, restoringFile } from '../installation.ts'
import { extractFiles, extractImage } from './archives.ts'
import { BackupFolder } from './folder.ts'
import type { Manifest } from './manifest.ts'
import { receiveOrder } from './plan.ts'
import { runProgramOfOperator } from '../operator-program.ts'

const usage = 'usage: npm run restore DIR'
const syncTimeoutMs = 3_600_000
/** Exit status of a restore that lacks only what could not be restored. */
const incompleteStatus = 3
const recordPattern = /^(?:sandboxes|checkpoints|quarantine)\/[^/]+$/

async function main(words: readonly string[]): Promise<number> {
  const [given = ''] = words
  if (words.length !== 1 || given === '' || given.startsWith('-')) throw new ServiceError('invalid_request', usage)
  if (process.getuid?.() !== 0) throw new ServiceError('forbidden', 'must run as root, as the server does')
  const config = readConfig(process.env)
  await using folder = await BackupFolder.forRestore(given)
  const { manifest } = folder
  await mkdir(config.dataDir, { recursive: true, mode: 0o711 })
  await using held = new AsyncDisposableStack()
  const lock = await lockDataDir(config.dataDir).catch((error: unknown) => {
    throw new ServiceError('unavailable', `a server runs on the data directory ${config.dataDir}: stop it first`, {
      cause: error,
    })
  })
  held.use(lock)
  await assertEmpty(config)
  console.log(`Checking the backup of ${manifest.host}, of ${manifest.createdAt} …`)
  await folder.verify(manifest)
  const failed = await restore(folder, manifest, config)
  console.log(`Restored into ${config.dataDir}. Start the server.`)
  const missing = { ...manifest.unreadable, ...failed }
  for (const [path, why] of Object.entries(missing)) console.error(`restore: NOT restored: ${path}: ${why}`)
  return Object.keys(missing).length === 0 ? 0 : incompleteStatus
}

/** Ignores the remains of an interrupted restore, which begins anew, and the image folder, which setup fills. */
async function assertEmpty({ dataDir, imageDir }: Config): Promise<void> {
  const names = (await readdir(dataDir)).filter((name) => !holds(join(dataDir, name), imageDir))
  if (names.length === 0 || names.includes(restoringFile)) return
  const found = names.slice(0, 3).join(', ')
  throw new ServiceError(
    'conflict',
    `the data directory ${dataDir} is not empty (${found}): give another with ATOLL_DATA_DIR`,
  )
}

function holds(folder: string, path: string): boolean {
  return !relative(folder, path).startsWith('..')
}

async function restore(folder: BackupFolder, manifest: Manifest, config: Config): Promise<Record<string, string>> {
  const { dataDir } = config
  await clear(config)
  await writeFile(join(dataDir, restoringFile), `${manifest.createdAt}\n`, { flush: true })
  try {
    const failed = await fill(folder, manifest, config)
    await run(['sync', '--file-system', dataDir], { timeoutMs: syncTimeoutMs })
    await rm(join(dataDir, restoringFile))
    await using names = await open(dataDir)
    await names.sync()
    return failed
  } catch (error) {
    await clear(config)
    throw error
  }
}

/** Removes what this restore, or one that was cut off, has made. */
async function clear({ dataDir, imageDir, limits }: Config): Promise<void> {
  await PrivateCluster.stopLeft({ ...(await clusterPlace(dataDir, limits.database)), log: silentLog })
  // The mark goes last.
  const names = (await readdir(dataDir)).filter(
    (name) => !holds(join(dataDir, name), imageDir) && name !== restoringFile,
  )
  for (const name of names) await rm(join(dataDir, name), { recursive: true, force: true })
  await rm(join(dataDir, restoringFile), { force: true })
}

/** Returns the subvolumes that could not be restored, with the reasons. */
async function fill(folder: BackupFolder, manifest: Manifest, config: Config): Promise<Record<string, string>> {
  const { dataDir, imageDir, subnet, diskPoolBytes } = config
  for (const [name, part] of Object.entries(manifest.images))
    await extractImage(folder.file(part), join(imageDir, name))
  const options = { dataDir, imageDir, subnet, ...defined({ diskPoolBytes: diskPoolBytes || undefined }) }
  let failed: Record<string, string>
  {
    await using pool = await openOfflineRestore({ runtime: ociRuntimes[config.runtime], ...options })
    failed = await fillPool(folder, manifest, pool)
  }
  await extractFiles(folder.file(manifest.files), dataDir)
  await writeRecords(folder.file(manifest.records), dataDir)
  console.log('The database …')
  if (config.databaseUrl !== undefined) await restoreDump(folder.file(manifest.database), config.databaseUrl)
  else await fillCluster(folder.file(manifest.database), config)
  return failed
}

async function fillPool(
  folder: BackupFolder,
  { streams, subvolumes }: Manifest,
  pool: OfflineRestore,
): Promise<Record<string, string>> {
  const order = receiveOrder(streams)
  const failures = new Map<string, string>()
  for (const [index, id] of order.entries()) {
    const stream = streams[id]
    if (stream === undefined) continue
    console.log(`Disks, checkpoints, volumes and memory: ${index + 1} of ${order.length} …`)
    try {
      await pool.receive(folder.file(stream))
    } catch (error) {
      // The disk of one sandbox must not keep the others from coming back.
      if (!(error instanceof CommandError)) throw error
      failures.set(id, error.message)
    }
  }
  const failed: Record<string, string> = {}
  for (const [path, subvolume] of Object.entries(subvolumes)) {
    const why = failures.get(subvolume.id)
    if (why === undefined) await pool.place(path, subvolume)
    else failed[path] = why
  }
  await pool.complete()
  return failed
}

async function writeRecords(file: string, dataDir: string): Promise<void> {
  const records = JSON.parse(await readFile(file, 'utf8')) as { path: string; text: string }[]
  for (const { path, text } of records) {
    if (!recordPattern.test(path))
      throw new ServiceError('conflict', `the backup is damaged: a record is named ${path}`)
    const target = join(dataDir, path)
    await mkdir(dirname(target), { recursive: true, mode: 0o700 })
    await writeFile(target, restoredRecord(text), { mode: 0o600 })
  }
}

async function fillCluster(file: string, { dataDir, limits }: Config): Promise<void> {
  // Files of a cluster belong to the user that it runs as here, so the operator's settings go into the one that is made.
  const own = join(dataDir, 'db/own.conf')
  const settings = await readFile(own, 'utf8').catch(() => undefined)
  await rm(join(dataDir, 'db'), { recursive: true, force: true })
  const cluster = await startCluster(dataDir, {
    beforeCreate: () => undefined,
    limits: limits.database,
    log: silentLog,
  })
  try {
    await restoreDump(file, cluster.databaseUrl)
  } finally {
    await cluster.stop()
  }
  if (settings !== undefined) await writeFile(own, settings)
}

await runProgramOfOperator('restore', main)
