import { ServiceError } from '../errors.ts'

/** Waits for a wake, which goes on when the wait is over. Throws `unavailable` then. */
export async function withinWakeWait<Result>(work: Promise<Result>, wakeWaitMs: number): Promise<Result> {
  const timeout = Promise.withResolvers<never>()
  const timer = setTimeout(() => {
    const message = 'the sandbox is still waking; try again'
    timeout.reject(new ServiceError('unavailable', message, { details: { waking: true, retryAfterSeconds: 1 } }))
  }, wakeWaitMs)
  try {
    return await Promise.race([work, timeout.promise])
  } finally {
    clearTimeout(timer)
  }
}
