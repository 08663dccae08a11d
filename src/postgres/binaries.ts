import { readdir } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { ServiceError } from '../errors.ts'

/** Where Debian and Ubuntu put the programs of each version: `<folder>/<major>/bin`. */
const debianFolder = '/usr/lib/postgresql'

/** The oldest version whose settings and SQL are used here. */
const majorMin = 14

/** The programs of one major version of PostgreSQL. */
export interface Binaries {
  major: number
  /** Absolute, such as `/usr/lib/postgresql/15/bin`. */
  folder: string
}

/** The versions of PostgreSQL that are installed, oldest first. */
export async function installedBinaries(): Promise<Binaries[]> {
  const names = await readdir(debianFolder).catch(() => [])
  return names
    .filter((name) => /^\d{1,3}$/.test(name))
    .map((name) => ({ major: Number(name), folder: `${debianFolder}/${name}/bin` }))
    .filter((binaries) => ['postgres', 'initdb'].every((name) => existsSync(`${binaries.folder}/${name}`)))
    .toSorted((one, other) => one.major - other.major)
}

/** The newest installed version, for a cluster that is made now. Throws `unavailable` with the remedy. */
export async function newestBinaries(): Promise<Binaries> {
  const newest = (await installedBinaries()).at(-1)
  if (newest === undefined || newest.major < majorMin) {
    throw new ServiceError(
      'unavailable',
      `no PostgreSQL server of version ${majorMin} or newer is installed in ${debianFolder}: npm run setup installs it, or set DATABASE_URL`,
    )
  }
  return newest
}

/** The newest installed version when it is newer than this one. */
export async function newerBinaries(major: number): Promise<Binaries | undefined> {
  const newest = (await installedBinaries()).at(-1)
  return newest !== undefined && newest.major > major ? newest : undefined
}

/** The programs of a cluster of this version. Throws `unavailable` with the remedy. */
export async function binariesOf(major: number, folder: string): Promise<Binaries> {
  const installed = await installedBinaries()
  const found = installed.find((binaries) => binaries.major === major)
  if (found !== undefined) return found
  const others = installed.map((binaries) => binaries.major).join(', ')
  throw new ServiceError(
    'unavailable',
    `the database in ${folder} is of PostgreSQL ${major}, which is not installed${others === '' ? '' : ` (installed: ${others})`}: install postgresql-${major}`,
  )
}
