import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { backOff } from '../lib/async/retry.ts'
import type { Log } from '../lib/log.ts'
import { findSystemUser, type SystemUser } from '../lib/system-user.ts'
import { adminUrl, databaseUrl, withClient } from './address.ts'
import { type Binaries, binariesOf, newerBinaries, newestBinaries } from './binaries.ts'
import type { ProgramGroup } from './confinement.ts'
import {
  assertDurable,
  clusterFolder,
  clusterVersion,
  explained,
  makeCluster,
  makeSocketDir,
  writeSettings,
} from './folder.ts'
import { answer, isPostmaster, runningPostmaster, startPostmaster, stopPostmaster } from './postmaster.ts'
import { databaseName, databaseRole, webhookRole } from './settings.ts'
import { completeUpgrade } from './upgrade.ts'

const watchMs = 500
const stopGraceMs = 60_000
const restartDelay = { firstMs: 100, maxMs: 5_000 }
/** Connections beside those of the server: of the process that sends webhooks, of a backup, and of people. */
const otherConnections = 45

export interface ClusterOptions {
  dataDir: string
  /** The folder for its socket, which is made: a short path of this data directory alone. */
  socketDir: string
  /** Mounts below it are not shown to PostgreSQL. */
  hiddenDir: string
  /** The control group of the cluster. Absent in tests alone. */
  group?: ProgramGroup | undefined
  /** Connections of the server at a time. */
  connectionsMax: number
  /** Called before a new cluster is made. An error that it throws prevents that. */
  beforeCreate?: () => void
  log: Log
}

/**
 * PostgreSQL in `<data directory>/db`, on a socket that only root can reach. It is no child of the server: it outlives a killed server, and the
 * next start adopts it.
 *
 *     stopped ── start ──► up ── its first process ends ──► down ── started again ──► up
 *                          └── stop ──► stopped
 *
 * The caller holds the lock of the data directory.
 */
export class PrivateCluster {
  readonly #options: ClusterOptions
  readonly #found: Found
  readonly #stopping = new AbortController()
  #pid: number
  #stopped: Promise<void> | undefined
  #watching: Promise<void>

  private constructor(options: ClusterOptions, found: Found, pid: number) {
    this.#options = options
    this.#found = found
    this.#pid = pid
    this.#watching = this.#watch()
  }

  /** Makes the cluster where there is none, adopts one that runs, starts one that does not. Throws `unavailable` with the reason. */
  static async start(options: ClusterOptions): Promise<PrivateCluster> {
    const path = join(options.dataDir, 'db')
    try {
      return await openCluster(path, options, (found, pid) => new PrivateCluster(options, found, pid))
    } catch (error) {
      throw explained(error, path)
    }
  }

  /** Stops a cluster that a killed server has left, for a server that uses another database. Does nothing where none runs. */
  static async stopLeft({ dataDir, socketDir, group, log }: Omit<ClusterOptions, 'connectionsMax'>): Promise<void> {
    const folder = await clusterFolder(join(dataDir, 'db'))
    // Leave one that somebody else has started.
    const running = await runningPostmaster(folder, socketDir).catch(() => undefined)
    if (running === undefined) return
    log.info({ pid: running.pid }, 'the private database that a killed server has left is stopped')
    await stopPostmaster(running.pid, folder, stopGraceMs)
    await group?.remove()
    await rm(socketDir, { recursive: true, force: true })
  }

  /** The address for `openStore`. */
  get databaseUrl(): string {
    return databaseUrl(this.#options.socketDir)
  }

  /** What the process that sends webhooks connects with: its role owns nothing, and the address works for its user alone. */
  get webhooks(): { databaseUrl: string; role: string } {
    return { databaseUrl: databaseUrl(this.#options.socketDir, webhookRole), role: webhookRole }
  }

  /** The address for the role that may make databases and roles. */
  get adminUrl(): string {
    return adminUrl(this.#options.socketDir)
  }

  /** Stops PostgreSQL, which ends sessions and writes a checkpoint, and waits for its end. A repeat is harmless, even when the next one runs. */
  stop(): Promise<void> {
    return (this.#stopped ??= this.#end())
  }

  async #end(): Promise<void> {
    this.#stopping.abort()
    await this.#watching
    const { socketDir, group } = this.#options
    await stopPostmaster(this.#pid, this.#found.folder, stopGraceMs)
    await group?.remove()
    // Only after its end: the kernel removes a mount together with the folder on which it is.
    await rm(socketDir, { recursive: true, force: true })
  }

  /** Kills PostgreSQL without a wait, for a process that is about to end itself. The next start recovers. */
  kill(): void {
    this.#stopping.abort()
    try {
      process.kill(this.#pid, 'SIGQUIT')
    } catch {
      // It has ended.
    }
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stopping
    const { log, group } = this.#options
    const options = { ...this.#options, ...this.#found, signal }
    let kills = await memoryKills(group)
    for (let failures = 0; !signal.aborted;) {
      if (await isPostmaster(this.#pid, this.#found.folder)) {
        await sleep(watchMs, undefined, { signal, ref: false }).catch(() => undefined)
        const killsBefore = kills
        kills = await memoryKills(group)
        // PostgreSQL recovers by itself unless the kernel has killed its first process.
        if (kills > killsBefore) {
          const limitMB = (group?.memoryBytes ?? 0) / 2 ** 20
          log.error(
            { limitMB },
            'the kernel has ended a process of the database, which needed more memory than its limit',
          )
        }
        continue
      }
      log.error({ pid: this.#pid }, 'the database has ended by itself; it is started again')
      try {
        this.#pid = await startPostmaster(options)
        failures = 0
        log.info({ pid: this.#pid }, 'the database is back')
      } catch (error) {
        if (signal.aborted) return
        log.error({ err: error }, 'the database could not be started again')
        failures++
        await backOff(failures, restartDelay, signal)
      }
    }
  }
}

/** The cluster that a start finds, or makes. */
interface Found {
  /** The real path of the files. */
  folder: string
  user: SystemUser
  webhookUser: SystemUser
  binaries: Binaries
}

async function openCluster<Cluster>(
  path: string,
  options: ClusterOptions,
  made: (found: Found, pid: number) => Cluster,
): Promise<Cluster> {
  const { dataDir, log } = options
  const user = await findSystemUser('database')
  const webhookUser = await findSystemUser('webhooks')
  const folder = await clusterFolder(path)
  await completeUpgrade(folder, options.group, log)
  const version = await clusterVersion(folder, user)
  await assertDurable(version === undefined ? dataDir : folder)
  if (version === undefined) options.beforeCreate?.()
  const surroundings = { ...options, user, webhookUser, connectionsMax: options.connectionsMax + otherConnections }
  await makeSocketDir(surroundings)
  const binaries = version === undefined ? await newestBinaries() : await binariesOf(version, folder)
  if (version === undefined) await makeCluster(folder, binaries, surroundings)
  else await tellNewer(binaries, log)
  const isChanged = await writeSettings(folder, surroundings)
  const found = { folder, user, webhookUser, binaries }
  const start = { ...options, ...found }
  const pid = (await adoptPostmaster(start, isChanged)) ?? (await startPostmaster(start))
  // Also for an adopted cluster: the first start may have been killed before this.
  await makeDatabase(options.socketDir)
  return made(found, pid)
}

async function tellNewer({ major }: Binaries, log: Log): Promise<void> {
  const newer = await newerBinaries(major)
  if (newer === undefined) return
  const facts = { version: major, newer: newer.major }
  log.info(facts, 'a newer PostgreSQL than that of the database is installed: npm run db:upgrade moves to it')
}

/** Returns the pid of a running postmaster if it is in its control group, answers and has the present settings; otherwise stops it. */
async function adoptPostmaster(
  { folder, socketDir, group, log }: ClusterOptions & Found,
  isChanged: boolean,
): Promise<number | undefined> {
  const running = await runningPostmaster(folder, socketDir)
  if (running === undefined) return undefined
  const { pid } = running
  const isHeld = group === undefined || (await group.holds(pid))
  if (isHeld && !isChanged && running.socketDir === socketDir && (await answer(socketDir)).state === 'ready') {
    log.info({ pid }, 'the database that runs is adopted')
    return pid
  }
  log.info({ pid }, 'the database is started anew, for its settings or limits, or since it does not answer')
  await stopPostmaster(pid, folder, stopGraceMs)
  return undefined
}

async function memoryKills(group: ProgramGroup | undefined): Promise<number> {
  return (await group?.memoryKills()) ?? 0
}

/** Makes the roles and the database unless they exist. */
async function makeDatabase(socketDir: string): Promise<void> {
  await withClient({ connectionString: adminUrl(socketDir) }, async (client) => {
    const roles = [databaseRole, webhookRole]
    const { rows } = await client.query<{ roles: string[]; databases: number }>(
      `select array(select rolname::text from pg_roles where rolname = any($1)) as roles,
        (select count(*) from pg_database where datname = $2)::int as databases`,
      [roles, databaseName],
    )
    const missing = roles.filter((role) => rows[0]?.roles.includes(role) === false)
    for (const role of missing) await client.query(`create role ${role} login`)
    if (rows[0]?.databases === 0) await client.query(`create database ${databaseName} owner ${databaseRole}`)
  })
}
