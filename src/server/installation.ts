import { randomUUID, createHash } from 'node:crypto'
import { open, readFile, rename, rm, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError } from '../errors.ts'
import { lockName } from '../lib/process-lock.ts'
import { run } from '../runtime/command.ts'
import { openStore, type Store, type StoreOptions } from '../store/index.ts'
import type { Config } from './config.ts'

const syncTimeoutMs = 300_000

type Places = Pick<Config, 'dataDir' | 'imageDir' | 'databaseUrl'>

/**
 * Opens the database of this data directory. Both store the id of one installation, so neither can be used with a wrong counterpart:
 *
 *     none ── identity.new ──► begun ── row in the database ── rename to identity ──► joined
 *
 * The next start completes an interrupted one. Throws `unavailable` with instructions, and leaves the database unchanged, when only one of
 * them has an id, or when the ids differ.
 */
export async function openOwnStore(places: Places, events: Omit<StoreOptions, 'admit'> = {}): Promise<Store> {
  const { dataDir } = places
  const files = { joined: join(dataDir, 'identity'), begun: join(dataDir, 'identity.new') }
  const joined = await idIn(files.joined)
  const begun = joined === undefined ? await idIn(files.begun) : undefined
  const store = await openStore(places, {
    ...events,
    admit: (found) => {
      const isOwn = found === joined || (joined === undefined && found === begun)
      if (!isOwn) throw refusal(places, joined, found, files.joined)
    },
  })
  try {
    if (joined === undefined) await joinStore(store, files, dataDir, begun)
    else await rm(files.begun, { force: true })
    return store
  } catch (error) {
    await store.close()
    throw error
  }
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
  // The embedded database does not sync to the disk: without its row, the renamed file would make the next start refuse the database.
  await run(['sync', '--file-system', dataDir], { timeoutMs: syncTimeoutMs })
  await rename(files.begun, files.joined)
}

/** The id in a file; undefined without the file. */
async function idIn(file: string): Promise<string | undefined> {
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

/** The database in words, without the password. */
export function databaseName({ dataDir, databaseUrl }: Places): string {
  if (databaseUrl === undefined) return `the embedded database in ${join(dataDir, 'db')}`
  const { host, pathname, searchParams } = new URL(databaseUrl)
  const server = host === '' ? (searchParams.get('host') ?? 'localhost') : host
  return `the database ${decodeURIComponent(pathname.slice(1))} on ${server}`
}

/** Take it before the embedded database is opened. Throws `unavailable` when another server holds it. */
export async function lockDataDir(dataDir: string): Promise<AsyncDisposable> {
  const hash = createHash('sha256')
    .update(await realpath(dataDir))
    .digest('hex')
    .slice(0, 16)
  const lock = await lockName(`atoll-server-${hash}`)
  if (!lock) throw new ServiceError('unavailable', `another server runs on the data directory ${dataDir}`)
  return lock
}
