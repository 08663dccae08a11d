import { randomUUID, createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { open, readFile, rename, rm, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import { isServiceError, ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { lockName } from '../lib/process-lock.ts'
import { run } from '../runtime/command.ts'
import { PrivateCluster } from '../postgres/index.ts'
import { silentLog } from '../lib/log.ts'
import { openStore, type Store, type StoreOptions } from '../store/index.ts'
import { clusterPlace, startCluster } from './cluster.ts'
import type { Config } from './config.ts'

const syncTimeoutMs = 300_000

interface Places extends Pick<Config, 'dataDir' | 'databaseUrl'> {
  limits?: Pick<Config['limits'], 'database'>
}

/**
 * Opens the database of this data directory: on its private cluster, which the end of the store stops, or on the server of `databaseUrl`. Both
 * the directory and the database store the id of one installation, so neither can be used with a wrong counterpart:
 *
 *     none ── identity.new ──► begun ── row in the database ── rename to identity ──► joined
 *
 * The next start completes an interrupted one. Throws `unavailable` with instructions, and leaves the database unchanged, when only one of
 * them has an id, or when the ids differ.
 */
export async function openOwnStore(
  places: Places,
  events: Omit<StoreOptions, 'admit' | 'limits'> = {},
): Promise<Store> {
  const { dataDir, limits: { database: limits } = {} } = places
  const { log = silentLog } = events
  await assertRestored(dataDir)
  const files = { joined: join(dataDir, 'identity'), begun: join(dataDir, 'identity.new') }
  const joined = await idIn(files.joined)
  const begun = joined === undefined ? await idIn(files.begun) : undefined
  const admit = (found: string | undefined) => {
    const isOwn = found === joined || (joined === undefined && found === begun)
    if (!isOwn) throw refusal(places, joined, found, files.joined)
  }
  await using opened = new AsyncDisposableStack()
  let { databaseUrl } = places
  let webhookAccess: StoreOptions['webhookAccess']
  if (databaseUrl === undefined) {
    const cluster = await startCluster(dataDir, { beforeCreate: () => admit(undefined), limits, log })
    opened.defer(() => cluster.stop())
    databaseUrl = cluster.databaseUrl
    webhookAccess = cluster.webhooks
  } else if (existsSync(join(dataDir, 'db'))) {
    const unused = { db: join(dataDir, 'db') }
    log.warn(unused, 'DATABASE_URL is used; the private database in the data directory is not')
    await PrivateCluster.stopLeft({ ...(await clusterPlace(dataDir, limits)), log })
  }
  const store = opened.use(await openStore(databaseUrl, { ...events, admit, ...defined({ limits, webhookAccess }) }))
  if (joined === undefined) await joinStore(store, files, dataDir, begun)
  else await rm(files.begun, { force: true })
  const all = opened.move()
  const close = () => all.disposeAsync()
  return { ...store, close, [Symbol.asyncDispose]: close }
}

/** Exists while a restore fills a data directory. */
export const restoringFile = 'restoring'

/** Throws `unavailable` in a data directory that a restore has not completed. */
async function assertRestored(dataDir: string): Promise<void> {
  if (!existsSync(join(dataDir, restoringFile))) return
  const what = `a restore into ${dataDir} was cut off, so it has a part of a backup only`
  throw new ServiceError('unavailable', `${what}: repeat npm run restore, which begins anew`)
}

async function joinStore(
  store: Store,
  files: { joined: string; begun: string },
  dataDir: string,
  begun: string | undefined,
): Promise<void> {
  const id = begun ?? randomUUID()
  if (begun === undefined) await writeId(files.begun, id)
  await store.joinInstallation(id)
  // The row must be on the disk before the file has its name, whatever the database's server promises.
  await run(['sync', '--file-system', dataDir], { timeoutMs: syncTimeoutMs })
  await rename(files.begun, files.joined)
}

/** The id in a file; undefined without the file. */
export async function idIn(file: string): Promise<string | undefined> {
  try {
    return (await readFile(file, 'utf8')).trim()
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  }
}

async function writeId(file: string, id: string): Promise<void> {
  await using handle = await open(file, 'w', 0o600)
  await handle.writeFile(`${id}\n`)
  await handle.sync()
}

function refusal(places: Places, joined: string | undefined, found: string | undefined, file: string): ServiceError {
  const { dataDir } = places
  const database = databaseName(places)
  const lines =
    found === undefined
      ? [
          `the data directory ${dataDir} belongs to another database than ${database}, which is empty or has never been used with it.`,
          'Start with the database that it was used with, restored from a backup if it is lost.',
          `To begin anew with this one, remove the file ${file}: sandboxes that are there then go to quarantine.`,
        ]
      : [
          `${database} belongs to another data directory than ${dataDir}${joined === undefined ? ', which has never been used with it' : ''}.`,
          'Start with the data directory and the database that were used together.',
          `If these are to belong together from now on, as after the loss of a disk: echo ${found} > ${file}`,
        ]
  return new ServiceError('unavailable', lines.join('\n  '))
}

/** The database for a message, without the password. */
export function databaseName({ dataDir, databaseUrl }: Places): string {
  if (databaseUrl === undefined) return `the private database in ${join(dataDir, 'db')}`
  const { host, pathname, searchParams } = new URL(databaseUrl)
  const server = host === '' ? (searchParams.get('host') ?? 'localhost') : host
  return `the database ${decodeURIComponent(pathname.slice(1))} on ${server}`
}

/** Take it before the database is opened. Throws `unavailable` when another server holds it. */
export async function lockDataDir(dataDir: string): Promise<AsyncDisposable> {
  const hash = createHash('sha256')
    .update(await realpath(dataDir))
    .digest('hex')
    .slice(0, 16)
  const lock = await lockName(`atoll-server-${hash}`)
  if (!lock) throw new ServiceError('unavailable', `another server runs on the data directory ${dataDir}`)
  return lock
}

/** Like `lockDataDir`, for a command that needs a stopped server. */
export async function lockStopped(dataDir: string): Promise<AsyncDisposable> {
  try {
    return await lockDataDir(dataDir)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') {
      throw new ServiceError('not_found', `there is no data directory ${dataDir}: give ATOLL_DATA_DIR`, {
        cause: error,
      })
    }
    if (!isServiceError(error, 'unavailable')) throw error
    throw new ServiceError('unavailable', `a server runs on the data directory ${dataDir}: stop it first`, {
      cause: error,
    })
  }
}
