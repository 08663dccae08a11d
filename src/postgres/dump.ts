import { ServiceError } from '../errors.ts'
import { installedBinaries, newestBinaries } from './binaries.ts'
import { programEnvironment, runProgram } from './programs.ts'

/** The database of a dump, at one moment. */
export interface DumpSource {
  databaseUrl: string
  /** The id of an exported snapshot. */
  id: string
  /** The major version of the server. */
  major: number
}

/** The command that prints a database in the custom format of `pg_dump`. Throws `unavailable` when no installed version reads this server. */
export async function dumpCommand({ databaseUrl, id, major }: DumpSource): Promise<{
  argv: [string, ...string[]]
  env: NodeJS.ProcessEnv
}> {
  const installed = await installedBinaries()
  // Prefer the server's own version, whose dumps most machines can read.
  const binaries = installed.find((each) => each.major === major) ?? installed.findLast((each) => each.major > major)
  if (binaries === undefined) {
    throw new ServiceError(
      'unavailable',
      `no pg_dump of PostgreSQL ${major} or newer is installed: install postgresql-${major}`,
    )
  }
  const { address, env } = withoutPassword(databaseUrl)
  const options = ['--format=custom', '--no-owner', '--no-privileges', `--snapshot=${id}`]
  return { argv: [`${binaries.folder}/pg_dump`, `--dbname=${address}`, ...options], env }
}

/** Fills an empty database from such a dump, wholly or not at all. Throws `unavailable` with the reason. */
export async function restoreDump(file: string, databaseUrl: string): Promise<void> {
  const { folder } = await newestBinaries()
  const { address, env } = withoutPassword(databaseUrl)
  const options = ['--no-owner', '--no-privileges', '--exit-on-error', '--single-transaction']
  const argv = [`${folder}/pg_restore`, `--dbname=${address}`, ...options, file]
  await runProgram(argv, 'the database of the backup cannot be restored', { env })
}

/** Moves the password of an address to the environment: everybody on the machine may read a command line. */
function withoutPassword(databaseUrl: string): { address: string; env: NodeJS.ProcessEnv } {
  const environment = programEnvironment()
  const [found, password] = /^postgres(?:ql)?:\/\/[^/@:]*:([^/@]*)@/.exec(databaseUrl) ?? []
  if (found === undefined || password === undefined) return { address: databaseUrl, env: environment }
  const address = databaseUrl.replace(found, found.replace(/:[^:]*@$/, '@'))
  return { address, env: { ...environment, PGPASSWORD: decodeURIComponent(password) } }
}
