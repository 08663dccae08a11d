import { setTimeout as sleep } from 'node:timers/promises'

export interface BackOff {
  firstMs: number
  maxMs: number
  /** Part of the pause that is random, from 0 (none, the default) to 1: clients of a restarted server must not return all at once. */
  jitter?: number
}

/** The pause before the next attempt: `firstMs` after the first failure, doubled with each further one, at most `maxMs`. */
export function backOffMs(failures: number, { firstMs, maxMs, jitter = 0 }: BackOff): number {
  const pause = Math.min(firstMs * 2 ** Math.max(0, failures - 1), maxMs)
  return pause * (1 - jitter * Math.random())
}

/** Waits for {@link backOffMs}. Returns early when the signal aborts. */
export async function backOff(failures: number, options: BackOff, signal: AbortSignal): Promise<void> {
  await sleep(backOffMs(failures, options), undefined, { signal }).catch(() => {})
}
