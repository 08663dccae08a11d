import { ServiceError } from '../../errors.ts'
import { lockName } from '../../lib/process-lock.ts'
import type { HostNames } from './names.ts'

/** Makes this process the only driver of a data directory. Throws `unavailable` when another server has it. */
export async function lockDataDir(names: HostNames): Promise<AsyncDisposable> {
  const lock = await lockName(`atoll-${names.hash}`)
  if (lock === undefined) {
    throw new ServiceError('unavailable', `another server runs on the data directory ${names.dataDir}`)
  }
  return lock
}
