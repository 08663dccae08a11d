import { spawn } from 'node:child_process'
import { type FileHandle, open, readFile, readlink, rename, rm, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { ServiceError } from '../errors.ts'
import { adminUrl, withClient } from './address.ts'
import type { Binaries } from './binaries.ts'
import { confined, shownFolder, type Surroundings } from './confinement.ts'
import { programEnvironment, reasonIn } from './programs.ts'
import { socketPort } from './settings.ts'

/** How long a postmaster may say nothing at all. A recovery after a crash reports its progress. */
const silenceMsMax = 60_000
/** How long a postmaster may refuse every session for a reason of its own, such as a file that it cannot read. */
const refusalMsMax = 5_000
/** PostgreSQL's message when it restarts all its processes because one crashed. A start that does this again and again never ends. */
const crashMark = 'all server processes terminated; reinitializing'
const crashesMax = 3
const answerMsMax = 5_000
const pollMs = 20
const endMs = 10_000
const logBytesMax = 1024 * 1024
/** More than a start needs. */
const leastFreeBytes = 1024 * 1024

/** The first process of a running cluster. */
export interface Postmaster {
  pid: number
  /** The folder of its socket. */
  socketDir: string
}

/**
 * The postmaster that runs on a cluster's folder, by `postmaster.pid`. Undefined when the file is absent or names another process, as after a
 * loss of power. Throws `unavailable` for a postmaster that somebody else has started: two on one folder would destroy it.
 */
export async function runningPostmaster(folder: string, socketDir: string): Promise<Postmaster | undefined> {
  const text = await readFile(`${folder}/postmaster.pid`, 'utf8').catch(() => '')
  const [pid = '', its, , , named = ''] = text.split('\n')
  if (!/^\d{1,10}$/.test(pid) || !(await isPostmaster(Number(pid), folder))) return undefined
  // A postmaster of ours names the folder by the path under which it was shown.
  if (its !== shownFolder(socketDir)) {
    throw new ServiceError(
      'unavailable',
      `the database in ${folder} is used by process ${pid}, a PostgreSQL that another server or program has started: end that first`,
    )
  }
  return { pid: Number(pid), socketDir: named }
}

/**
 * Whether a process is the postmaster of a folder. Looks at its working folder: PostgreSQL changes to the cluster's, whatever path that has in
 * the process's mount namespace. A process that has ended has none, even before its parent has noticed.
 */
export async function isPostmaster(pid: number, folder: string): Promise<boolean> {
  const [program, its, own] = await Promise.all([
    readlink(`/proc/${pid}/exe`).catch(() => ''),
    stat(`/proc/${pid}/cwd`).catch(() => undefined),
    stat(folder).catch(() => undefined),
  ])
  // An upgrade of the package deletes the program that runs.
  if (!/\/postgres(?: \(deleted\))?$/.test(program)) return false
  return its !== undefined && its.dev === own?.dev && its.ino === own.ino
}

/** How a postmaster is started. */
export interface PostmasterOptions extends Surroundings {
  /** The real path of the files. */
  folder: string
  binaries: Binaries
  /** Gets its output appended. Default: the file beside the folder. */
  logFile?: string
  signal?: AbortSignal
}

/** Starts the first process of a cluster and waits until it takes connections. Returns its pid. Throws `unavailable` with its reason. */
export async function startPostmaster(options: PostmasterOptions): Promise<number> {
  const { folder, socketDir, binaries, group, signal, logFile = `${folder}.log` } = options
  if ((await runningPostmaster(folder, socketDir)) === undefined) {
    // PostgreSQL does not start while the pid in one of them is that of another process, or of a killed postmaster that nobody has waited for.
    const left = [join(folder, 'postmaster.pid'), join(socketDir, `.s.PGSQL.${socketPort}.lock`)]
    await Promise.all(left.map((file) => rm(file, { force: true })))
  }
  // Sessions of a killed postmaster notice its end a moment later, and would prevent the next start.
  const groupFolders = await group?.open()
  await using log = await openLog(logFile)
  const { size: before } = await log.stat()
  const words = [`${binaries.folder}/postgres`, '-D', shownFolder(socketDir)]
  const shown = [[folder, shownFolder(socketDir)]] as const
  const [program = '', ...argv] = confined(words, options, { shown, groupFolders: groupFolders ?? [] })
  const child = spawn(program, argv, {
    detached: true,
    cwd: '/',
    env: { ...programEnvironment(), PG_OOM_ADJUST_FILE: '/proc/self/oom_score_adj' },
    stdio: ['ignore', log.fd, log.fd],
  })
  child.unref()
  let ended: string | undefined
  child.once('error', (error) => (ended = error.message))
  child.once('exit', (status, by) => (ended = by ?? `status ${status}`))
  let saidMs = performance.now()
  for (;;) {
    if (signal?.aborted) {
      child.kill('SIGQUIT')
      signal.throwIfAborted()
    }
    const saidNow = async () => (await readFile(logFile)).subarray(before).toString()
    if (ended !== undefined) {
      const said = reasonIn(await saidNow())
      const reason = said || ((await isFull(folder)) ? 'the disk is full' : `see ${logFile}`)
      throw new ServiceError('unavailable', `the database in ${folder} does not start (${ended}): ${reason}`)
    }
    const { state, reason } = await answer(socketDir)
    if (state === 'ready') return child.pid ?? 0
    if (state === 'starting') {
      saidMs = performance.now()
      const text = await saidNow()
      if (text.split(crashMark).length > crashesMax) {
        child.kill('SIGQUIT')
        throw new ServiceError('unavailable', `the database in ${folder} crashes at each start: ${reasonIn(text)}`)
      }
    }
    const silentMs = performance.now() - saidMs
    if (silentMs > silenceMsMax || (state === 'refuses' && silentMs > refusalMsMax)) {
      child.kill('SIGQUIT')
      const why = reason === undefined ? 'does not answer' : `refuses sessions: ${reason}`
      throw new ServiceError('unavailable', `the database in ${folder} was started and ${why}`)
    }
    await sleep(pollMs)
  }
}

/**
 * Ends a postmaster and waits for its end. At first it ends sessions and writes a checkpoint; after `graceMs` it is stopped at once, and the
 * next start recovers.
 */
export async function stopPostmaster(pid: number, folder: string, graceMs: number): Promise<void> {
  for (const [signal, waitMs] of [
    ['SIGINT', graceMs],
    ['SIGQUIT', endMs],
    ['SIGKILL', endMs],
  ] as const) {
    if (!(await isPostmaster(pid, folder))) return
    try {
      process.kill(pid, signal)
    } catch {
      // It has ended meanwhile.
    }
    if (await isGoneWithin(pid, folder, waitMs)) return
  }
}

async function isGoneWithin(pid: number, folder: string, waitMs: number): Promise<boolean> {
  const deadlineMs = performance.now() + waitMs
  while (performance.now() < deadlineMs) {
    if (!(await isPostmaster(pid, folder))) return true
    await sleep(pollMs)
  }
  return false
}

/** Where nothing can be written, PostgreSQL does not log why. */
async function isFull(folder: string): Promise<boolean> {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize < leastFreeBytes
}

/** Opens the cluster's log, beside its folder, where only root writes. A log that got long is kept as `.old`. */
async function openLog(path: string): Promise<FileHandle> {
  const { size } = await stat(path).catch(() => ({ size: 0 }))
  if (size > logBytesMax) await rename(path, `${path}.old`)
  return await open(path, 'a', 0o600)
}

/** SQLSTATE `cannot_connect_now`: PostgreSQL recovers after a crash, for as long as that takes, or it ends. */
const cannotConnectNow = '57P03'

interface Answer {
  state: 'ready' | 'starting' | 'refuses' | 'silent'
  /** The reason of a refusal. */
  reason?: string
}

/** The answer of a cluster to a new connection. */
export async function answer(socketDir: string): Promise<Answer> {
  const config = {
    connectionString: adminUrl(socketDir),
    connectionTimeoutMillis: answerMsMax,
    query_timeout: answerMsMax,
  }
  try {
    await withClient(config, (client) => client.query('select 1'))
    return { state: 'ready' }
  } catch (error) {
    if (!(error instanceof pg.DatabaseError)) return { state: 'silent' }
    return error.code === cannotConnectNow ? { state: 'starting' } : { state: 'refuses', reason: error.message }
  }
}
