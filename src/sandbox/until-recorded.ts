import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError } from '../errors.ts'

const pauseMs = 1_000

/**
 * Repeats work that records what a machine has become until the database answers. Throws its other failures, and the reason of the signal,
 * which aborts when the server ends: the next start brings records to their machines.
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
