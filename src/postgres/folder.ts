import { chmod, chown, mkdir, open, readFile, readlink, realpath, rename, rm, stat, statfs } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { ServiceError } from '../errors.ts'
import { syncFolder } from '../lib/sync-folder.ts'
import { defined } from '../lib/defined.ts'
import type { Binaries } from './binaries.ts'
import {
  adminRole,
  authentication,
  clusterSettings,
  mainSettings,
  ownSettings,
  ownSettingsFile,
  settingsFile,
} from './settings.ts'
import type { SystemUser } from '../lib/system-user.ts'
import { confined, shownFolder, type Surroundings } from './confinement.ts'
import { runProgram } from './programs.ts'

const initTimeoutMs = 300_000

/** File systems that lose data, or do not say when it is on the disk, by `f_type` of statfs(2). */
const unfit = new Map([
  [0x01_02_19_94, 'a tmpfs, which a reboot empties'],
  [0x85_84_58_f6, 'a ramfs, which a reboot empties'],
  [0x69_69, 'NFS, which does not say when a write is on the disk'],
  [0xff_53_4d_42, 'SMB, which does not say when a write is on the disk'],
  [0xfe_53_4d_42, 'SMB, which does not say when a write is on the disk'],
])

/** Why a file system of this `f_type` of statfs(2) is unfit for a database; undefined for a fit one. */
export function unfitFileSystem(type: number): string | undefined {
  return unfit.get(type)
}

/** Throws `unavailable` when the file system of this folder, or of the parent in which it will be made, is unfit for a database. */
export async function assertDurable(folder: string): Promise<void> {
  const { type } = await statfs(folder)
  const why = unfitFileSystem(type)
  if (why !== undefined) {
    throw new ServiceError(
      'unavailable',
      `the database cannot be on the file system of ${folder}, ${why}: choose another data directory with ATOLL_DATA_DIR`,
    )
  }
}

const diskFaults: Partial<Record<string, string>> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the quota of the disk is used up',
  EROFS: 'the file system is read-only',
  EIO: 'the disk fails',
}

/** Converts an error of the file system to `unavailable` with the folder of the database; returns any other error unchanged. */
export function explained(error: unknown, folder: string): unknown {
  const { code = '', path = folder } = error as NodeJS.ErrnoException
  const fault = diskFaults[code]
  if (fault === undefined) return error
  return new ServiceError('unavailable', `the database in ${folder} cannot be opened: ${fault} (${path})`, {
    cause: error,
  })
}

/** The folder of the cluster, existing or not: `path` with its link followed, since root writes in there. */
export async function clusterFolder(path: string): Promise<string> {
  const target = await readlink(path).catch(() => undefined)
  if (target === undefined) return join(await realpath(dirname(path)), basename(path))
  const folder = resolve(dirname(path), target)
  return await realpath(folder).catch(() => folder)
}

/** The major version of the cluster in a folder; undefined without a cluster. Throws `unavailable` for one that is not ours. */
export async function clusterVersion(folder: string, user: SystemUser): Promise<number | undefined> {
  const found = await stat(folder).catch(unlessMissing)
  if (found === undefined) return undefined
  const version = await readFile(join(folder, 'PG_VERSION'), 'utf8').catch(unlessMissing)
  if (version === undefined) {
    throw new ServiceError(
      'unavailable',
      `${folder} exists and holds no database: move it away, and the next start makes one`,
    )
  }
  if ((await stat(join(folder, settingsFile)).catch(unlessMissing)) === undefined) {
    throw new ServiceError(
      'unavailable',
      `${folder} holds a database that is not Atoll's private cluster, such as the embedded one of a version before 0.1.0, which cannot be read: move it away, and the next start makes a new one`,
    )
  }
  if (found.uid !== user.uid || (found.mode & 0o077) !== 0) {
    throw new ServiceError(
      'unavailable',
      `${folder} must belong to the user ${user.name} alone: chown --recursive ${user.name}: ${folder} && chmod 700 ${folder}`,
    )
  }
  if (!/^\d+\s*$/.test(version)) {
    throw new ServiceError('unavailable', `${folder}/PG_VERSION is damaged: restore the database from a backup`)
  }
  return Number(version)
}

/** Makes an empty cluster under another name and renames it, so that a killed start leaves nothing that looks like a database. */
export async function makeCluster(
  folder: string,
  binaries: Binaries,
  surroundings: ClusterSurroundings,
): Promise<void> {
  const unfinished = `${folder}.unfinished`
  await fillFolder(unfinished, binaries, surroundings)
  await renameDurably(unfinished, folder)
}

/** Makes an empty cluster in a folder, in place of what is there. */
export async function fillFolder(folder: string, binaries: Binaries, surroundings: ClusterSurroundings): Promise<void> {
  const { user, socketDir, group } = surroundings
  // Programs that a killed start or upgrade has left may still write there.
  const groupFolders = await group?.open()
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { mode: 0o700 })
  await chown(folder, user.uid, user.gid)
  const words = [
    `${binaries.folder}/initdb`,
    `--pgdata=${shownFolder(socketDir)}`,
    `--username=${adminRole}`,
    '--auth-local=peer',
    '--auth-host=reject',
    '--encoding=UTF8',
    '--locale=C.UTF-8',
    '--data-checksums',
    '--no-instructions',
  ]
  const shown = [[folder, shownFolder(socketDir)]] as const
  const initdb = confined(words, surroundings, { shown, endsWithStarter: true, ...defined({ groupFolders }) })
  await runProgram(initdb, `the database cannot be made in ${folder}`, { timeoutMs: initTimeoutMs })
  await writeOwned(join(folder, 'postgresql.conf'), mainSettings, user)
  await writeOwned(join(folder, ownSettingsFile), ownSettings, user)
  await writeSettings(folder, surroundings)
}

/** Renames a folder so that after a loss of power it has either name. */
export async function renameDurably(from: string, to: string): Promise<void> {
  await rename(from, to)
  await syncFolder(dirname(to))
}

/** What decides the settings of a cluster. */
export interface ClusterSurroundings extends Surroundings {
  /** Connections at a time: of the server, of backups, and of people. */
  connectionsMax: number
}

/** Writes the settings. Returns whether they differ from those that a running cluster has read. */
export async function writeSettings(folder: string, surroundings: ClusterSurroundings): Promise<boolean> {
  const { socketDir, user, connectionsMax } = surroundings
  const files = { [settingsFile]: clusterSettings({ socketDir, connectionsMax }), ...authentication(surroundings) }
  let isChanged = false
  for (const [name, text] of Object.entries(files)) {
    const path = join(folder, name)
    if ((await readFile(path, 'utf8').catch(unlessMissing)) === text) continue
    isChanged = true
    await writeOwned(path, text, user)
  }
  return isChanged
}

/** Makes the socket's folder, which only root, `user` and the process that sends webhooks can enter. Its group is also that of the socket. */
export async function makeSocketDir({ socketDir, user, webhookUser }: Surroundings): Promise<void> {
  await mkdir(shownFolder(socketDir), { recursive: true, mode: 0o755 })
  await chown(socketDir, user.uid, webhookUser.gid)
  await chmod(socketDir, 0o2710)
}

/** Replaces a file in a folder of `user`. Follows no link, as `user` may have put one there. */
export async function writeOwned(path: string, text: string, user: SystemUser): Promise<void> {
  const unfinished = `${path}.new`
  await rm(unfinished, { force: true })
  await using file = await open(unfinished, 'wx', 0o600)
  await file.writeFile(text)
  await file.chown(user.uid, user.gid)
  await file.sync()
  await rename(unfinished, path)
}

function unlessMissing(error: unknown): undefined {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
  throw error
}
