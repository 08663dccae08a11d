import { readdir } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { isServiceError } from '../errors.ts'
import { findSystemUser } from '../lib/system-user.ts'
import { binariesOf, newerBinaries, newestBinaries } from './binaries.ts'
import { assertDurable, clusterFolder, clusterVersion } from './folder.ts'

/** What doctor says of the private database. A report of `fails` says what to do. */
export interface ClusterReport {
  state: 'works' | 'fails'
  found: string
}

/** Inspects the cluster of a data directory, which need not exist, and starts nothing. */
export async function inspectCluster(dataDir: string): Promise<ClusterReport> {
  try {
    return { state: 'works', found: await clusterFacts(dataDir) }
  } catch (error) {
    if (!isServiceError(error, 'unavailable')) throw error
    return { state: 'fails', found: error.message }
  }
}

async function clusterFacts(dataDir: string): Promise<string> {
  const user = await findSystemUser('database')
  await findSystemUser('webhooks')
  const folder = await clusterFolder(join(dataDir, 'db')).catch(() => undefined)
  const version = folder === undefined ? undefined : await clusterVersion(folder, user)
  if (folder === undefined || version === undefined) {
    const { major } = await newestBinaries()
    return `PostgreSQL ${major}; the first start makes one in ${dataDir}/db`
  }
  await assertDurable(folder)
  await binariesOf(version, folder)
  const newer = await newerBinaries(version)
  const formers = await formersOf(folder)
  return [
    `PostgreSQL ${version}, in ${folder}`,
    ...(newer === undefined ? [] : [`${newer.major} is installed: stop the server, then npm run db:upgrade`]),
    ...formers.map((former) => `an upgrade has kept ${former}: remove it once all is well`),
  ].join('; ')
}

async function formersOf(folder: string): Promise<string[]> {
  const names = await readdir(dirname(folder))
  const prefix = `${basename(folder)}.`
  return names
    .filter((name) => name.startsWith(prefix) && /^\d+$/.test(name.slice(prefix.length)))
    .map((name) => join(dirname(folder), name))
}
