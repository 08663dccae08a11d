import { constants, mkdir, open, rm, stat, statfs } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import type { Log } from '../lib/log.ts'
import { findSystemUser, type SystemUser } from '../lib/system-user.ts'
import { adminUrl, withClient } from './address.ts'
import { type Binaries, binariesOf, newestBinaries } from './binaries.ts'
import { confined, type ProgramGroup, shownFolder, shownUpgrade } from './confinement.ts'
import {
  assertDurable,
  clusterFolder,
  clusterVersion,
  type ClusterSurroundings,
  explained,
  fillFolder,
  makeSocketDir,
  renameDurably,
  writeOwned,
  writeSettings,
} from './folder.ts'
import { runningPostmaster, startPostmaster, stopPostmaster } from './postmaster.ts'
import { runProgram } from './programs.ts'
import { adminRole, databaseName, ownSettingsFile } from './settings.ts'

const stopGraceMs = 60_000
const mebibyte = 1024 * 1024
/** Space of an empty cluster with its write-ahead log, beside a copy of the data. */
const emptyClusterBytes = 160 * mebibyte

/** Names beside a cluster's folder while it is upgraded. */
const partsOf = (folder: string, major: number) => ({
  /** The new cluster while it is made. */
  draft: `${folder}.upgrading`,
  /** The complete new cluster. It counts only while there is no `folder`, to which a server may have written since. */
  whole: `${folder}.upgraded`,
  /** The old cluster, kept. */
  former: `${folder}.${major}`,
})

export interface UpgradeOptions extends Omit<ClusterSurroundings, 'user' | 'webhookUser'> {
  dataDir: string
  log: Log
  /** Called with a sentence about the next step. */
  say: (step: string) => void
}

export interface Upgrade {
  from: number
  to: number
  /** The folder of the old cluster. */
  former: string
}

/**
 * Moves the cluster of a data directory to the newest installed version; undefined when it has that one. The caller holds the lock of the
 * data directory. An upgrade may be killed at any moment: the old cluster is in force until the new one is complete, and is kept afterwards.
 *
 *     db (old) ── pg_upgrade copies ──► db.upgrading ── checked ──► db.upgraded
 *     then: db ──► db.<old version>, db.upgraded ──► db
 *
 * If it is killed before `db` is renamed, the next upgrade begins anew; after that the next start or upgrade completes it
 * ({@link completeUpgrade}). Throws `unavailable` with what to do.
 */
export async function upgradeCluster(options: UpgradeOptions): Promise<Upgrade | undefined> {
  const path = join(options.dataDir, 'db')
  try {
    return await upgradeIn(path, options)
  } catch (error) {
    throw explained(error, path)
  }
}

async function upgradeIn(path: string, options: UpgradeOptions): Promise<Upgrade | undefined> {
  const { log, say, group, socketDir } = options
  const user = await findSystemUser('database')
  const webhookUser = await findSystemUser('webhooks')
  const folder = await clusterFolder(path)
  await completeUpgrade(folder, group, log)
  const from = await clusterVersion(folder, user)
  if (from === undefined) {
    throw new ServiceError('unavailable', `there is no database in ${folder}: the first start of the server makes it`)
  }
  const [old, next] = [await binariesOf(from, folder), await newestBinaries()]
  if (next.major <= from) return undefined
  const parts = partsOf(folder, from)
  await assertRoomForName(folder, parts.former)
  await assertDurable(folder)
  const surroundings = { ...options, user, webhookUser }
  await makeSocketDir(surroundings)
  await mkdir(shownUpgrade(socketDir), { recursive: true, mode: 0o755 })
  // The folder may have come from another data directory.
  await writeSettings(folder, surroundings)
  const before = { ...surroundings, folder, binaries: old }
  const after = { ...surroundings, folder: parts.draft, binaries: next, logFile: `${folder}.log` }
  try {
    say(`reading the database of PostgreSQL ${from}`)
    const running = await runningPostmaster(folder, socketDir)
    if (running !== undefined) await stopPostmaster(running.pid, folder, stopGraceMs)
    // This also recovers a killed cluster: pg_upgrade takes only one that was stopped.
    const content = await whileRunning(before, async () => {
      await assertSpace(folder, socketDir)
      return await contentOf(socketDir)
    })
    say(`making an empty database of PostgreSQL ${next.major}`)
    await fillFolder(parts.draft, next, surroundings)
    await copyOwnSettings(folder, parts.draft, user)
    say('copying the data')
    await copyData(old, next, folder, parts.draft, surroundings)
    say('reading all of the copy')
    await whileRunning(after, async () => {
      assertSame(content, await contentOf(socketDir), from, next.major)
      await withClient({ connectionString: adminUrl(socketDir, databaseName) }, (client) => client.query('analyze'))
    })
  } catch (error) {
    await group?.open()
    await rm(parts.draft, { recursive: true, force: true })
    throw error
  } finally {
    await group?.remove()
    await rm(socketDir, { recursive: true, force: true })
  }
  await rm(parts.whole, { recursive: true, force: true })
  await renameDurably(parts.draft, parts.whole)
  await renameDurably(folder, parts.former)
  await renameDurably(parts.whole, folder)
  return { from, to: next.major, former: parts.former }
}

/** Completes an upgrade that was killed between its last two steps, or removes what an upgrade that was killed earlier has left. */
export async function completeUpgrade(folder: string, group: ProgramGroup | undefined, log: Log): Promise<void> {
  const { draft, whole } = partsOf(folder, 0)
  const [isThere, isWhole, isDraft] = await Promise.all([folder, whole, draft].map(exists))
  if (!isThere && isWhole) {
    await renameDurably(whole, folder)
    log.info({ folder }, 'an interrupted upgrade of the database is completed')
  } else if (isWhole) await rm(whole, { recursive: true, force: true })
  if (!isDraft) return
  // The draft may still run. Opening the group ends it.
  await group?.open()
  await rm(draft, { recursive: true, force: true })
}

/** Copies the operator's settings. Follows no link, as the cluster's user, who gets the new file, may have put one there. */
async function copyOwnSettings(from: string, to: string, user: SystemUser): Promise<void> {
  const path = join(from, ownSettingsFile)
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
    await writeOwned(join(to, ownSettingsFile), await file.readFile('utf8'), user)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return
    if (code !== 'ELOOP') throw error
    throw new ServiceError('unavailable', `${path} is a link: put the settings themselves there`, { cause: error })
  }
}

async function assertRoomForName(folder: string, former: string): Promise<void> {
  if (await exists(former)) {
    throw new ServiceError(
      'unavailable',
      `${former}, where the present database is to be kept, exists already: move it away, or remove it if an upgrade has left it`,
    )
  }
  const [own, above] = await Promise.all([folder, dirname(folder)].map((path) => stat(path)))
  if (own?.dev !== above?.dev) {
    const rule = 'the new database is made beside it, on the same file system'
    throw new ServiceError('unavailable', `${folder} is a mount: make it a folder of the mount, since ${rule}`)
  }
}

async function assertSpace(folder: string, socketDir: string): Promise<void> {
  const bytes = await withClient({ connectionString: adminUrl(socketDir) }, async (client) => {
    const { rows } = await client.query<{ bytes: string }>(
      'select sum(pg_database_size(oid)) as bytes from pg_database',
    )
    return Number(rows[0]?.bytes)
  })
  const { bavail, bsize } = await statfs(dirname(folder))
  const needed = bytes + emptyClusterBytes
  if (bavail * bsize >= needed) return
  const [free, wanted] = [bavail * bsize, needed].map((size) => Math.ceil(size / mebibyte))
  throw new ServiceError('unavailable', `the upgrade needs ${wanted} MB beside ${folder}, where ${free} MB are free`)
}

/** Runs the cluster during `work`. */
async function whileRunning<Result>(
  options: Parameters<typeof startPostmaster>[0],
  work: () => Promise<Result>,
): Promise<Result> {
  const pid = await startPostmaster(options)
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof pg.DatabaseError)) throw error
    const what = `the database of PostgreSQL ${options.binaries.major} in ${options.folder} cannot be read`
    throw new ServiceError('unavailable', `${what}, and nothing is changed: ${error.message}`, { cause: error })
  } finally {
    await stopPostmaster(pid, options.folder, stopGraceMs)
  }
}

/** Counts the rows of each table of all databases but the templates. The count reads all pages, whose checksums are checked. */
async function contentOf(socketDir: string): Promise<Map<string, number>> {
  const names = await withClient({ connectionString: adminUrl(socketDir) }, async (client) => {
    const { rows } = await client.query<{ name: string }>(
      'select datname as name from pg_database where not datistemplate order by datname',
    )
    return rows.map(({ name }) => name)
  })
  const content = new Map<string, number>()
  for (const name of names) {
    await withClient({ connectionString: adminUrl(socketDir, encodeURIComponent(name)) }, async (client) => {
      const { rows: tables } = await client.query<{ table: string }>(
        `select format('%I.%I', schemaname, tablename) as table from pg_tables
          where schemaname not in ('pg_catalog', 'information_schema') order by 1`,
      )
      for (const { table } of tables) {
        const { rows } = await client.query<{ count: string }>(`select count(*) from ${table}`)
        content.set(`${name}: ${table}`, Number(rows[0]?.count))
      }
    })
  }
  return content
}

function assertSame(before: Map<string, number>, after: Map<string, number>, from: number, to: number): void {
  const differing = [...new Set([...before.keys(), ...after.keys()])].filter((table) => {
    return before.get(table) !== after.get(table)
  })
  if (differing.length === 0) return
  const told = differing.map((table) => `${table} (${before.get(table) ?? 'none'}, ${after.get(table) ?? 'none'})`)
  throw new ServiceError(
    'unavailable',
    `the copy differs from the database of PostgreSQL ${from}, which stays in force; rows of ${from} and ${to}: ${told.join(', ')}`,
  )
}

/** Runs pg_upgrade. Its programs end with this process, so that the next upgrade or start meets none. */
async function copyData(
  old: Binaries,
  next: Binaries,
  folder: string,
  draft: string,
  surroundings: ClusterSurroundings,
): Promise<void> {
  const { socketDir, group } = surroundings
  const words = [
    `${next.folder}/pg_upgrade`,
    `--old-bindir=${old.folder}`,
    `--new-bindir=${next.folder}`,
    `--old-datadir=${shownFolder(socketDir)}`,
    `--new-datadir=${shownUpgrade(socketDir)}`,
    `--socketdir=${socketDir}`,
    `--username=${adminRole}`,
    '--copy',
  ]
  const shown = [
    [folder, shownFolder(socketDir)],
    [draft, shownUpgrade(socketDir)],
  ] as const
  const confinement = { shown, endsWithStarter: true, ...defined({ groupFolders: await group?.open() }) }
  const failure = `the database cannot be moved from PostgreSQL ${old.major} to ${next.major}, and stays as it is`
  // pg_upgrade writes to its working folder.
  await runProgram(confined(words, surroundings, confinement), failure, { cwd: socketDir })
}

async function exists(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return false
      throw error
    },
  )
}
