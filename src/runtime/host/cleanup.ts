import { poolIsFull } from '../disk/index.ts'
import type { Parts } from './context.ts'

/**
 * Waits for parallel steps and throws the first fault only when all have ended: a clean-up that follows must not meet a
 * step that is still making something.
 */
export async function allDone(steps: readonly Promise<unknown>[]): Promise<void> {
  for (const result of await Promise.allSettled(steps)) {
    if (result.status === 'rejected') throw result.reason
  }
}

/** What a fault is told as: a disk that filled up in the middle of work is no capacity. */
export function toldAs(error: unknown): unknown {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return code === 'ENOSPC' || code === 'EDQUOT' ? poolIsFull(error) : error
}

/** The fault that made a clean-up necessary is the one to tell; `delete` and `open` mend what is left. */
export async function cleanUp({ log }: Parts, id: string, work: () => Promise<void>): Promise<void> {
  await work().catch((error: unknown) => log(`clearing up after sandbox ${id} failed: ${String(error)}`))
}
