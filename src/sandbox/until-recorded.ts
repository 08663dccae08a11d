import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError } from '../errors.ts'

const pauseMs = 1_000

/**
 * Records the state of a machine, and repeats that until the database answers. Throws other failures, and the reason of the signal, which
 * aborts when the server ends: the next start makes records and machines agree.
 */
export async function untilRecorded(work: () => Promise<void>, signal: AbortSignal): Promise<void> {
  for (;;) {
    try {
      await work()
      return
    } catch (error) {
      if (signal.aborted || !isServiceError(error, 'unavailable')) throw error
    }
    await sleep(pauseMs, undefined, { signal, ref: false })
  }
}
