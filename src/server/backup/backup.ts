/**
 * `npm run backup DIR`: copies all that a running server has into a folder, from the second time on what has changed. See
 * `docs/operate/operations.md`. `npm run backup -- --forget` removes what the disk pool keeps for the next one.
 */
import { realpath } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join, resolve } from 'node:path'
import { ServiceError } from '../../errors.ts'
import { ownVersion } from '../../lib/version.ts'
import { dumpCommand } from '../../postgres/index.ts'
import { type CutSubvolume, draftOf } from '../../runtime/index.ts'
import { type Config, readConfig } from '../config.ts'
import { idIn } from '../installation.ts'
import { archiveFiles, archiveImages, imagesIn } from './archives.ts'
import { BackupConnection } from './connection.ts'
import { BackupFolder, SourceError } from './folder.ts'
import { formatNumber, type Manifest } from './manifest.ts'
import { StreamPlan } from './plan.ts'
import { runProgramOfOperator } from '../operator-program.ts'
import type { CutAnswer } from './wire.ts'

const usage = 'usage: npm run backup DIR, or npm run backup -- --forget'
const mebibyte = 1024 * 1024
/** Exit status of a backup that lacks only what could not be read. */
const incompleteStatus = 3

async function main(words: readonly string[]): Promise<number> {
  const [given] = words
  if (words.length !== 1 || given === undefined || given === '') throw new ServiceError('invalid_request', usage)
  if (given.startsWith('-') && given !== '--forget') throw new ServiceError('invalid_request', usage)
  if (process.getuid?.() !== 0) throw new ServiceError('forbidden', 'must run as root, as the server does')
  const config = readConfig(process.env)
  if (given === '--forget') {
    using connection = await BackupConnection.open(config.dataDir)
    await connection.ask({ do: 'drop', but: [] })
    console.log('The disk pool keeps nothing for backups any more; the next one copies everything.')
    return 0
  }
  await assertElsewhere(given, config)
  await using folder = await BackupFolder.forBackup(given)
  return await backUp(folder, config)
}

/** A backup on the disk of the data directory is lost with it, and one in it would be restored into itself. */
async function assertElsewhere(given: string, { dataDir }: Config): Promise<void> {
  const own = await realpath(dataDir).catch(() => dataDir)
  const path = await realpath(resolve(given)).catch(() => resolve(given))
  if (`${path}/`.startsWith(`${own}/`)) {
    throw new ServiceError(
      'invalid_request',
      `DIR: ${given} is in the data directory ${dataDir}: give a folder of another disk`,
    )
  }
}

async function backUp(folder: BackupFolder, config: Config): Promise<number> {
  const installation = await idIn(join(config.dataDir, 'identity'))
  if (installation === undefined) throw new ServiceError('not_found', `${config.dataDir} holds no data of a server`)
  const { manifest: last } = folder
  if (last !== undefined && last.installation !== installation) {
    throw new ServiceError(
      'conflict',
      `DIR: ${folder.path} holds a backup of another server (${last.host}): give another one`,
    )
  }
  using connection = await BackupConnection.open(config.dataDir)
  const stopped = new AbortController()
  const stop = () => {
    stopped.abort(new ServiceError('unavailable', 'the backup was stopped; the one before it is whole'))
    connection[Symbol.dispose]()
  }
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(name, stop)
  const signal = AbortSignal.any([stopped.signal, connection.signal])
  try {
    const answer = await connection.cut(last?.subvolumes ?? {})
    const { manifest, written } = await copy(folder, config, { answer, connection, signal, installation })
    await connection.ask({ do: 'keep' })
    await folder.commit(manifest)
    // A snapshot that is not removed now costs space until the next backup.
    const kept = Object.values(manifest.subvolumes).map(({ id }) => id)
    await connection.ask({ do: 'drop', but: kept }).catch((error: unknown) => {
      console.error(`backup: the server keeps snapshots of earlier backups until the next one: ${String(error)}`)
    })
    return report(manifest, { written, heldMs: answer.heldMs, isFirst: last === undefined })
  } catch (error) {
    await folder.abandon()
    stopped.signal.throwIfAborted()
    throw error
  }
}

interface Copying {
  answer: CutAnswer
  connection: BackupConnection
  signal: AbortSignal
  installation: string
}

async function copy(
  folder: BackupFolder,
  { dataDir, imageDir }: Config,
  { answer, connection, signal, installation }: Copying,
): Promise<{ manifest: Manifest; written: number }> {
  const { cut, database: source } = answer
  const createdAt = new Date().toISOString()
  const { argv, env } = await dumpCommand(source)
  const dump = await folder.writeOutput(folder.freshName('database'), argv, { env, signal })
  await connection.ask({ do: 'release' })
  const records = await folder.write(folder.freshName('records'), JSON.stringify(cut.records))
  const files = await archiveFiles(folder, dataDir, signal)
  const { images, missing } = await archiveImages(folder, { imageDir, names: imagesIn(cut.records), signal })
  const unreadable = Object.fromEntries(missing.map((name) => [`image ${name}`, `it is not in ${imageDir}`]))
  const plan = new StreamPlan(cut.subvolumes, cut.kept, folder.manifest)
  let written = dump.bytes + records.bytes + files.bytes
  const drafts = new Set(cut.subvolumes.filter(({ isNew }) => isNew).map(({ id }) => id))
  const snapshotOf = (id: string) => join(cut.folder, drafts.has(id) ? draftOf(id) : id)
  for (const subvolume of plan.missing) {
    try {
      written += await send(folder, plan, subvolume, { snapshotOf, signal })
    } catch (error) {
      // The disk of one sandbox must not keep the others out of the backup.
      if (!(error instanceof SourceError)) throw error
      unreadable[subvolume.path] = error.message
    }
  }
  const fresh = Object.entries(images).filter(([name]) => folder.manifest?.images[name] === undefined)
  for (const [, { bytes }] of fresh) written += bytes
  const manifest: Manifest = {
    format: formatNumber,
    atoll: ownVersion(),
    installation,
    host: hostname(),
    createdAt,
    files,
    records,
    database: { ...dump, major: source.major },
    images,
    ...plan.result(),
    unreadable,
  }
  return { manifest, written }
}

/** Returns the bytes that were written. */
async function send(
  folder: BackupFolder,
  plan: StreamPlan,
  subvolume: CutSubvolume,
  { snapshotOf, signal }: { snapshotOf: (id: string) => string; signal: AbortSignal },
): Promise<number> {
  const parent = plan.parentOf(subvolume)
  const base = parent === undefined ? [] : ['-p', snapshotOf(parent)]
  const argv = ['btrfs', 'send', '--quiet', ...base, snapshotOf(subvolume.id)] as [string, ...string[]]
  const part = await folder.writeOutput(`streams/${subvolume.id}`, argv, { signal })
  plan.add(subvolume, part, parent)
  return part.bytes
}

function report(
  { subvolumes, unreadable }: Manifest,
  { written, heldMs, isFirst }: { written: number; heldMs: number; isFirst: boolean },
): number {
  const kind = isFirst ? 'everything' : 'what has changed'
  console.log(
    `The backup is complete: ${Math.ceil(written / mebibyte)} MB written, ${kind}; ${Object.keys(subvolumes).length} subvolumes in it.`,
  )
  console.log(`Changes of sandboxes waited ${heldMs} ms; nothing was stopped.`)
  for (const [path, why] of Object.entries(unreadable)) console.error(`backup: NOT in the backup: ${path}: ${why}`)
  return Object.keys(unreadable).length === 0 ? 0 : incompleteStatus
}

await runProgramOfOperator('backup', main)
