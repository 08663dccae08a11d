import { createHash } from 'node:crypto'
import { realpath } from 'node:fs/promises'
import { ServiceError } from '../errors.ts'
import { lockName } from '../lib/process-lock.ts'

/** Held before the database is opened, which takes no second process. Throws `unavailable` when another server has it. */
export async function lockDataDir(dataDir: string): Promise<AsyncDisposable> {
  const hash = createHash('sha256')
    .update(await realpath(dataDir))
    .digest('hex')
    .slice(0, 16)
  const lock = await lockName(`atoll-server-${hash}`)
  if (!lock) throw new ServiceError('unavailable', `another server runs on the data directory ${dataDir}`)
  return lock
}
