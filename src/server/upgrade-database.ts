/**
 * `npm run db:upgrade`: moves the private database to the newest PostgreSQL that is installed. It needs a stopped server and its
 * environment, and may be killed and repeated at any moment.
 */
import { ServiceError } from '../errors.ts'
import { upgradeCluster } from '../postgres/index.ts'
import { clusterPlace } from './cluster.ts'
import { readConfig } from './config.ts'
import { lockStopped } from './installation.ts'
import { runProgramOfOperator } from './operator-program.ts'

const log = {
  debug: () => undefined,
  info: (_facts: object, message: string) => console.log(message),
  warn: (_facts: object, message: string) => console.error(message),
  error: (_facts: object, message: string) => console.error(message),
}

async function main(words: readonly string[]): Promise<number> {
  if (words.length > 0) throw new ServiceError('invalid_request', 'usage: npm run db:upgrade (it takes no arguments)')
  const { dataDir, databaseUrl, limits } = readConfig(process.env)
  if (databaseUrl !== undefined) {
    throw new ServiceError(
      'invalid_request',
      'DATABASE_URL is set, so the server does not use the private database: upgrade your PostgreSQL server by its own means',
    )
  }
  if (process.getuid?.() !== 0) throw new ServiceError('forbidden', 'must run as root, as the server does')
  await using held = new AsyncDisposableStack()
  held.use(await lockStopped(dataDir))
  const say = (step: string) => console.log(`${step} …`)
  const upgrade = await upgradeCluster({ ...(await clusterPlace(dataDir, limits.database)), log, say })
  if (upgrade === undefined) {
    console.log('the database is of the newest PostgreSQL that is installed; nothing is to be done')
    return 0
  }
  const { from, to, former } = upgrade
  console.log(`The database is now one of PostgreSQL ${to}. Start the server.`)
  console.log(`That of PostgreSQL ${from} is kept in ${former}: remove it once all is well (rm -r ${former}).`)
  return 0
}

await runProgramOfOperator('db:upgrade', main)
